"""When nothing is valid, and who may move the robot: holding, arming, stopping, disarming."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auras_ros.action import ChunkRefusal, Command, SafetyState
from tests.action.drive import refusal, run

MS = 1_000_000
STEP = 100 * MS
UP = list(range(8))  # a chunk whose value is its index


def test_without_a_position_nothing_is_published_until_a_chunk_comes(make: SimpleNamespace) -> None:
    stream = make.armed()
    assert run(stream, STEP) == [None]
    assert stream.state is SafetyState.HOLDING
    assert stream.reason == "awaiting a chunk"
    stream.offer(make.chunk(UP, STEP), STEP + 1)
    assert stream.tick(2 * STEP).state is SafetyState.ARMED


def test_with_a_measured_position_it_holds_that(make: SimpleNamespace) -> None:
    stream = make.armed(current=[12.0])
    assert run(stream, STEP) == [12]


def test_armed_to_stay_the_first_command_is_the_measured_position_though_a_chunk_has_come(
    make: SimpleNamespace,
) -> None:
    """No limit but that keeps a channel without max_rate from jumping. Rates and increments are the chunk's at once."""
    channels = [make.channel("x"), make.channel("g", "gripper"), make.channel("v", "velocity")]
    stream = make.stream(make.contract(*channels))
    stream.tick(0)
    assert stream.arm(0, [12.0, 3.0, np.nan], stay=True).ok
    stream.offer(make.chunk([[50, 9, 5]] * 4, 0), 1)
    first, second = stream.tick(STEP), stream.tick(2 * STEP)
    assert (first.values.tolist(), first.state) == ([12, 3, 5], SafetyState.ARMED)
    assert second.values.tolist() == [50, 9, 5]


def test_armed_to_stay_a_hold_value_waits_for_the_first_command(make: SimpleNamespace) -> None:
    stream = make.stream(make.contract(make.channel(hold="value", hold_value=-5.0)))
    stream.tick(0)
    assert stream.arm(0, [12.0], stay=True).ok
    assert run(stream, STEP, 2 * STEP) == [12, -5]


def test_armed_to_stay_an_unknown_position_is_the_chunks(make: SimpleNamespace) -> None:
    stream = make.stream(make.contract(make.channel("x"), make.channel("g", "gripper")))
    stream.tick(0)
    assert stream.arm(0, [12.0, np.nan], stay=True).ok
    assert not stream.tick(STEP).publish
    stream.offer(make.chunk([[50, 9]] * 4, STEP), STEP + 1)
    assert stream.tick(2 * STEP).values.tolist() == [12, 9]
    assert stream.tick(3 * STEP).values.tolist() == [50, 9]


def test_armed_to_stay_while_commands_are_sent_goes_on_from_the_last_one(make: SimpleNamespace) -> None:
    stream = make.armed(current=[12.0])
    assert run(stream, STEP) == [12]
    assert stream.arm(STEP, [40.0], stay=True).ok
    stream.offer(make.chunk(UP, STEP), STEP + 1)
    assert run(stream, 2 * STEP) == [1]


def test_after_the_horizon_the_last_command_stays_and_then_the_policy_holds(make: SimpleNamespace) -> None:
    rules = make.contract(make.channel(hold="value", hold_value=-5.0))
    stream = make.armed(rules, hold_after_ms=200)
    stream.offer(make.chunk([1, 2], 0), 1)
    commands = [stream.tick(k * STEP) for k in range(1, 6)]
    assert [float(c.values[0]) for c in commands] == [2, 2, 2, -5, -5]
    assert [c.source for c in commands] == ["chunk", "hold", "hold", "hold", "hold"]
    states = [SafetyState.ARMED] * 3 + [SafetyState.HOLDING] * 2
    assert [c.state for c in commands] == states
    assert stream.reason == "the chunk's horizon is used up"
    assert stream.counters()["hold_ticks"] == 4


