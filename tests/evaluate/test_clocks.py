"""Rule 12 of docs/pipeline.md: time in lockstep, paused and charged, on scripted executors whose every action is known.

Tests that name the rule prove it; the others hold what comes with it.

Guards: a chunk used earlier than it was there, or aligned to another observation than its own; par's requests
bunched, lost or made up; a worker that sees what has not happened yet; an order at one instant that is left to chance.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from auras_ros.evaluate.charged import Charged, duration_key
from auras_ros.evaluate.episode_runner import Task
from auras_ros.evaluate.lockstep import Timing, play
from auras_ros.evaluate.outcome import ModeResult
from auras_ros.evaluate.paused import Paused
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.checkpoint import Checkpoint
from tests.evaluate.tables import DT, MS, Recorder, Script, Tables, indices, scripted_checkpoint

START = DT  # the first tick


def run(
    monkeypatch: pytest.MonkeyPatch, plan: Plan, timing: Timing, max_steps: int, plain: bool = False
) -> tuple[ModeResult, Script, Recorder]:
    tables, script = Tables(monkeypatch), Script().install(monkeypatch, 1)
    checkpoint = cast(Checkpoint, scripted_checkpoint())
    outcome = play(checkpoint, plan, [3], Task(max_steps=max_steps), timing, plain)
    return outcome, script, tables.take()[3]


def charged(**milliseconds: float) -> Charged:
    return Charged({key: round(ms * MS) for key, ms in milliseconds.items()})


def times(script: Script) -> list[tuple[int, int, int]]:
    """Of each frame: begin, origin of what it saw, end; ms since the first tick."""
    return [
        ((f.began_ns - START) // MS, (f.seen.origin.mono_ns - START) // MS, (f.ended_ns - START) // MS)
        for f in script.frames
        if f.ended_ns >= 0
    ]


def test_rule_12_charged_a_seq_frame_costs_what_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 12: 360 ms. The first chunk comes between ticks 3 and 4 and starts at action 4, four steps after it saw."""
    outcome, script, world = run(monkeypatch, Plan(), charged(seq=360), 12)
    assert times(script) == [(0, 0, 360), (360, 300, 720), (720, 700, 1080)]
    assert indices(world, script.frames) == [
        *[None] * 4,
        *[(0, i) for i in (4, 5, 6, 7)],
        *[(1, i) for i in (5, 6, 7)],
        (2, 4),
    ]
    assert outcome.episodes[0].holds == 4
    assert outcome.staleness == [0, 0, 0, 0, 2, 2, 2, 2]
    assert outcome.age_ns == [(0 + 60 + 20) * MS]  # when generation began; the frame after would begin at 1080
    assert outcome.episodes[0].chunks == 3
    assert outcome.episodes[0].frames == 4


def test_a_frame_shorter_than_a_step_waits_for_something_new(monkeypatch: pytest.MonkeyPatch) -> None:
    _, script, world = run(monkeypatch, Plan(), charged(seq=30), 4)
    assert times(script) == [(0, 0, 30), (100, 100, 130), (200, 200, 230)]
    assert indices(world, script.frames) == [None, (0, 1), (1, 1), (2, 1)]


def test_rule_12_charged_what_is_there_at_a_tick_is_used_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 12: frames of two whole steps end on ticks; the order there is observation, ends, beginnings, the world."""
    _, script, world = run(monkeypatch, Plan(), charged(seq=200), 7)
    assert times(script) == [(0, 0, 200), (200, 200, 400), (400, 400, 600)]
    assert indices(world, script.frames) == [None, None, (0, 2), (0, 3), (1, 2), (1, 3), (2, 2)]


def test_frames_that_cost_nothing_are_used_in_the_tick_that_they_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    _, script, world = run(monkeypatch, Plan(), charged(seq=0), 5)
    assert times(script) == [(100 * k, 100 * k, 100 * k) for k in range(5)]
    assert indices(world, script.frames) == [(k, 0) for k in range(5)]


def test_a_frame_period_is_a_grid_and_missed_ticks_are_not_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 1 of docs/pipeline.md, in virtual time."""
    _, script, _ = run(monkeypatch, Plan(frame_period_ms=250), charged(seq=100), 11)
    assert [begin for begin, _, _ in times(script)] == [0, 250, 500, 750]
    _, script, _ = run(monkeypatch, Plan(frame_period_ms=250), charged(seq=300), 16)
    assert [begin for begin, _, _ in times(script)] == [0, 500, 1000]


