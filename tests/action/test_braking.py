"""With a bound on the acceleration every end is a ramp: holds, seams, e-stops, and the way to the final command."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auras_ros.action import ActionStream, Command, SafetyState
from tests.action.drive import run

MS = 1_000_000
TICK = 10 * MS
CHANGE = 1.0  # of the pace, a tick: 1e4 a second squared


def moving(make: SimpleNamespace, *, ticks: int = 6, **rules: Any) -> tuple[ActionStream, int]:
    """A stream whose one channel moves towards 90 at a growing pace, and the time of its last tick."""
    channel = make.channel(**{"max_acceleration": 1e4, **rules})
    still = None if channel.kind.value in ("velocity", "delta_previous") else [0.0]
    stream = make.armed(make.contract(channel), tick_ms=10, current=still)
    stream.offer(make.chunk([90.0] * 20, 0), 1)
    run(stream, *range(TICK, (ticks + 1) * TICK, TICK))
    return stream, ticks * TICK


def onward(stream: ActionStream, now_ns: int, ticks: int = 30) -> list[Command]:
    return [stream.tick(now_ns + k * TICK) for k in range(1, ticks + 1)]


def published(commands: list[Command]) -> list[float]:
    return [float(command.values[0]) for command in commands if command.publish]


END = {
    "agent lost": lambda stream, now_ns: stream.hold(now_ns),
    "stopped": lambda stream, now_ns: stream.stop(now_ns),
    "disarmed": lambda stream, now_ns: stream.disarm(now_ns),
    "reset": lambda stream, now_ns: stream.reset(now_ns),
    "poisoned": lambda stream, now_ns: None,
}


@pytest.mark.parametrize("end", END)
def test_a_set_point_brakes_and_then_stands(make: SimpleNamespace, end: str) -> None:
    """After 1, 3, 6, 10, 15, 21 the pace is 6: the shortest allowed way to rest is 5, 4, 3, 2, 1 more."""
    stream, now_ns = moving(make)
    END[end](stream, now_ns)
    if end == "poisoned":
        stream.offer(make.chunk([np.nan] * 9, TICK), now_ns)
    values = published(onward(stream, now_ns))
    assert values[:6] == pytest.approx([26, 30, 33, 35, 36, 36])
    assert set(values[5:]) == {values[5]}


def test_disarming_is_silent_once_it_stands_and_not_before(make: SimpleNamespace) -> None:
    stream, now_ns = moving(make)
    assert not stream.silent
    stream.disarm(now_ns)
    commands = onward(stream, now_ns, 8)
    assert [c.publish for c in commands] == [True] * 6 + [False] * 2
    assert {c.state for c in commands} == {SafetyState.DISARMED}
    assert [c.source for c in commands] == ["hold"] * 6 + ["none"] * 2
    assert published(commands)[-1] == published(commands)[-2], "the last one says: stand here"
    assert stream.silent


def test_without_such_a_bound_one_final_command_is_enough(make: SimpleNamespace) -> None:
    stream, now_ns = moving(make, max_acceleration=None)
    stream.disarm(now_ns)
    assert [c.publish for c in onward(stream, now_ns, 3)] == [True, False, False]


@pytest.mark.parametrize("rules", [{"max_rate": 1e3}, {"max_acceleration": 1e3}])
def test_a_velocity_ramps_to_zero_and_zero_is_the_last_word(make: SimpleNamespace, rules: Any) -> None:
    stream, now_ns = moving(make, ticks=3, kind="velocity", **{"max_acceleration": None, **rules})
    stream.disarm(now_ns)
    assert published(onward(stream, now_ns)) == pytest.approx([20, 10, 0])
    assert stream.silent


def test_increments_fade_out_and_all_of_them_count_as_executed(make: SimpleNamespace) -> None:
    stream, now_ns = moving(make, ticks=4, kind="delta_previous")
    stream.hold(now_ns)
    assert published(onward(stream, now_ns, 5)) == pytest.approx([3, 2, 1, 0, 0])
    assert stream._generator.timeline.executed.tolist() == pytest.approx([1 + 2 + 3 + 4 + 3 + 2 + 1])


def test_a_hold_value_is_gone_to_along_an_allowed_path(make: SimpleNamespace) -> None:
    stream, now_ns = moving(make, hold="value", hold_value=-10.0)
    stream.hold(now_ns)
    values = published(onward(stream, now_ns, 60))
    assert values[:5] == pytest.approx([26, 30, 33, 35, 36]), "it was on its way up"
    assert values[-1] == -10
    assert min(values) >= -10 - 1e-9
    assert max(np.abs(np.diff(np.diff([15, 21, *values])))) <= CHANGE + 1e-9


def test_leaving_does_not_start_for_a_hold_value(make: SimpleNamespace) -> None:
    """Nobody speaks any more after it, so the shortest way to rest is all there is."""
    stream, now_ns = moving(make, hold="value", hold_value=-10.0)
    stream.disarm(now_ns)
    assert published(onward(stream, now_ns))[-1] == pytest.approx(36)


def test_a_switch_to_a_far_chunk_is_a_curve(make: SimpleNamespace) -> None:
    stream, now_ns = moving(make)
    stream.offer(make.chunk([-50.0] * 20, now_ns), now_ns + 1)
    commands = onward(stream, now_ns, 60)
    values = [15.0, 21.0, *published(commands)]
    assert max(np.abs(np.diff(np.diff(values)))) <= CHANGE + 1e-9
    assert values[-1] == -50
    assert commands[0].limited == ("x",)
    assert commands[-1].limited == ()


def test_a_limit_is_approached_no_faster_than_it_can_be_braked_for(make: SimpleNamespace) -> None:
    """Told to run into its limit and cut off at any tick, the channel stands before it."""
    for ticks in range(1, 25):
        stream, now_ns = moving(make, ticks=ticks, upper=60.0, lower=-60.0)
        stream.offer(make.chunk([60.0] * 40, now_ns), now_ns + 1)
        at = published(onward(stream, now_ns, ticks))[-1]
        stream.stop(now_ns + ticks * TICK)
        values = published(onward(stream, now_ns + ticks * TICK))
        assert max(at, *values) <= 60


def test_rearming_on_the_way_to_rest_goes_on_braking(make: SimpleNamespace) -> None:
    """A measured position is behind a moving command; taken as the start it would be a jump."""
    stream, now_ns = moving(make)
    stream.disarm(now_ns)
    first = published(onward(stream, now_ns, 1))
    assert stream.arm(now_ns + TICK, [0.0]).ok
    values = [15.0, 21.0, *first, *published(onward(stream, now_ns + TICK, 10))]
    assert values[-1] == pytest.approx(36)
    assert max(np.abs(np.diff(np.diff(values)))) <= CHANGE + 1e-9
    assert stream.arm(now_ns + 11 * TICK, [30.0]).ok
    assert published(onward(stream, now_ns + 11 * TICK, 1)) == pytest.approx([36]), "where it was sent, not where it is"


def test_after_missed_ticks_it_starts_from_rest(make: SimpleNamespace) -> None:
    stream, now_ns = moving(make)
    assert run(stream, now_ns + 4 * TICK, now_ns + 5 * TICK) == pytest.approx([22, 24])


def test_the_checked_horizon_obeys_the_acceleration_from_where_it_is(make: SimpleNamespace) -> None:
    stream, now_ns = moving(make, max_acceleration=200.0, max_rate=100.0)
    before, at = published(onward(stream, now_ns, 2))
    ahead = stream.ahead(now_ns + 2 * TICK + 1).checked()
    assert ahead is not None
    values = np.array([at, *ahead.values[:, 0]])
    steps = np.array([10 * (at - before), *np.diff(values)])
    assert max(np.abs(np.diff(steps))) <= 200.0 * 0.1**2 + 1e-6
    assert max(steps) <= 10 + 1e-9
    assert values[-1] == 90
