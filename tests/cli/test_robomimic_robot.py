"""A robomimic file needs no robot.json for the tasks of our worlds: its metadata name them.

Guards: channels, joints or cameras in another order than the world's; a file of another robot, rate or simulator that
is played as if it were ours.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from auras_ros.action import ChannelKind, HoldPolicy
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.cli.main import main
from auras_ros.cli.robomimic_robot import robot_of
from auras_ros.policies import checkpoint
from auras_ros.sim.worlds import find
from tests.policies.loaders.robomimic_fixtures import (
    CLONING_LOW_DIM,
    DIFFUSION_IMAGES,
    FOLDER,
    MIXTURE_IMAGES,
    changed,
    robot,
)

OBJECT = [
    *(f"cube_pos_{axis}" for axis in "xyz"),
    *(f"cube_quat_{axis}" for axis in "xyzw"),
    *(f"gripper_to_cube_pos_{axis}" for axis in "xyz"),
]
ARM = {"type": "OSC_POSE", "control_delta": True}


def test_it_is_converted_without_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "my_lift"
    assert main(["convert", str(FOLDER / f"{DIFFUSION_IMAGES}.pth"), "--out", str(out)]) == 0
    sim = "lift:absolute=false,fast_rendering=false,turns=true"
    assert f"its own task: auras eval --sim {sim} --checkpoint {out}" in capsys.readouterr().out
    made, world = checkpoint.load(out), find(sim).world
    assert made.contract.names == tuple(each.name for each in world.channels)
    assert made.contract.dt_ms == world.control_dt_ms
    assert [each.name for each in made.spec.cameras] == ["robot0_eye_in_hand"]


def test_one_that_is_given_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    robot(tmp_path, CLONING_LOW_DIM)
    source, out = FOLDER / f"{CLONING_LOW_DIM}.pth", tmp_path / "out"
    assert main(["convert", str(source), "--out", str(out), "--robot", str(tmp_path / "robot.json")]) == 0
    assert "its own task" not in capsys.readouterr().out
    state = checkpoint.load(out).spec.state
    assert state is not None
    assert state.names[0] == "object_0"


def test_numbers_have_the_names_of_the_world() -> None:
    made, sim = robot_of(FOLDER / f"{CLONING_LOW_DIM}.pth")
    assert sim == "lift:absolute=false,objects=true,turns=true"
    hand = [f"robot0_eef_pos_{axis}" for axis in "xyz"] + [f"robot0_eef_quat_{axis}" for axis in "xyzw"]
    assert made.state == (*OBJECT, *hand, "robot0_gripper_qpos_0", "robot0_gripper_qpos_1")
    kinds = [(each.name, each.kind, each.hold) for each in made.contract.channels]
    assert kinds[0] == ("dx", ChannelKind.VELOCITY, HoldPolicy.ZERO)
    assert kinds[-1] == ("gripper", ChannelKind.GRIPPER, HoldPolicy.LAST)


def _environment(**values: Any) -> Callable[[dict[str, Any], dict[str, Any]], Any]:
    """Values of the metadata; those that it does not have go to its arguments."""

    def change(payload: dict[str, Any], config: dict[str, Any]) -> None:
        for key, value in values.items():
            owner = payload["env_metadata"]
            (owner if key in owner else owner["env_kwargs"])[key] = value

    return change


def test_poses_and_two_arms_are_told_by_the_controllers(tmp_path: Path) -> None:
    arm = {"type": "OSC_POSE", "control_delta": False}
    change = _environment(
        env_name="TwoArmTransport", env_version="1.4.1", robots=["Panda", "Panda"], controller_configs=[arm, arm]
    )
    made, sim = robot_of(changed(tmp_path, DIFFUSION_IMAGES, change))
    assert sim == "transport:absolute=true,fast_rendering=false"
    assert made.contract.names[:2] == ("robot0_x", "robot0_y")
    assert {each.kind for each in made.contract.channels} == {ChannelKind.ABSOLUTE, ChannelKind.GRIPPER}


FAULTS: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], Any], str]] = {
    "another task": (_environment(env_name="Door"), "env_name: 'Door' is of no world here \\(known: Lift, "),
    "another robot": (_environment(robots=["Sawyer"]), "env_kwargs.robots: 'Sawyer' .*1 x Panda"),
    "another rate": (_environment(control_freq=10), "env_kwargs.control_freq: '10' .*known: 20"),
    "another controller": (
        _environment(controller_configs={**ARM, "type": "JOINT_POSITION"}),
        "controller_configs.type: 'JOINT_POSITION' is not supported; expected 'OSC_POSE'",
    ),
    "poses from the base": (
        _environment(controller_configs={"type": "OSC_POSE", "input_type": "absolute"}),
        "input_ref_frame: 'base' is not supported; expected 'world'",
    ),
    "an older robosuite": (_environment(env_version="1.4.1"), "env_version: '1.4.1' .* whose 'object' is another"),
    "another observation": (
        lambda payload, config: (
            config["observation"]["modalities"]["obs"]["low_dim"].append("robot0_joint_vel"),
            payload["shape_metadata"]["all_shapes"].update(robot0_joint_vel=[7]),
        ),
        "observation: 'robot0_joint_vel' is of no world",
    ),
    "another size": (
        lambda payload, config: payload["shape_metadata"]["all_shapes"].update(object=[14]),
        "all_shapes.object: '14' .*known: 10",
    ),
    "no controllers": (_environment(controller_configs=None), "controller_configs: None is not supported"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_no_world_plays_is_refused_by_name(name: str, tmp_path: Path) -> None:
    change, said = FAULTS[name]
    with pytest.raises(CheckpointError, match=said):
        robot_of(changed(tmp_path, CLONING_LOW_DIM, change))


def test_a_camera_that_no_world_has_is_refused(tmp_path: Path) -> None:
    path = changed(tmp_path, MIXTURE_IMAGES, _environment(env_name="ToolHang"))
    assert robot_of(path)[1] == "tool_hang:cameras=3,fast_rendering=false"

    def other(payload: dict[str, Any], config: dict[str, Any]) -> None:
        config["observation"]["modalities"]["obs"]["rgb"] = ["topview_image"]
        payload["shape_metadata"]["all_shapes"]["topview_image"] = [3, 40, 40]

    with pytest.raises(CheckpointError, match="camera: 'topview' is of no world here \\(known: agentview"):
        robot_of(changed(tmp_path, MIXTURE_IMAGES, other))
