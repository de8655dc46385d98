"""Lift's scripted expert, on a gripper that follows as robosuite's does; with robosuite itself in tests/worlds.

Guards: an expert that stays behind a cube that moves, closes beside it, or goes up without it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from auras_ros.sim.robosuite.layout import DELTA_M, flattened
from auras_ros.train.lift_expert import CLOSED, HAND, LiftExpert

SUBSTEPS, DT_S = 25, 0.002


class SpringGripper:
    """A gripper at the end of the controller's spring, and a cube that moves at a steady speed until it is held."""

    def __init__(self, speed_m_s: float) -> None:
        self.hand, self.velocity = np.array([-0.1, 0.0, 1.0]), np.zeros(3)
        self.cube, self.speed, self.held = np.array([0.0, 0.0, 0.82]), np.array([0.0, speed_m_s, 0.0]), False
        self.closing = 0

    def state(self) -> Mapping[str, float]:
        return flattened(HAND, self.hand) | flattened("cube_pos", self.cube) | flattened("cube_quat", [0, 0, 0, 1])

    def step(self, action: np.ndarray) -> None:
        goal = self.hand + np.clip(action[:3], -1, 1) * DELTA_M
        self.closing = self.closing + 1 if action[6] == CLOSED else 0
        if self.closing == 5:
            self.held = bool(np.linalg.norm(self.hand - self.cube) < 0.02)
        for _ in range(SUBSTEPS):
            force = 150.0 * (goal - self.hand) - 2 * np.sqrt(150.0) * self.velocity
            self.velocity = self.velocity + force * DT_S
            self.hand = self.hand + self.velocity * DT_S
            self.cube = self.cube + (self.velocity if self.held else self.speed) * DT_S


@pytest.mark.parametrize("speed_m_s", [0.0, 0.1, -0.2])
def test_it_lifts_a_cube_that_moves(speed_m_s: float) -> None:
    gripper, expert = SpringGripper(speed_m_s), LiftExpert()
    for _ in range(60):
        gripper.step(expert.decide(gripper.state()))
        if gripper.cube[2] > 0.86:
            break
    assert gripper.held
    assert gripper.cube[2] > 0.86


def test_it_goes_after_a_cube_that_was_put_elsewhere() -> None:
    gripper, expert = SpringGripper(0.0), LiftExpert()
    for step in range(80):
        if step == 14:
            gripper.cube = gripper.cube + [0.05, 0.08, 0.0]
        gripper.step(expert.decide(gripper.state()))
    assert gripper.held


def test_what_a_jump_moved_is_not_taken_for_speed() -> None:
    gripper, expert = SpringGripper(0.0), LiftExpert()
    expert.decide(gripper.state())
    gripper.cube = gripper.cube + [0.0, 0.08, 0.0]
    expert.decide(gripper.state())
    np.testing.assert_array_equal(expert._step_m, np.zeros(3))


def test_after_a_reset_nothing_of_the_episode_before_is_left() -> None:
    gripper, used, fresh = SpringGripper(0.1), LiftExpert(), LiftExpert()
    first = gripper.state()
    for _ in range(40):
        gripper.step(used.decide(gripper.state()))
    used.reset()
    np.testing.assert_array_equal(used.decide(first), fresh.decide(first))


def test_a_world_that_does_not_tell_the_cube_is_named() -> None:
    with pytest.raises(ValueError, match="make the world with objects=true"):
        LiftExpert().decide(flattened(HAND, [0.0, 0.0, 1.0]))
