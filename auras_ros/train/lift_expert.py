"""A scripted expert for Lift: above the cube, down to it, close, up. It follows a cube that moves.

It sees the cube's pose, which no policy does: its world is made with `objects=true`. Actions are increments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from auras_ros.sim.robosuite.layout import DELTA_M
from auras_ros.sim.world import World

Array = NDArray[np.float64]

HAND, CUBE = "robot0_eef_pos", "cube_pos"
POSE = (*(f"{CUBE}_{axis}" for axis in "xyz"), *(f"cube_quat_{axis}" for axis in "xyzw"))
# The controller's goal is a spring (150/s²) that is damped critically: at a steady speed the gripper stays this many
# control steps behind it.
LAG_STEPS = 3.8
ABOVE_M, GRIP_M = 0.06, -0.005  # of the cube's centre: where it waits to go down, where it closes
ALIGNED_M, LOST_M, DOWN_M = 0.012, 0.03, 0.008
CLOSE_STEPS = 7  # until the fingers have closed
LIFT_M = 0.05  # how far ahead the goal is when it lifts
JUMPED_M = 0.03  # a cube that is further away after one step was put there
OPEN, CLOSED = -1.0, 1.0


class LiftPhase(Enum):
    ABOVE = "above"
    DOWN = "down"
    CLOSE = "close"
    UP = "up"


class LiftExpert:
    """act(world) -> increments [7], once a control step."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._phase, self._closing = LiftPhase.ABOVE, 0
        self._cube: Array | None = None
        self._step_m = np.zeros(3)  # how far the cube moves each control step

    def truth(self, world: World) -> Array:
        """The cube's pose: position [x, y, z] m and quaternion [x, y, z, w]. Raises ValueError if the world does not
        tell it."""
        return _read(world.state(), POSE)

    def act(self, world: World) -> Array:
        """Raises ValueError if the world does not tell where the cube is."""
        return self.decide(world.state())

    def decide(self, state: Mapping[str, float]) -> Array:
        """`act` on what the world's state was."""
        hand, cube = (_read(state, [f"{name}_{axis}" for axis in "xyz"]) for name in (HAND, CUBE))
        self._follow(cube)
        self._choose(hand, cube)
        if self._phase is LiftPhase.UP:
            move = np.array([0.0, 0.0, LIFT_M])
        else:
            height = ABOVE_M if self._phase is LiftPhase.ABOVE else GRIP_M
            move = cube + self._step_m * LAG_STEPS + [0.0, 0.0, height] - hand
        grip = CLOSED if self._phase in (LiftPhase.CLOSE, LiftPhase.UP) else OPEN
        return np.array([*np.clip(move / DELTA_M, -1.0, 1.0), 0.0, 0.0, 0.0, grip])

    def _follow(self, cube: Array) -> None:
        if self._cube is not None:
            moved = cube - self._cube
            if np.linalg.norm(moved) < JUMPED_M:
                self._step_m[:2] = moved[:2]
        self._cube = cube

    def _choose(self, hand: Array, cube: Array) -> None:
        """The phase of this step."""
        aside = float(np.linalg.norm((cube - hand)[:2]))
        above = float(hand[2] - cube[2])
        if self._phase is LiftPhase.ABOVE and aside < ALIGNED_M:
            self._phase = LiftPhase.DOWN
        elif self._phase is LiftPhase.DOWN and aside > LOST_M and above > LOST_M:
            self._phase = LiftPhase.ABOVE
        if self._phase is LiftPhase.DOWN and above < DOWN_M:
            self._phase, self._closing = LiftPhase.CLOSE, 0
        elif self._phase is LiftPhase.CLOSE:
            self._closing += 1
            if self._closing >= CLOSE_STEPS:
                self._phase = LiftPhase.UP
        elif self._phase is LiftPhase.UP and np.linalg.norm(cube - hand) > LOST_M:
            self._phase = LiftPhase.ABOVE


class LiftPositionExpert(LiftExpert):
    """The same where actions are positions (absolute=true,turns=false): act(world) -> x, y, z, m, and the gripper."""

    def decide(self, state: Mapping[str, float]) -> Array:
        increments = super().decide(state)
        hand = _read(state, [f"{HAND}_{axis}" for axis in "xyz"])
        return np.array([*(hand + increments[:3] * DELTA_M), increments[-1]])


def _read(state: Mapping[str, float], names: Sequence[str]) -> Array:
    try:
        return np.array([state[name] for name in names])
    except KeyError as error:
        raise ValueError(
            f"the expert for Lift needs to see the cube ({error}): make the world with objects=true"
        ) from None
