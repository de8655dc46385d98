"""Lockstep runs the chunk that was asked for, action by action, through the nodes' own code.

Guards: an action that is skipped, repeated or taken from the chunk before; an episode whose noise depends on the
episodes beside it; a policy whose channels are in another order than the world's; an ended episode that goes on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch

from auras_ros.action import Contract
from auras_ros.evaluate import episode_runners, lockstep
from auras_ros.evaluate.episode_runner import LockstepError, Task
from auras_ros.evaluate.episode_runners import NOISE_SEED, REQUESTS_PER_EPISODE
from auras_ros.evaluate.lockstep import grouped, play, run_episodes
from auras_ros.evaluate.outcome import ModeResult
from auras_ros.evaluate.paused import Paused
from auras_ros.observation import StateSpec
from auras_ros.pipeline.noise import noise_tape
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.sim.pusht.world import PushTWorld
from auras_ros.sim.world import StepResult
from auras_ros.train.pusht_task import PUSHT
from tests.evaluate.tables import DT, HORIZON, Recorder, Script, Tables, scripted_checkpoint


def run(
    monkeypatch: pytest.MonkeyPatch,
    execute_steps: int = 8,
    max_steps: int = 20,
    seeds: tuple[int, ...] = (3,),
    wins: dict[int, int] | None = None,
    script: Script | None = None,
    **changes: Any,
) -> tuple[ModeResult, Script, dict[int, Recorder]]:
    tables = Tables(monkeypatch, wins)
    script = (script or Script()).install(monkeypatch, len(seeds))
    checkpoint = cast(Checkpoint, scripted_checkpoint(**changes))
    outcome = play(checkpoint, Plan(), seeds, Task(max_steps=max_steps), Paused(execute_steps))
    assert script.executors[-1].closed
    return outcome, script, tables.take()


@pytest.mark.parametrize("execute_steps", [1, 3, 8, 16])
def test_the_world_gets_each_chunks_first_actions_one_a_step(
    monkeypatch: pytest.MonkeyPatch, execute_steps: int
) -> None:
    outcome, script, worlds = run(monkeypatch, execute_steps)
    assert len(script.frames) == -(-20 // execute_steps)
    expected = np.concatenate([script.chunk(k)[:execute_steps] for k in range(len(script.frames))])[:20]
    np.testing.assert_allclose(worlds[3].actions, expected, rtol=0, atol=1e-9)
    episode = outcome.episodes[0]
    assert (episode.success, episode.steps, episode.seed, episode.holds) == (False, 20, 3, 0)
    assert episode.frames == episode.chunks == len(script.frames)


def test_the_policy_sees_the_world_as_it_is_when_the_chunk_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    _, script, worlds = run(monkeypatch, execute_steps=5, seeds=(3, 8))
    for k, frame in enumerate(script.frames):
        step = 5 * k
        assert frame.seen.origin.mono_ns == frame.began_ns == (step + 1) * DT
        for row, world in enumerate(worlds.values()):
            assert frame.seen.origin.reference is not None
            np.testing.assert_array_equal(frame.seen.origin.reference[row], world.agents[step])
            now, before = (world.agents[max(0, step - back)] / 256 - 1 for back in (0, 1))
            np.testing.assert_allclose(frame.seen.state[row], np.stack([before, now]), atol=1e-6)
    one, other = script.frames[0].seen.images[:, -1], script.frames[1].seen.images[:, -1]
    assert not torch.equal(one, other)
    assert not torch.equal(one[0], one[1])


def test_an_episode_ends_with_its_success_and_its_row_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, script, worlds = run(monkeypatch, seeds=(5, 6, 7, 8), wins={5: 13, 7: 13, 8: 2})
    assert [(e.seed, e.success, e.steps) for e in outcome.episodes] == [
        (5, True, 13),
        (6, False, 20),
        (7, True, 13),
        (8, True, 2),
    ]
    assert [len(world.actions) for world in worlds.values()] == [13, 20, 13, 2]
    assert [len(tape) for tape in script.executors[0].tapes] == [4, 4, 4]
    assert [episode.chunks for episode in outcome.episodes] == [2, 3, 2, 1]


def test_a_finished_episode_is_left_alone_and_changes_nothing_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its world gets no action and draws no image; the others see and do the same as if it went on, bit for bit."""
    _, script, worlds = run(monkeypatch, execute_steps=4, seeds=(5, 6, 7), wins={6: 6})
    _, other, whole = run(monkeypatch, execute_steps=4, seeds=(5, 6, 7))
    assert len(worlds[6].actions) == 6
    assert worlds[6].images == 3 < whole[6].images
    for seed in (5, 7):
        np.testing.assert_array_equal(worlds[seed].actions, whole[seed].actions)
        assert worlds[seed].images == whole[seed].images
    for k, (frame, with_it) in enumerate(zip(script.frames, other.frames, strict=True)):
        assert torch.equal(frame.seen.images[[0, 2]], with_it.seen.images[[0, 2]])
        assert torch.equal(frame.seen.state[[0, 2]], with_it.seen.state[[0, 2]])
        last = script.frames[min(k, 1)].seen  # of the last frame before its end
        assert torch.equal(frame.seen.state[1], last.state[1])


def test_the_best_of_a_sub_goal_is_the_largest_of_the_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([0.1, 0.7, 0.3])
    monkeypatch.setattr(PushTWorld, "step", lambda self, action: StepResult(0.0, False, {"coverage": next(seen)}))
    outcome, _, _ = run(monkeypatch, max_steps=3)
    assert outcome.episodes[0].best == {"coverage": 0.7}


