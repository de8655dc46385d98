"""What the seven numbers of an action mean: SimplerEnv's own, or those of the data sets that policies learn from.

`openvla` is what the evaluation of OpenVLA in SimplerEnv makes of a policy's output once it is in physical units (which
is the policy's part, with its data set's statistics): Euler angles become axis and angle, and the share to which the
gripper is to open becomes what the robot's gripper takes. A conversion has a state, an episode's.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import pi
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from auras_ros.sim.rotations import axis_angle
from auras_ros.sim.simpler.tasks import SimplerRobot
from auras_ros.sim.world import ActionChannel

CHANGES = 0.5  # of the share to which the gripper is to open: from here on it opens or closes
Values = NDArray[np.float64]


class SimplerActions(Protocol):
    """One episode's. Both conventions move the arm by the first six numbers."""

    def reset(self) -> None:
        """Begin an episode, or another instruction."""
        ...

    def native(self, action: Values) -> Values:
        """[7] as the environment takes it: dx, dy, dz, axis times angle, gripper."""
        ...

    def gripper(self, opened: float) -> float | None:
        """The position of the channel `gripper` whose fingers are open to this share; None: the channel has none."""
        ...


class OpenVlaActions:
    """The Google robot's gripper takes a change, which is held for `robot.hold_steps`; WidowX's takes -1 or 1."""

    def __init__(self, robot: SimplerRobot) -> None:
        self._hold_steps = robot.hold_steps
        self.reset()

    def reset(self) -> None:
        self._before: float | None = None
        self._change, self._held = 0.0, 0

    def native(self, action: Values) -> Values:
        opened = float(action[6])
        moved = self._moved(opened) if self._hold_steps else (1.0 if opened > CHANGES else -1.0)
        return np.array([*action[:3], *axis_angle(*action[3:6].tolist()), moved])

    def _moved(self, opened: float) -> float:
        """Above 0 closes. Wishes made while a change is held are noted, but do not end it."""
        change = 0.0 if self._before is None else self._before - opened
        self._before = opened
        if not self._held and abs(change) > CHANGES:
            self._change, self._held = change, self._hold_steps
        if not self._held:
            return change
        self._held -= 1
        return self._change

    def gripper(self, opened: float) -> float | None:
        return opened


class NativeActions:
    """SimplerEnv's own numbers."""

    def __init__(self, robot: SimplerRobot) -> None:
        self._relative = bool(robot.hold_steps)

    def reset(self) -> None:
        pass

    def native(self, action: Values) -> Values:
        return action

    def gripper(self, opened: float) -> float | None:
        return None if self._relative else 2.0 * opened - 1.0


CONVENTIONS: Mapping[str, type[OpenVlaActions] | type[NativeActions]] = {
    "openvla": OpenVlaActions,
    "native": NativeActions,
}


def channels(convention: str, terminate: bool) -> tuple[ActionChannel, ...]:
    """The arm's increments of one control step, in the frame of the robot's base, and the gripper."""
    turns = ("roll", "pitch", "yaw") if convention == "openvla" else ("rx", "ry", "rz")
    made = [ActionChannel(axis, "m", -1.0, 1.0) for axis in "xyz"]
    made += [ActionChannel(axis, "rad", -pi / 2, pi / 2) for axis in turns]
    # Data sets have 0 (closed) to 1 (open); what policies make of them goes a little beyond.
    made.append(ActionChannel("gripper", "", -1.0, 1.0))
    return (*made, ActionChannel("terminate", "", 0.0, 1.0)) if terminate else tuple(made)
