"""What robomimic's metadata say, where neither robosuite nor robomimic is installed.

Guards: actions in another frame or of another meaning than those of the data; a file that is wrong and is believed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from auras_ros.parameters import ParameterError
from auras_ros.sim.robosuite.lift import LiftWorld
from auras_ros.sim.robosuite.metadata import LIFT, read
from auras_ros.sim.worlds import find

Change = Callable[[dict[str, Any]], Any]


def written(folder: Path, change: Change) -> str:
    told = deepcopy(dict(LIFT))
    change(told)
    (folder / "env.json").write_text(json.dumps(told))
    return str(folder / "env.json")


def arm(**values: Any) -> Change:
    return lambda told: told["env_kwargs"]["controller_configs"].update(values)


def options(**values: Any) -> Change:
    return lambda told: told["env_kwargs"].update(values)


def test_robomimics_lift_is_ours() -> None:
    sim, ours = find("robomimic"), find("lift:absolute=false,turns=true").world
    assert sim.world.channels == ours.channels
    assert sim.world.cameras == ours.cameras
    assert sim.world.control_dt_ms == LiftWorld.control_dt_ms
    (controller,) = [read("").environment["env_kwargs"]["controller_configs"]]
    assert (controller["input_type"], controller["input_ref_frame"]) == ("delta", "world")
    assert "control_delta" not in controller


def test_a_file_decides_cameras_channels_and_rate(tmp_path: Path) -> None:
    changes = {"robots": ["Panda", "Sawyer"], "control_freq": 25, "camera_names": ["shouldercamera0"]}
    sim = find(f"robomimic:metadata={written(tmp_path, options(**changes))},image_px=120")
    assert sim.world.control_dt_ms == 40
    assert [(each.name, each.width) for each in sim.world.cameras] == [("shouldercamera0", 120)]
    assert len(sim.world.channels) == 14
    assert sim.world.channels[7].name == "robot1_dx"


@pytest.mark.parametrize("change", [arm(control_delta=False), arm(input_type="absolute")])
def test_poses_are_poses(change: Change, tmp_path: Path) -> None:
    sim = find(f"robomimic:metadata={written(tmp_path, change)}")
    assert [each.name for each in sim.world.channels][:3] == ["x", "y", "z"]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path, options(control_freq=20))
    assert read(path).control_dt_ms == 50
    path = written(tmp_path, options(control_freq=10))
    assert read(path).control_dt_ms == 100


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda told: told.pop("env_name"), "no object with env_name and env_kwargs"),
        (lambda told: told.update(env_kwargs=[]), "no object with env_name and env_kwargs"),
        (lambda told: told.update(type=2), "type 2 is not robosuite's"),
        (options(robots=[]), r"robots: \[\] is not one or two names of robots"),
        (options(robots=[1]), r"robots: \[1\] is not one or two names of robots"),
        (arm(input_type="relative"), "input_type: 'relative' is neither delta nor absolute"),
        (options(control_freq=0), "control_freq: 0 has no period of whole ms"),
        (options(control_freq=30), "control_freq: 30 has no period of whole ms"),
        (options(control_freq=True), "control_freq: True has no period of whole ms"),
        (options(camera_names=[3]), r"camera_names: \[3\] is no list of names"),
        (arm(type="JOINT_VELOCITY"), "controller_configs: only OSC_POSE is known"),
        (options(controller_configs=None), "controller_configs: only OSC_POSE is known"),
        (arm(control_delta=False, input_ref_frame="base"), "input_ref_frame: poses in 'base', not in 'world'"),
        (
            lambda told: (arm(control_delta=False)(told), told.update(env_version="1.5.1")),
            "input_ref_frame: poses in 'base', not in 'world'",
        ),
    ],
)
def test_what_cannot_be_played_is_refused_by_its_key(change: Change, said: str, tmp_path: Path) -> None:
    path = written(tmp_path, change)
    with pytest.raises(ParameterError, match=f"^robomimic: metadata: {path}: {said}"):
        read(path)


@pytest.mark.parametrize("contents", [None, "{", "[]"])
def test_no_metadata_at_all(contents: str | None, tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    if contents is not None:
        path.write_text(contents)
    with pytest.raises(ParameterError, match=f"robomimic: metadata: {path}"):
        find(f"robomimic:metadata={path}")