def test_a_chunk_grows_too_old_while_it_is_executed(make: SimpleNamespace) -> None:
    stream = make.armed(max_chunk_age_ms=250)
    stream.offer(make.chunk(list(range(20)), 0), 1)
    assert run(stream, STEP, 2 * STEP, 3 * STEP) == [1, 2, 2]
    assert stream.state is SafetyState.HOLDING
    assert "older than 250 ms" in stream.reason


def test_velocities_and_increments_hold_at_rest(make: SimpleNamespace) -> None:
    rules = make.contract(make.channel("v", "velocity"), make.channel("d", "delta_previous"))
    stream = make.armed(rules)
    stream.offer(make.chunk([[5, 1], [5, 1]], 0), 1)
    stream.tick(STEP)
    assert stream.tick(2 * STEP).values.tolist() == [0, 0]


def test_during_the_grace_time_increments_stop_at_once(make: SimpleNamespace) -> None:
    stream = make.armed(make.contract(make.channel(kind="delta_previous")), hold_after_ms=1000)
    stream.offer(make.chunk([0, 1], 0), 1)
    assert run(stream, STEP, 2 * STEP, 3 * STEP) == [1, 0, 0]


def test_a_lost_agent_holds_and_only_its_own_session_resumes(make: SimpleNamespace) -> None:
    stream = make.armed(hold_after_ms=1000)
    stream.offer(make.chunk(UP, 0), 1)
    run(stream, STEP)
    stream.hold(STEP + 1, "liveliness lost")
    command = stream.tick(2 * STEP)
    assert (command.state, float(command.values[0])) == (SafetyState.HOLDING, 1)
    assert stream.reason == "liveliness lost"
    stream.hold(2 * STEP + 1, "again")
    assert stream.reason == "liveliness lost"
    assert refusal(stream.offer(make.chunk(UP, 0), 2 * STEP + 2)) is ChunkRefusal.DUPLICATE
    assert stream.offer(make.chunk(UP, STEP), 2 * STEP + 2).ok
    assert run(stream, 3 * STEP) == [2]
    states = [event.state.value for event in stream.drain_events()]
    assert states == ["holding", "armed", "holding", "armed"]


def test_disarmed_nothing_is_published_and_chunks_are_refused(make: SimpleNamespace) -> None:
    stream = make.stream()
    command = stream.tick(0)
    assert (command.publish, command.source, command.state) == (False, "none", SafetyState.DISARMED)
    assert np.isnan(command.values).all()
    assert refusal(stream.offer(make.chunk(UP, 0), 1)) is ChunkRefusal.DISARMED


def final(make: SimpleNamespace, leave: str, **rules: Any) -> list[Command]:
    stream = make.armed(make.contract(make.channel(**rules)))
    stream.offer(make.chunk([50] * 8, 0), 1)
    stream.tick(STEP)
    if leave == "holding":
        stream.hold(STEP + 1)
    if leave == "stopped":
        stream.stop(STEP + 1)
    stream.disarm(STEP + 2)
    stream.disarm(STEP + 3)
    return [stream.tick(k * STEP) for k in range(2, 6)]


@pytest.mark.parametrize("leave", ["armed", "holding", "stopped"])
def test_leaving_for_disarmed_publishes_one_last_hold(make: SimpleNamespace, leave: str) -> None:
    commands = final(make, leave)
    assert [c.publish for c in commands] == [True, False, False, False]
    assert (commands[0].values[0], commands[0].source) == (50, "hold")
    assert all(c.state is SafetyState.DISARMED for c in commands)


def test_the_last_velocity_on_the_wire_is_zero_whatever_the_acceleration(make: SimpleNamespace) -> None:
    commands = final(make, "armed", kind="velocity", max_rate=100.0)
    assert commands[0].values.tolist() == [0]


def test_a_last_hold_value_keeps_its_rate(make: SimpleNamespace) -> None:
    commands = final(make, "armed", hold="value", hold_value=0.0, max_rate=600.0)
    assert commands[0].values.tolist() == [0]
    commands = final(make, "armed", hold="value", hold_value=0.0, max_rate=300.0)
    assert commands[0].values.tolist() == [20]  # 50 after one step without an anchor, then 30 towards 0