def test_rule_12_charged_par_spaces_its_requests_evenly_over_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 12, Auras 6.1: three workers of 600 ms: a request every 200 ms, each with what was there when it began."""
    plan = Plan(mode="par", concurrency=3)
    outcome, script, world = run(monkeypatch, plan, charged(par=600), 13)
    assert times(script) == [(200 * k, 200 * k, 600 + 200 * k) for k in range(4)]
    assert [frame.worker for frame in script.frames[:4]] == ["worker0", "worker1", "worker2", "worker0"]
    late = [(k, i) for k in range(3) for i in (6, 7)]
    assert indices(world, script.frames) == [*[None] * 6, *late, (3, 6)]
    assert outcome.staleness == [0] * 6 + [4, 3]


def test_par_keeps_an_interval_that_falls_between_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    _, script, _ = run(monkeypatch, Plan(mode="par", concurrency=2), charged(par=500), 11)
    assert times(script) == [(0, 0, 500), (250, 200, 750), (500, 500, 1000)]


def test_a_plan_may_set_pars_interval_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(mode="par", concurrency=2, frame_period_ms=400)
    _, script, _ = run(monkeypatch, plan, charged(par=500), 14)
    assert [begin for begin, _, _ in times(script)] == [0, 400, 800]


def test_plain_par_runs_a_chunk_from_its_first_action_whenever_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the paper. Its staleness is counted from the observation that it really saw."""
    plan = Plan(mode="par", concurrency=3)
    outcome, script, world = run(monkeypatch, plan, charged(par=560), 12, plain=True)
    assert [end for _, _, end in times(script)] == [560, 560 + 560 // 3, 560 + 1120 // 3, 1120][: len(times(script))]
    assert indices(world, script.frames) == [*[None] * 6, (0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    saw = [origin for _, origin, _ in times(script)]
    acted = [(600, 0), (700, 0), (800, 1), (900, 1), (1000, 2), (1100, 2)]
    expected = np.bincount([(at - saw[k]) // 100 for at, k in acted])
    assert outcome.staleness == expected.tolist()


@pytest.mark.parametrize("frame_steps", [1, 3])
def test_rule_12_paused_the_world_waits_for_each_frame(monkeypatch: pytest.MonkeyPatch, frame_steps: int) -> None:
    """Rule 12: a frame takes no time, then the world moves its whole steps, all with that frame's chunk."""
    outcome, script, world = run(monkeypatch, Plan(), Paused(frame_steps), 4 * frame_steps)
    assert times(script) == [(100 * frame_steps * k,) * 3 for k in range(4)]
    assert indices(world, script.frames) == [(k, i) for k in range(4) for i in range(frame_steps)]
    assert outcome.episodes[0].holds == 0
    assert outcome.episodes[0].frames == outcome.episodes[0].chunks == 4
    assert outcome.age_ns == [0]


@pytest.mark.parametrize(("workers", "frame_steps"), [(1, 4), (2, 3), (3, 2), (4, 1)])
def test_rule_12_paused_par_admits_one_request_a_frame_and_each_comes_workers_less_one_late(
    monkeypatch: pytest.MonkeyPatch, workers: int, frame_steps: int
) -> None:
    """Rule 12: a request takes as many frames as there are workers, and one begins in each."""
    plan, steps = Plan(mode="par", concurrency=workers), 6 * frame_steps
    late = (workers - 1) * frame_steps
    for plain in (False, True):
        outcome, script, world = run(monkeypatch, plan, Paused(frame_steps), steps, plain)
        assert [begin for begin, _, _ in times(script)] == [100 * frame_steps * k for k in range(7 - workers)]
        first = 0 if plain else late
        acted = [(k, first + i) for k in range(7 - workers) for i in range(frame_steps)]
        assert indices(world, script.frames) == [*[None] * late, *acted]
        assert outcome.episodes[0].holds == late
        assert outcome.episodes[0].frames == 6
        assert [age for age, count in enumerate(outcome.staleness) if count] == list(range(late, late + frame_steps))


def test_a_chunk_that_comes_after_its_last_action_is_counted_and_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, script, world = run(monkeypatch, Plan(mode="par", concurrency=5), Paused(4), 24)
    assert indices(world, script.frames) == [None] * 24
    assert outcome.episodes[0].chunks == outcome.episodes[0].refused == 2
    assert outcome.episodes[0].holds == 24
    assert outcome.staleness == []


def test_a_used_up_chunk_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, script, world = run(monkeypatch, Plan(), charged(seq=1450), 31)
    assert indices(world, script.frames) == [*[None] * 15, *[(0, 15)] * 14, *[(1, 15)] * 2]
    assert outcome.episodes[0].holds == 15 + 14


def test_images_are_drawn_only_where_a_frame_can_see_them(monkeypatch: pytest.MonkeyPatch) -> None:
    _, script, world = run(monkeypatch, Plan(), Paused(5), 20)
    drawn = 1 + 2 * 3 + 1  # the first stands for its history; then a frame's own and the one before
    assert world.images == drawn
    _, script, world = run(monkeypatch, Plan(), charged(seq=500), 20)
    assert times(script)[1][0] == 500
    assert world.images == drawn


def test_an_observation_kept_over_a_tick_keeps_the_rows_of_episodes_that_ended_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Par's second request begins 50 ms after the tick that ends seed 4, with the observation of that tick."""
    tables, script = Tables(monkeypatch, wins={4: 3}), Script().install(monkeypatch, 2)
    checkpoint = cast(Checkpoint, scripted_checkpoint())
    play(checkpoint, Plan(mode="par", concurrency=2), [4, 5], Task(max_steps=9), charged(par=500))
    assert times(script)[:2] == [(0, 0, 500), (250, 200, 750)]
    assert [len(frame.seen.images) for frame in script.frames[:2]] == [2, 2]
    reference = script.frames[1].seen.origin.reference
    assert reference is not None
    worlds = tables.take()
    np.testing.assert_array_equal(reference, [worlds[4].agents[2], worlds[5].agents[2]])


def test_with_jitter_each_frame_lasts_within_its_share_and_a_seed_draws_the_same_for_every_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lasted = []
    for seed, period_ms in ((0, 0.0), (0, 300.0), (1, 0.0)):
        timing = Charged({"seq": 200 * MS}, 0.5, seed)
        _, script, _ = run(monkeypatch, Plan(frame_period_ms=period_ms), timing, 60)
        lasted.append([frame.ended_ns - frame.began_ns for frame in script.frames if frame.ended_ns >= 0])
    one, grid, other = lasted
    assert len(grid) >= 15
    assert grid[:15] == one[:15]
    assert other[:15] != one[:15]
    assert 100 * MS <= min(one) < 140 * MS
    assert 260 * MS < max(one) <= 300 * MS
    assert 170 * MS < np.mean(one) < 230 * MS


def test_workers_draw_each_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    timing = Charged({"par": 200 * MS}, 0.5)
    _, script, _ = run(monkeypatch, Plan(mode="par", concurrency=2), timing, 20)
    lasted = {
        name: [f.ended_ns - f.began_ns for f in script.frames if f.worker == name and f.ended_ns >= 0]
        for name in ("worker0", "worker1")
    }
    assert set(lasted["worker0"]).isdisjoint(lasted["worker1"])


@pytest.mark.parametrize("plan", ["quick", "quick,frame_period_ms=400", "quick,mode=par,concurrency=2"])
def test_a_latency_other_than_expected_changes_when_a_chunk_is_used_and_not_which_of_its_actions(
    monkeypatch: pytest.MonkeyPatch, plan: str
) -> None:
    """Frames of 20 to 380 ms, none of them expected: every action is that of the very step in which it is executed,
    counted from what its chunk saw."""
    timing = Charged({"seq": 200 * MS, "par": 200 * MS}, 0.9, 3)
    _, script, world = run(monkeypatch, Plan.parse(plan), timing, 60)
    saw = [(frame.seen.origin.mono_ns - START) // DT for frame in script.frames]
    used = [(step, at) for step, at in enumerate(indices(world, script.frames)) if at is not None]
    assert all(index == step - saw[k] for step, (k, index) in used)
    first = {k: step - saw[k] for step, (k, _) in reversed(used)}
    assert len(set(first.values())) >= 3  # chunks were begun at several of their actions
    ends = {k: -(-(frame.ended_ns - START) // DT) for k, frame in enumerate(script.frames) if frame.ended_ns >= 0}
    assert all(saw[k] + index >= ends[k] for k, index in first.items())


@pytest.mark.parametrize("jitter", [-0.1, 1.1, float("nan")])
def test_a_jitter_that_cannot_be_is_refused(jitter: float) -> None:
    with pytest.raises(ValueError, match="jitter: must be in"):
        Charged({"seq": 1}, jitter)


def test_durations_are_needed_and_never_negative() -> None:
    assert (duration_key("par", "worker1"), duration_key("dec", "generate")) == ("par", "dec/generate")
    with pytest.raises(ValueError, match="durations: seq: must not be negative, got -1 ns"):
        Charged({"seq": -1})
    with pytest.raises(ValueError, match="frame_steps must be at least 1, got 0"):
        Paused(0)


def test_a_missing_duration_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="durations: seq is missing; given: par"):
        run(monkeypatch, Plan(), charged(par=5), 3)
