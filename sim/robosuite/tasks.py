"""robomimic's tasks but Lift: a can to put away, a nut on a peg, a tool to hang, and two arms that hand over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from auras_ros.sim.robosuite.world import RobosuiteWorld

STAGES = {"reach": 0.1, "grasp": 0.35, "lift": 0.5, "place": 0.7}  # robosuite's most for each


class _StagedWorld(RobosuiteWorld):
    """Whose environment says how far each stage is; an object that is in its place has none any more."""

    sub_goals = tuple(STAGES)

    def _reached(self, env: Any, success: bool) -> Mapping[str, float]:
        if success:
            return dict.fromkeys(STAGES, 1.0)
        shares = zip(STAGES.items(), env.staged_rewards(), strict=True)
        return {name: min(1.0, float(share) / most) for (name, most), share in shares}


class CanWorld(_StagedWorld):
    """PickPlaceCan."""

    name = "can"
    environment = "PickPlaceCan"
    views = ("agentview", "robot0_eye_in_hand", "frontview", "birdview")
    instruction = "put the can into its bin"


class SquareWorld(_StagedWorld):
    """NutAssemblySquare."""

    name = "square"
    environment = "NutAssemblySquare"
    views = ("agentview", "robot0_eye_in_hand", "frontview", "birdview")
    instruction = "put the square nut onto its peg"


class ToolHangWorld(RobosuiteWorld):
    """ToolHang."""

    name = "tool_hang"
    environment = "ToolHang"
    shaped = False
    views = ("sideview", "robot0_eye_in_hand", "agentview", "frontview")
    sub_goals = ("frame_assembled", "tool_on_frame")
    instruction = "put the frame into its stand and hang the tool on it"

    def _reached(self, env: Any, success: bool) -> Mapping[str, float]:
        done = env._check_frame_assembled(), env._check_tool_on_frame()
        return {name: float(each) for name, each in zip(self.sub_goals, done, strict=True)}


class TransportWorld(RobosuiteWorld):
    """TwoArmTransport."""

    name = "transport"
    environment = "TwoArmTransport"
    robots = 2
    shaped = False
    views = ("shouldercamera0", "shouldercamera1", "robot0_eye_in_hand", "robot1_eye_in_hand")
    sub_goals = ("payload_in_target_bin", "trash_in_trash_bin")
    instruction = "hand the hammer over into the target bin, and put the cube into the trash bin"

    def _reached(self, env: Any, success: bool) -> Mapping[str, float]:
        return {name: float(getattr(env.transport, name)) for name in self.sub_goals}