def test_stop_latches_until_disarm(make: SimpleNamespace) -> None:
    stream = make.armed()
    stream.offer(make.chunk(UP, 0), 1)
    run(stream, STEP)
    stream.stop(STEP + 1, "button")
    stream.stop(STEP + 2, "other button")
    command = stream.tick(2 * STEP)
    assert (command.publish, command.source, command.values[0]) == (True, "stop", 1)
    assert stream.reason == "button"
    assert refusal(stream.offer(make.chunk(UP, STEP), 2 * STEP + 1)) is ChunkRefusal.STOPPED
    verdict = stream.arm(2 * STEP + 2)
    assert refusal(verdict) is ChunkRefusal.STOPPED
    assert "button; disarm first" in verdict.detail
    assert run(stream, 3 * STEP) == [1]
    stream.disarm(3 * STEP + 1)
    assert run(stream, 4 * STEP, 5 * STEP) == [1, None]
    assert stream.arm(5 * STEP + 1).ok


def test_a_stop_from_disarmed_moves_nothing(make: SimpleNamespace) -> None:
    rules = make.contract(make.channel("v", "velocity"), make.channel("p", hold="value", hold_value=3.0))
    stream = make.stream(rules)
    stream.tick(0)
    stream.stop(1)
    assert run(stream, STEP) == [None]
    stream.disarm(STEP + 1)
    assert run(stream, 2 * STEP) == [None]
    assert refusal(stream.offer(make.chunk(np.zeros((4, 2)), 0), 2 * STEP)) is ChunkRefusal.DISARMED


def test_after_disarm_the_old_position_is_not_trusted(make: SimpleNamespace) -> None:
    stream = make.armed()
    stream.offer(make.chunk(UP, 0), 1)
    run(stream, STEP)
    stream.disarm(STEP + 1)
    run(stream, 2 * STEP)
    stream.arm(2 * STEP + 1)
    assert run(stream, 3 * STEP) == [None]


def test_disarm_and_arm_between_two_ticks_goes_on_holding(make: SimpleNamespace) -> None:
    stream = make.armed()
    stream.offer(make.chunk(UP, 0), 1)
    run(stream, STEP)
    stream.disarm(STEP + 1)
    stream.arm(STEP + 2)
    assert run(stream, 2 * STEP, 3 * STEP) == [1, 1]
    assert stream.state is SafetyState.HOLDING


def test_arming_twice_changes_nothing_and_a_bad_position_arms_nothing(make: SimpleNamespace) -> None:
    stream = make.stream()
    stream.tick(0)
    for bad in ([500.0], [0.0, 0.0], [np.inf]):
        assert refusal(stream.arm(1, bad)) is ChunkRefusal.BAD_POSITION
    assert stream.state is SafetyState.DISARMED
    stream.arm(1, [np.nan])
    stream.offer(make.chunk(UP, 0), 2)
    run(stream, STEP)
    assert stream.arm(STEP + 1, [90.0]).detail == "already armed"
    assert run(stream, 2 * STEP) == [2]


def test_a_clock_that_goes_back_disarms(make: SimpleNamespace) -> None:
    stream = make.armed()
    stream.offer(make.chunk(UP, 0), 1)
    run(stream, STEP)
    assert run(stream, 5, 5 + STEP) == [1, None]
    assert (stream.state, stream.reason) == (SafetyState.DISARMED, "the clock went back")
    assert stream.arm(5 + STEP).ok
    assert stream.offer(make.chunk(UP, 5 + STEP), 6 + STEP).ok


def test_a_clock_that_leaps_an_hour_holds(make: SimpleNamespace) -> None:
    stream = make.armed(hold_after_ms=200)
    stream.offer(make.chunk(UP, 0), 1)
    run(stream, STEP)
    command = stream.tick(3600 * 1000 * MS)
    assert (command.state, command.values[0]) == (SafetyState.HOLDING, 1)
