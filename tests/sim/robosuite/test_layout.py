"""What robosuite's worlds say of themselves where robosuite is not installed.

Guards: a name, a camera or an option that is only known inside the simulator; a missing simulator that ends in a
traceback about some module; options that are read and do nothing.
"""

from __future__ import annotations

import sys
from math import atan, degrees
from typing import Any

import pytest

from auras_ros.cli.sim import greeting
from auras_ros.sim.robosuite.layout import flattened
from auras_ros.sim.robosuite.lift import LiftWorld
from auras_ros.sim.robosuite.tasks import CanWorld, SquareWorld, ToolHangWorld, TransportWorld
from auras_ros.sim.worlds import find

WORLDS = {
    "lift": (LiftWorld, "agentview", 7),
    "lift-moving": (LiftWorld, "agentview", 7),
    "lift-jump": (LiftWorld, "agentview", 7),
    "can": (CanWorld, "agentview", 7),
    "square": (SquareWorld, "agentview", 7),
    "tool_hang": (ToolHangWorld, "sideview", 7),
    "transport": (TransportWorld, "shouldercamera0", 14),
}


@pytest.mark.parametrize("text", WORLDS)
def test_cameras_and_channels_follow_from_the_options(text: str) -> None:
    kind, first, channels = WORLDS[text]
    sim = find(text)
    assert issubclass(sim.world, kind)
    for count in (1, 4, 2, 3):
        cameras = sim.given(cameras=count, image_px=128).world.cameras
        assert (len(cameras), cameras[0].name) == (count, first)
        assert {(each.width, each.height) for each in cameras} == {(128, 128)}
    turning = sim.given(turns=True) if kind is LiftWorld else sim
    deltas, poses = (turning.given(absolute=each).world.channels for each in (False, True))
    assert len(deltas) == len(poses) == channels
    assert {(each.low, each.high) for each in deltas} == {(-1.0, 1.0)}
    assert len({each.name for each in (*deltas, *poses)}) == 13 * channels // 7  # the gripper is in both


def test_lift_is_played_by_positions_unless_told_otherwise() -> None:
    """A gripper that keeps pointing down has no channels of rotation."""
    sim = find("lift")
    assert [each.name for each in sim.world.channels] == ["x", "y", "z", "gripper"]
    assert [each.name for each in sim.given(absolute=False).world.channels] == ["dx", "dy", "dz", "gripper"]
    assert sim.given(turns=True, absolute=False).world.channels == find("can").world.channels


def test_a_camera_of_84_px_is_robomimics_and_calibrated() -> None:
    agent, hand = find("lift").world.cameras
    assert (agent.name, hand.name, agent.width, hand.height) == ("agentview", "robot0_eye_in_hand", 84, 84)
    assert agent.intrinsics is not None
    assert hand.intrinsics is not None
    assert 2 * degrees(atan(42 / agent.intrinsics[1])) == pytest.approx(45.0)
    assert 2 * degrees(atan(42 / hand.intrinsics[1])) == pytest.approx(75.0)
    assert agent.intrinsics[2:] == (41.5, 41.5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lift:cameras=5", r"lift: cameras: must be in \[1, 4\]"),
        ("lift:absolute=1", "lift: absolute: expected bool"),
        ("lift-moving:table_m_s=2.0", "lift-moving: table_m_s: must be in"),
        ("can:table_m_s=0.1", "can: no parameter 'table_m_s'"),
        ("lift:jump=0.1", "lift: no parameter 'jump'; did you mean jump_m?"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        find(text)


def test_the_greeting_tells_the_cameras_and_channels_of_the_options() -> None:
    said = greeting(find("lift:cameras=1,turns=true,image_px=96"))
    assert "camera/agentview/image_raw (sensor_msgs/Image, 96x96 rgb8)" in said
    assert "eye_in_hand" not in said
    assert "x -1.5 to 1.5 m, y -1.5 to 1.5 m, z 0.5 to 2 m, rx" in said
    assert "layout.dim[0].label x,y,z,rx,ry,rz,gripper)" in said
    assert "dx -1 to 1 x 0.05 m" in greeting(find("can"))


@pytest.mark.parametrize("make", [LiftWorld.check, LiftWorld, CanWorld])
def test_without_robosuite_it_says_what_installs_it(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    monkeypatch.delitem(sys.modules, "auras_ros.sim.robosuite.env", raising=False)
    name = "can" if make is CanWorld else "lift"
    with pytest.raises(ModuleNotFoundError, match=f"{name}: robosuite .*: auras doctor --sim {name} --fix"):
        make()


def test_readings_are_flattened_under_names_that_say_which_number_is_meant() -> None:
    assert flattened("robot0_eef_pos", [1.0, 2.0, 3.0]) == {
        "robot0_eef_pos_x": 1.0,
        "robot0_eef_pos_y": 2.0,
        "robot0_eef_pos_z": 3.0,
    }
    assert list(flattened("cube_quat", [0.0] * 4)) == [f"cube_quat_{axis}" for axis in "xyzw"]
    assert list(flattened("robot0_joint_pos", [0.0] * 7)) == [f"robot0_joint_pos_{number}" for number in range(7)]
    assert list(flattened("robot0_gripper_qpos", [0.0] * 2)) == ["robot0_gripper_qpos_0", "robot0_gripper_qpos_1"]
    assert flattened("tool_on_frame", [1.0]) == {"tool_on_frame": 1.0}
