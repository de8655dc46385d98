"""Odd values at every place of a foreign folder's JSON: each loads or is refused with CheckpointError, nothing else.

Guards: an error of another type, which would end the agent instead of the configure; a value that makes it hang. A
sample of all places and values is tried, the same in every run.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.policies.loaders.open import load
from tests.policies.loaders import openvla_folder as published
from tests.policies.loaders.reference import DATA
from tests.policies.loaders.tiny_vla import shrink

ODD: list[Any] = [
    None, True, -1, 0, 1.5, "x", "", [], {}, [None], [[1]], {"a": 1}, 10**9, 10**400, 1e308, float("nan"), float("inf"),
]  # fmt: skip
TRIES = 15  # of each file
LEROBOT = ("lerobot_pi0", "lerobot_pi05", "lerobot_smolvla")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every value within, by keys and numbers."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from places(each, (*path, key))


def put(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    changed = copy.deepcopy(value)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = odd
    return changed


def try_all(folder: Path, file: str) -> None:
    """A sample of places and values of one file; it is put back as it was."""
    text = (folder / file).read_text(encoding="utf-8")
    raw, dice = json.loads(text), random.Random(file)
    everywhere = list(places(raw))
    refused = 0
    for _ in range(TRIES):
        path, odd = dice.choice(everywhere), dice.choice(ODD)
        (folder / file).write_text(json.dumps(put(raw, path, odd)), encoding="utf-8")
        try:
            load(folder)
        except CheckpointError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"{file}: {path} = {str(odd)[:20]}: {type(error).__name__}: {error}") from error
    (folder / file).write_text(text, encoding="utf-8")
    assert refused, "no value was odd"


@pytest.mark.parametrize(
    "file", ["config.json", "robot.json", "preprocessor_config.json", "model.safetensors.index.json"]
)
def test_odd_values_of_an_openvla_folder(file: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("tokenizers")
    with published.tiny_encoders():
        published.write(tmp_path / "folder")
        try_all(tmp_path / "folder", file)


@pytest.mark.parametrize("name", LEROBOT)
@pytest.mark.parametrize("file", ["config.json", "robot.json"])
def test_odd_values_of_a_lerobot_folder(name: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tokenizers")
    shrink(monkeypatch)
    folder = Path(shutil.copytree(DATA / name, tmp_path / name))
    try_all(folder, file)
