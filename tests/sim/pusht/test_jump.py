"""A tee that jumps: once, by as much as it is told, and otherwise the table is what it was.

Guards: a jump that changes the published task, comes again, or depends on what was played before.
"""

from __future__ import annotations

import numpy as np
import pytest

from auras_ros.sim.pusht.world import DRIFT_HIGH_PX, DRIFT_LOW_PX, JUMP_STEPS, PushTWorld
from auras_ros.sim.worlds import find

STEPS = JUMP_STEPS[1] + 5
AWAY_PX = 10.0  # by so much a pusher may shove a tee that comes down beside it


def places(world: PushTWorld, seed: int) -> np.ndarray:
    """The tee's pose after each step of an episode in which the pusher stays where it is."""
    world.reset(seed)
    home, seen = world.agent, []
    for _ in range(STEPS):
        world.step(home)
        seen.append(world.tee)
    return np.array(seen)


@pytest.mark.parametrize("seed", range(8))
def test_the_tee_jumps_once_and_the_same_in_each_such_episode(seed: int) -> None:
    plain, jumping = PushTWorld(), PushTWorld(jump_px=100.0)
    still, moved, again = places(plain, seed), places(jumping, seed), places(jumping, seed)
    np.testing.assert_array_equal(moved, again)
    differs = np.flatnonzero((still != moved).any(axis=1))
    first = int(differs[0])
    assert JUMP_STEPS[0] <= first + 1 <= JUMP_STEPS[1]
    before, after = still[first - 1, :2], moved[first, :2]
    assert 1.0 < np.linalg.norm(after - before) <= 100.0 + AWAY_PX
    assert ((after >= DRIFT_LOW_PX - AWAY_PX) & (after <= DRIFT_HIGH_PX + AWAY_PX)).all()
    np.testing.assert_allclose(moved[first:, :2], np.broadcast_to(after, moved[first:, :2].shape), atol=AWAY_PX)


def test_it_is_a_world_with_a_name() -> None:
    world = find("pusht-jump").make()
    assert isinstance(world, PushTWorld)
    assert (world.jump_px, world.drift_px, world.success_coverage) == (100.0, 0.0, 0.95)
