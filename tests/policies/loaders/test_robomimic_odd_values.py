"""Odd values at every place of a robomimic file: each is read or refused with CheckpointError, nothing else.

Guards: an error of another type, which would end in a traceback; a value that makes it hang. A sample of all places and
values is tried, the same in every run.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.cli.robomimic_robot import robot_of
from auras_ros.policies.loaders.robomimic import translate
from tests.policies.loaders.robomimic_fixtures import CLONING_LOW_DIM, DIFFUSION_IMAGES, FOLDER, robot
from tests.policies.loaders.test_odd_values import ODD, places, put

TRIES = 30
CONFIG = {"algo", "observation", "train"}  # the parts that are read


@pytest.mark.parametrize("name", [CLONING_LOW_DIM, DIFFUSION_IMAGES])
def test_odd_values_of_a_robomimic_file(name: str, tmp_path: Path) -> None:
    payload, known = torch.load(FOLDER / f"{name}.pth", weights_only=True), robot(tmp_path, name)
    config = json.loads(payload["config"])
    told = {key: value for key, value in payload.items() if key not in ("config", "model", "variable_state")}
    told |= {"config": {key: config[key] for key in CONFIG}}
    told = json.loads(json.dumps(told))
    dice, everywhere, refused = random.Random(name), list(places(told)), 0
    for _ in range(TRIES):
        place, odd = dice.choice(everywhere), dice.choice(ODD)
        refused += _is_refused(tmp_path / "odd.pth", put(told, place, odd), payload["model"], known, (place, odd))
    assert refused, "no value was odd"


def _is_refused(path: Path, told: Any, model: Any, known: Any, what: Any) -> bool:
    made = {**told, "model": model}
    if "config" in made:
        made["config"] = json.dumps(made["config"])
    torch.save(made, path)
    try:
        robot_of(path)
        translate(path, known).checkpoint("digest", path)
    except CheckpointError:
        return True
    except Exception as error:
        raise AssertionError(f"{str(what)[:100]}: {type(error).__name__}: {error}") from error
    return False
