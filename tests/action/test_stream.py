"""The action stream: alignment, seams, values and rates from offer to command."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auras_ros.action import ChunkRefusal, ContractError, SafetyState
from tests.action.drive import refusal, run

MS = 1_000_000
STEP = 100 * MS
UP = list(range(8))  # a chunk whose value is its index


def test_in_lockstep_a_fresh_chunk_starts_at_its_index_zero(make: SimpleNamespace) -> None:
    stream = make.stream()
    stream.arm(0)
    verdict = stream.offer(make.chunk(UP, 0), 0)
    assert (verdict.ok, verdict.index) == (True, 0)
    assert run(stream, 0, STEP, 2 * STEP) == [0, 1, 2]


def test_a_late_chunk_starts_where_time_is(make: SimpleNamespace) -> None:
    """Reliability: actions whose time has passed are never executed."""
    stream = make.armed()
    run(stream, STEP, 2 * STEP)
    verdict = stream.offer(make.chunk(UP, 0), 3 * STEP)
    assert verdict.index == 3
    command = stream.tick(3 * STEP)
    assert (command.values[0], command.index, command.age_ns, command.source) == (3, 3, 3 * STEP, "chunk")
    assert command.provenance.origin_mono_ns == 0


def test_ticks_finer_than_steps_keep_an_action_for_its_step(make: SimpleNamespace) -> None:
    stream = make.armed(tick_ms=50)
    stream.offer(make.chunk(UP, 0), 1)
    assert run(stream, *range(50 * MS, 301 * MS, 50 * MS)) == [1, 1, 2, 2, 3, 3]


def test_missed_ticks_are_counted_never_made_up(make: SimpleNamespace) -> None:
    stream = make.armed()
    stream.offer(make.chunk(UP, 0), 1)
    assert run(stream, STEP, 4 * STEP, 5 * STEP) == [1, 4, 5]
    counters = stream.counters()
    assert (counters["late_ticks"], counters["missed_ticks"]) == (1, 2)


def test_a_newer_chunk_replaces_and_the_gripper_switches(make: SimpleNamespace) -> None:
    rules = make.contract(make.channel("g", "gripper"))
    stream = make.armed(rules, blend_ms=500)
    stream.offer(make.chunk(UP, 0), 1)
    run(stream, STEP)
    stream.offer(make.chunk([50] * 8, STEP), STEP + 1)
    assert run(stream, 2 * STEP) == [50]


def test_a_seam_blends_into_the_new_chunk_along_the_olds_own_future(make: SimpleNamespace) -> None:
    stream = make.armed(blend_ms=300)
    stream.offer(make.chunk(UP, 0), 1)
    run(stream, STEP)
    stream.offer(make.chunk([40] * 8, STEP), STEP + 1)
    blended = [0.75 * 2 + 0.25 * 40, 0.5 * 3 + 0.5 * 40, 0.25 * 4 + 0.75 * 40, 40]
    assert run(stream, *range(2 * STEP, 6 * STEP, STEP)) == pytest.approx(blended)


def test_a_seam_within_a_seam_stays_continuous(make: SimpleNamespace) -> None:
    stream = make.armed(blend_ms=300, current=[0.0])
    values = [0.0]
    for k, level in enumerate([100, -100, 100, -100, 100], start=1):
        stream.offer(make.chunk([level] * 20, (k - 1) * STEP), k * STEP)
        values += run(stream, k * STEP)
    steps = np.abs(np.diff(values))
    assert steps.max() <= 50 + 1e-9  # a quarter of the largest distance, 200
    assert steps.max() > 20


def test_delta_previous_loses_and_doubles_nothing_over_a_switch(make: SimpleNamespace) -> None:
    rules = make.contract(make.channel(kind="delta_previous"))
    stream = make.armed(rules)
    stream.offer(make.chunk([1, 2, 3, 4], 0), 1)
    assert run(stream, STEP, 2 * STEP) == [3, 3]  # path 1, 3, 6, 10: index 1, then 2
    # The new chunk saw the robot at 1 s / 10, when 0 had been executed; since then 6.
    stream.offer(make.chunk([10, 10, 10, 10], STEP), 2 * STEP + 1)
    assert run(stream, 3 * STEP) == [30 - 6]


def test_a_limited_increment_carries_its_remainder(make: SimpleNamespace) -> None:
    rules = make.contract(make.channel(kind="delta_previous", max_rate=100.0))  # 5 a tick of 50 ms
    stream = make.armed(rules, tick_ms=50)
    stream.offer(make.chunk([0, 12, 0, 0], 0), 1)
    times = range(50 * MS, 251 * MS, 50 * MS)
    commands = [stream.tick(now_ns) for now_ns in times]
    assert [float(c.values[0]) for c in commands] == [5, 5, 2, 0, 0]
    assert [c.limited for c in commands] == [("x",), ("x",), (), (), ()]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 104.1, -104.1])
def test_a_bad_value_refuses_the_chunk_and_holds_at_the_next_tick(make: SimpleNamespace, bad: float) -> None:
    """Reliability: never published; hold within 2T."""
    stream = make.armed(hold_after_ms=1000)
    stream.offer(make.chunk(UP, 0), 1)
    run(stream, STEP)
    poisoned = make.chunk([2, 3, 4, bad], STEP)
    verdict = stream.offer(poisoned, STEP + 1)
    assert refusal(verdict) in (ChunkRefusal.NON_FINITE, ChunkRefusal.OVER_LIMIT)
    assert "step 3, channel 'x'" in verdict.detail
    command = stream.tick(2 * STEP)
    assert (command.state, command.source, command.values[0]) == (SafetyState.HOLDING, "hold", 1)
    assert verdict.detail in stream.reason
    assert stream.offer(make.chunk(UP, STEP + 1), 2 * STEP + 1).ok
    assert stream.tick(3 * STEP).state is SafetyState.ARMED


@pytest.mark.parametrize("bad", [np.nan, 1e6])
def test_bad_values_whose_time_has_passed_do_not_matter(make: SimpleNamespace, bad: float) -> None:
    stream = make.armed()
    run(stream, STEP, 2 * STEP)
    assert stream.offer(make.chunk([bad, bad, bad, 3, 4], 0), 2 * STEP + 1).ok
    assert run(stream, 3 * STEP) == [3]


def test_of_increments_every_step_matters_and_of_a_line_the_step_before(make: SimpleNamespace) -> None:
    stream = make.armed(make.contract(make.channel(kind="delta_previous")))
    run(stream, STEP, 2 * STEP)
    assert refusal(stream.offer(make.chunk([np.nan, 1, 1, 3, 4], 0), 2 * STEP + 1)) is ChunkRefusal.NON_FINITE
    line = make.armed(make.contract(make.channel(interpolation="linear")), tick_ms=50)
    run(line, 50 * MS, 100 * MS)
    assert refusal(line.offer(make.chunk([0, np.nan, 2, 3], 0), 101 * MS)) is ChunkRefusal.NON_FINITE
    assert line.offer(make.chunk([np.nan, 1, 2, 3], 0), 101 * MS).ok
    assert run(line, 150 * MS, 200 * MS) == [1.5, 2]


def test_a_hair_beyond_is_clipped_and_counted(make: SimpleNamespace) -> None:
    stream = make.armed()
    verdict = stream.offer(make.chunk([0, 103, 101, 0], 0), 1)
    assert (verdict.ok, verdict.clipped) == (True, 2)
    assert stream.counters()["clipped_values"] == 2
    assert run(stream, STEP, 2 * STEP) == [100, 100]


def test_delta_origin_is_limited_as_the_position_it_becomes(make: SimpleNamespace) -> None:
    stream = make.armed(make.contract(make.channel(kind="delta_origin")))
    verdict = stream.offer(make.chunk([0, 60], 0, reference=[60.0]), 1)
    assert refusal(verdict) is ChunkRefusal.OVER_LIMIT


def test_rates_hold_from_the_measured_position_on(make: SimpleNamespace) -> None:
    rules = make.contract(make.channel(max_rate=100.0))  # 10 a step
    stream = make.armed(rules, current=[-50.0])
    stream.offer(make.chunk([0] * 20, 0), 1)
    assert run(stream, STEP, 2 * STEP) == [-40, -30]
    assert stream.counters()["limited_ticks"] == 2
    free = make.armed(rules)
    free.offer(make.chunk([7] * 20, 0), 1)
    assert run(free, STEP) == [7], "nothing is known to keep a rate from"


def test_the_horizon_is_checked_like_commands(make: SimpleNamespace) -> None:
    rules = make.contract(make.channel("p", max_rate=100.0), make.channel("d", "delta_previous"), make.channel("f"))
    stream = make.armed(rules, current=[0.0, np.nan, np.nan])
    assert stream.ahead(1) is None
    stream.offer(make.chunk([[50, 1, 5], [50, 2, 6], [50, 3, 7], [50, 4, 8]], 0), 1)
    stream.tick(STEP)
    ahead = stream.ahead(STEP + 1).checked()
    assert ahead.index == 2
    assert ahead.values.tolist() == [[20, 3, 7], [30, 4, 8]]
    stream.stop(STEP + 2)
    assert stream.ahead(STEP + 3) is None


@pytest.mark.parametrize("seam", ["blend", "ensemble"])
def test_what_is_ahead_is_a_copy_that_later_chunks_and_ticks_leave_as_it_was(make: SimpleNamespace, seam: str) -> None:
    """It is checked in another thread than the ticks', while they go on."""
    rules = make.contract(make.channel(max_rate=100.0, max_acceleration=200.0))
    stream = make.armed(rules, current=[0.0], seam=seam)
    stream.offer(make.chunk([50] * 8, 0), 1)
    stream.tick(STEP)
    early, late = stream.ahead(STEP + 1), stream.ahead(STEP + 1)
    expected = early.checked()
    stream.offer(make.chunk([-50] * 8, STEP), STEP + 1)
    run(stream, 2 * STEP, 3 * STEP)
    stream.disarm(3 * STEP + 1)
    run(stream, 4 * STEP)
    again = late.checked()
    assert (again.index, again.values.tolist()) == (expected.index, expected.values.tolist())
    assert again.values.tolist() == late.checked().values.tolist()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tick_ns": 0}, "tick_ns"),
        ({"tick_ns": STEP + 1}, "tick_ns"),
        ({"tick_ns": 1e6}, "tick_ns"),
        ({"blend_ms": -1}, "blend_ms"),
        ({"blend_ms": 2001}, "blend_ms"),
        ({"tick_ns": 1, "max_chunk_age_ms": 1}, "max_chunk_age_ms"),
        ({"hold_after_ms": float("nan")}, "hold_after_ms"),
        ({"max_chunk_age_ms": float("inf")}, "max_chunk_age_ms"),
    ],
)
def test_options_are_checked_by_name(make: SimpleNamespace, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ContractError, match=text):
        make.stream(**options)


def test_offers_and_ticks_from_two_threads_do_not_meet(make: SimpleNamespace) -> None:
    stream = make.armed(tick_ms=1, current=[0.0])
    latest = [0]
    done = threading.Event()
    refused: list[Any] = []
    # this thread may be held up between its two looks at the time, even for a whole horizon of virtual steps
    overtaken = {ChunkRefusal.UNKNOWN_ORIGIN, ChunkRefusal.PAST}

    def offer() -> None:
        request = 0
        while not done.is_set():
            request += 1
            verdict = stream.offer(make.chunk(UP, latest[0], request=request), latest[0])
            if not verdict.ok and verdict.reason not in overtaken:
                refused.append(verdict)

    thread = threading.Thread(target=offer)
    thread.start()
    try:
        for k in range(1, 3000):
            latest[0] = k * MS
            command = stream.tick(k * MS)
            assert command.publish
    finally:
        done.set()
        thread.join()
    assert refused == []
    assert stream.counters()["accepted"] > 0
