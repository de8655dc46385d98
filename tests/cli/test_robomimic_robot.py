"""A robomimic file needs no robot.json for the tasks of our worlds: its metadata name them.

Guards: channels, joints or cameras in another order than the world's; a file of another robot, rate or simulator that
is played as if it were ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from auras_ros.action import ChannelKind, HoldPolicy
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.manifest import MANIFEST
from auras_ros.checkpoints.tensors import sha256
from auras_ros.cli.main import main
from auras_ros.cli.robomimic_robot import robot_of
from auras_ros.policies import checkpoint
from auras_ros.policies.checkpoint import GOLDEN, WEIGHTS
from auras_ros.policies.golden import GoldenSample
from auras_ros.policies.loaders.robomimic_own import translate as translate_own
from auras_ros.sim.worlds import find
from tests.policies.loaders.robomimic_fixtures import (
    CHANNELS,
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
    said = capsys.readouterr().out
    assert f"its own task: auras eval --sim {sim} --checkpoint {out}\n" in said
    (told,) = re.findall(r"its task as robomimic makes it: auras eval --sim (\S+) --checkpoint", said)
    assert [each.name for each in find(told).world.channels] == CHANNELS
    made, world = checkpoint.load(out), find(sim).world
    assert made.contract.names == tuple(each.name for each in world.channels)
    assert made.contract.dt_ms == world.control_dt_ms
    assert [each.name for each in made.spec.cameras] == ["robot0_eye_in_hand"]


def test_one_action_a_chunk_is_played_one_after_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(FOLDER / f"{CLONING_LOW_DIM}.pth"), "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.endswith("--modes seq --clock paused\n")


@pytest.mark.parametrize("metadata", [None, {"env_name": "PushT", "type": 2, "env_kwargs": {}}, {"env_name": Path()}])
def test_a_task_that_robomimic_cannot_make_is_not_promised(
    metadata: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    payload = torch.load(FOLDER / f"{CLONING_LOW_DIM}.pth", weights_only=True)
    torch.save({**payload, "env_metadata": metadata}, tmp_path / "policy.pth")
    robot(tmp_path, CLONING_LOW_DIM)
    out = tmp_path / "out"
    assert main(["convert", str(tmp_path / "policy.pth"), "--out", str(out)]) == 0
    assert "as robomimic makes it" not in capsys.readouterr().out
    assert not (out / "env_metadata.json").exists()


def test_robomimics_own_inference_needs_its_environment_and_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AURAS_ROS_ENVIRONMENTS", str(tmp_path))
    own = ["--inference", "robomimic", "--out", str(tmp_path / "out")]
    assert main(["convert", str(FOLDER / f"{CLONING_LOW_DIM}.pth"), *own]) == 1
    assert "make it: auras doctor --sim robomimic --fix" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["convert", str(FOLDER), *own])
    assert "--inference robomimic: is for robomimic's .pth alone" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_robomimic_plays_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = FOLDER / f"{CLONING_LOW_DIM}.pth"
    made, out = translate_own(path, robot_of(path)[0]), tmp_path / "out"
    out.mkdir()
    save_file(dict(made.tensors), out / WEIGHTS)
    weights = {"file": WEIGHTS, "sha256": sha256(out / WEIGHTS)}
    (out / MANIFEST).write_text(json.dumps({**made.manifest, "weights": weights}))
    state = {name: np.zeros(1) for name in made.manifest["observation"]["state"]["names"]}
    GoldenSample({}, state, {}).save(out / GOLDEN)
    monkeypatch.setenv("AURAS_ROS_ENVIRONMENTS", str(tmp_path / "none"))
    with pytest.raises(
        CheckpointError, match=f"^{out}: robomimic: its environment .* auras doctor --sim robomimic --fix$"
    ):
        checkpoint.load(out)


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
        "bc_low_dim.pth: robomimic: metadata: env_metadata: controller_configs: only OSC_POSE is known",
    ),
    "poses from the base": (
        _environment(controller_configs={"type": "OSC_POSE", "input_type": "absolute"}),
        "input_ref_frame: poses in 'base', not in 'world'",
    ),
    "two arms from their bases": (
        _environment(env_name="TwoArmTransport", robots=["Panda", "Panda"], controller_configs=[ARM, ARM]),
        "input_ref_frame: 'base' is of no world here \\(known: world",
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
    "no controllers": (_environment(controller_configs=None), "controller_configs: only OSC_POSE is known"),
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