def test_each_seed_has_its_own_stretch_of_the_noise_tape_whatever_is_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, script, _ = run(monkeypatch, execute_steps=4, max_steps=8, seeds=(4, 2))
    for k, tapes in enumerate(script.executors[0].tapes):
        expected = [noise_tape((3,), NOISE_SEED, seed * REQUESTS_PER_EPISODE + k) for seed in (4, 2)]
        assert torch.equal(tapes, torch.stack(expected))
    assert len(script.executors[0].tapes) == 2


def test_an_episode_never_reaches_into_the_next_seeds_tape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_runners, "REQUESTS_PER_EPISODE", 3)
    made = episode_runners.EpisodeRunners(cast(Checkpoint, scripted_checkpoint()), Task(max_steps=3), [0], False, DT)
    assert made.noise((3,), 2).shape == (1, 3)
    with pytest.raises(LockstepError, match="more than 3 requests"):
        made.noise((3,), 3)


@pytest.mark.parametrize("max_steps", [0, REQUESTS_PER_EPISODE + 1])
def test_steps_beyond_the_noise_tape_are_refused(monkeypatch: pytest.MonkeyPatch, max_steps: int) -> None:
    with pytest.raises(ValueError, match=f"in \\[1, 1000\\], got {max_steps}"):
        run(monkeypatch, max_steps=max_steps)


@pytest.mark.parametrize("execute_steps", [0, -1, HORIZON + 1])
def test_execute_steps_beyond_the_horizon_are_refused(execute_steps: int) -> None:
    with pytest.raises(ValueError, match=f"in \\[1, 16\\], got {execute_steps}"):
        run_episodes(cast(Checkpoint, scripted_checkpoint()), "quick", [0], execute_steps)


def test_run_episodes_plays_group_by_group_and_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[int] = []
    Tables(monkeypatch)
    Script().install(monkeypatch, 2)
    episodes = run_episodes(
        cast(Checkpoint, scripted_checkpoint()),
        "quick",
        [4, 2, 7, 9],
        8,
        max_steps=2,
        report=lambda done: said.append(len(done)),
        batch=2,
    )
    assert [episode.seed for episode in episodes] == [2, 4, 7, 9]
    assert said == [0, 0, 2, 2, 2, 4]


def test_groups_are_as_large_as_said_and_leave_no_seed_out() -> None:
    assert list(grouped(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(grouped([], 2)) == []
    with pytest.raises(ValueError, match="batch must be at least 1, got 0"):
        list(grouped([1], 0))


def swapped() -> Contract:
    contract = PUSHT.contract
    return Contract(contract.channels[::-1], contract.dt_ms)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"contract": swapped()}, "the world's channels are"),
        ({"contract": Contract(PUSHT.contract.channels, 50)}, "the world's step is 100 ms, the policy's 50"),
    ],
)
def test_a_policy_for_another_world_is_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(LockstepError, match=said):
        run(monkeypatch, **changes)


def test_joints_reach_the_policy_by_name_in_its_own_order(monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateSpec(("agent_y", "agent_x"), "none")
    _, script, worlds = run(monkeypatch, max_steps=1, spec=replace(PUSHT.spec, state=state))
    np.testing.assert_allclose(script.frames[0].seen.state[0, -1], worlds[3].agents[0][::-1], rtol=1e-6)
    assert script.frames[0].seen.origin.reference is not None
    np.testing.assert_array_equal(script.frames[0].seen.origin.reference[0], worlds[3].agents[0])


def test_a_joint_that_the_world_has_not_is_a_fault_of_the_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateSpec(("agent_x", "elbow"), "none")
    with pytest.raises(LockstepError, match="elbow"):
        run(monkeypatch, spec=replace(PUSHT.spec, state=state))


def test_a_chunk_that_the_actuator_would_refuse_is_a_fault_of_the_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LockstepError, match=r"chunk refused.*agent_y"):
        run(monkeypatch, script=Script(bad_row=(2, 1, np.nan)))


def test_the_executor_is_closed_when_lockstep_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(bad_row=(2, 1, np.nan))
    with pytest.raises(LockstepError):
        run(monkeypatch, script=script)
    assert script.executors[0].closed


def test_a_waiting_table_stands_still_until_its_first_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the live table does. Without it, the same two steps are holds."""
    for waits in (True, False):
        tables, script = Tables(monkeypatch), Script().install(monkeypatch, 1)
        task = Task(max_steps=8, waits=waits)
        checkpoint = cast(Checkpoint, scripted_checkpoint())
        outcome = play(checkpoint, Plan(mode="par", concurrency=2), [3], task, Paused(2))
        world = tables.take()[3]
        episode = outcome.episodes[0]
        assert len(world.actions) == episode.steps == 8
        held = [bool(np.abs(action - world.agents[0]).max() < 1e-9) for action in world.actions]
        assert held == [not waits] * 2 + [False] * 6
        assert episode.holds == (0 if waits else 2)
        assert script.frames[0].ended_ns == script.frames[0].began_ns + 2 * DT


def test_torch_runs_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[int] = []
    monkeypatch.setattr(lockstep.torch, "set_num_threads", said.append)
    Tables(monkeypatch)
    Script().install(monkeypatch, 1)
    run_episodes(cast(Checkpoint, scripted_checkpoint()), "quick", [0], 8, max_steps=1)
    assert said == [1]
