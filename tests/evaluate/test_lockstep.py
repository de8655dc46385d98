"""Lockstep evaluation runs the chunk that was asked for, action by action, through the nodes' own code.

Guards: an action that is skipped, repeated or taken from the chunk before; an episode whose noise depends on the
episodes before it; a policy whose channels are in another order than the world's.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from auras_ros.action import Chunk, Contract, Provenance
from auras_ros.clock import VirtualClock
from auras_ros.evaluate.lockstep import (
    REQUESTS_PER_EPISODE,
    Episode,
    LockstepError,
    run_episode,
    run_episodes,
    success_rate,
)
from auras_ros.observation import Observation, StateSpec
from auras_ros.pipeline.seq import Sequential
from auras_ros.sim.pusht import Outcome, PushTWorld
from auras_ros.train import export

MS = 1_000_000
HORIZON = 16


class Scripted:
    """Stands where `Sequential` does: chunk k holds targets that no other chunk has, all near the middle."""

    def __init__(self, **changes: Any) -> None:
        given = {"spec": export.observation_spec(), "contract": export.contract(), "horizon": HORIZON}
        self.checkpoint = SimpleNamespace(**given | changes)
        self.chunks: list[NDArray[np.float64]] = []
        self.seen: list[Observation] = []
        self.ran_at_ns: list[int] = []
        self.resets: list[int | None] = []
        self.clock = VirtualClock()

    def reset(self, first_request: int | None = None) -> None:
        self.resets.append(first_request)

    def run(self, observation: Observation) -> SimpleNamespace:
        k = len(self.chunks)
        steps = np.arange(HORIZON)
        actions = np.stack([250.0 + k + steps / 100, 260.0 - k - steps / 100], 1)
        self.chunks.append(actions)
        self.ran_at_ns.append(self.clock.now_ns())
        self.seen.append(observation)
        source = Provenance(observation.origin_stamp_ns, observation.origin_mono_ns, request=k)
        return SimpleNamespace(chunk=Chunk(actions, source))


class Recorder(PushTWorld):
    """A real table that notes what it is told; `win_at` makes that step a success."""

    def __init__(self, win_at: int | None = None) -> None:
        super().__init__()
        self.actions: list[NDArray[np.float64]] = []
        self.agents: list[NDArray[np.float64]] = []
        self.win_at = win_at

    def step(self, action: NDArray[np.float64]) -> Outcome:
        self.agents.append(self.agent)
        self.actions.append(np.array(action))
        outcome = super().step(action)
        return replace(outcome, success=len(self.actions) == self.win_at)


def play(scripted: Scripted, world: PushTWorld, execute_steps: int = 8, max_steps: int = 20, seed: int = 3) -> Episode:
    return run_episode(cast(Sequential, scripted), world, seed, execute_steps, max_steps)


@pytest.mark.parametrize("execute_steps", [1, 3, 8, 16])
def test_the_world_gets_each_chunks_first_actions_one_a_step(execute_steps: int) -> None:
    scripted, world = Scripted(), Recorder()
    episode = play(scripted, world, execute_steps)
    assert len(scripted.chunks) == -(-20 // execute_steps)
    expected = np.concatenate([chunk[:execute_steps] for chunk in scripted.chunks])[:20]
    np.testing.assert_allclose(np.array(world.actions), expected, rtol=0, atol=1e-9)
    assert (episode.success, episode.steps, episode.seed) == (False, 20, 3)


def test_the_policy_sees_the_world_as_it_is_when_the_chunk_is_made() -> None:
    scripted, world = Scripted(), Recorder()
    play(scripted, world, execute_steps=5)
    for k, seen in enumerate(scripted.seen):
        step = 5 * k
        assert seen.origin_mono_ns == scripted.ran_at_ns[k] == (step + 1) * 100 * MS
        np.testing.assert_array_equal(seen.position, world.agents[step])
        now, before = (world.agents[max(0, step - back)] / 256 - 1 for back in (0, 1))
        np.testing.assert_allclose(seen.state, np.stack([before, now]), atol=1e-6)
    assert not np.array_equal(scripted.seen[0].images[-1], scripted.seen[1].images[-1])


def test_an_episode_ends_with_its_success() -> None:
    scripted, world = Scripted(), Recorder(win_at=13)
    episode = play(scripted, world)
    assert (episode.success, episode.steps) == (True, 13)
    assert len(world.actions) == 13
    assert len(scripted.chunks) == 2


def test_best_coverage_is_the_largest_of_the_episode() -> None:
    class Covering(Recorder):
        def step(self, action: NDArray[np.float64]) -> Outcome:
            super().step(action)
            return Outcome(0.0, [0.1, 0.7, 0.3][min(len(self.actions), 3) - 1], False)

    assert play(Scripted(), Covering()).best_coverage == 0.7


def test_each_seed_has_its_own_stretch_of_the_noise_tape_whatever_ran_before() -> None:
    scripted = Scripted()
    reports: list[int] = []
    episodes = run_episodes(
        cast(Sequential, scripted), [4, 2], 8, max_steps=2, report=lambda done: reports.append(len(done))
    )
    assert [episode.seed for episode in episodes] == [4, 2]
    assert scripted.resets == [4 * REQUESTS_PER_EPISODE, 2 * REQUESTS_PER_EPISODE]
    assert reports == [1, 2]


def test_the_same_seed_gives_the_same_episode_whenever_it_starts() -> None:
    runs = []
    for start_ns in (0, 7_777_777_777):
        scripted, world = Scripted(), Recorder()
        scripted.clock.advance(start_ns)
        play(scripted, world, seed=11)
        assert scripted.clock.now_ns() == start_ns + 20 * 100 * MS
        runs.append(np.concatenate([world.agent, world.tee]))
    np.testing.assert_array_equal(runs[0], runs[1])


@pytest.mark.parametrize("execute_steps", [0, -1, HORIZON + 1])
def test_execute_steps_beyond_the_horizon_are_refused(execute_steps: int) -> None:
    with pytest.raises(ValueError, match=f"in \\[1, 16\\], got {execute_steps}"):
        play(Scripted(), Recorder(), execute_steps)


def swapped() -> Contract:
    contract = export.contract()
    return Contract(contract.channels[::-1], contract.dt_ms)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"contract": swapped()}, "the world's channels are"),
        ({"contract": Contract(export.contract().channels, 50)}, "the world's step is 100 ms, the policy's 50"),
    ],
)
def test_a_policy_for_another_world_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(LockstepError, match=said):
        play(Scripted(**changes), Recorder())


def test_joints_reach_the_policy_by_name_in_its_own_order() -> None:
    state = StateSpec(("agent_y", "agent_x"), "none")
    scripted, world = Scripted(spec=replace(export.observation_spec(), state=state)), Recorder()
    play(scripted, world, max_steps=1)
    np.testing.assert_array_equal(scripted.seen[0].position, world.agents[0][::-1])


def test_a_joint_that_the_world_has_not_is_a_fault_of_the_set_up() -> None:
    state = StateSpec(("agent_x", "elbow"), "none")
    with pytest.raises(LockstepError, match="elbow"):
        play(Scripted(spec=replace(export.observation_spec(), state=state)), Recorder())


def test_a_chunk_that_the_actuator_would_refuse_is_a_fault_of_the_set_up() -> None:
    class Broken(Scripted):
        def run(self, observation: Observation) -> SimpleNamespace:
            frame = super().run(observation)
            spoilt = frame.chunk.actions.copy()
            spoilt[2, 1] = np.nan
            return SimpleNamespace(chunk=Chunk(spoilt, frame.chunk.provenance))

    with pytest.raises(LockstepError, match=r"chunk refused.*agent_y"):
        play(Broken(), Recorder())


def test_success_rate() -> None:
    episodes = [Episode(seed, seed < 3, 10, 0.5) for seed in range(4)]
    assert success_rate(episodes) == 0.75
    assert np.isnan(success_rate([]))
