"""Trajectories: when a first point is reached, and that the tick never waits for a horizon that is being checked."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.action import Command, Contract, Horizon, Provenance, SafetyState
from auras_ros.nodes.actuator.trajectories import TrajectoryPublisher, reach_ns, trajectory_message
from auras_ros.ros.msg import TimeMsg
from tests.nodes.controllers import channel, stamp
from tests.nodes.stand_ins import FakeAgent, Robot, ramp
from tests.nodes.wire import PATIENCE_S, Child, Watch
from tests.suspending_clock import SuspendingClock

MS = 1_000_000
DT_MS = 50
LEASE_MS = 300
NOW = TimeMsg(sec=7, nanosec=5)


def contract(*channels: dict[str, object]) -> Contract:
    return Contract.from_dict({"dt_ms": DT_MS, "channels": list(channels)})


def horizon(first: list[float], origin_ns: int, index: int) -> Horizon:
    return Horizon(index, np.array([first]), Provenance(origin_stamp_ns=0, origin_mono_ns=origin_ns))


RATED = contract(channel("a", max_rate=2.0), channel("b", max_rate=None))


@given(st.floats(-0.1, 0.1), st.floats(-3.0, 3.0), st.integers(0, DT_MS * MS - 1))
def test_the_first_point_is_reached_at_the_end_of_its_step_unless_a_rate_needs_longer(
    move: float, free: float, into_step_ns: int
) -> None:
    """`move` is what the horizon was checked for: at most the rate times one policy step."""
    now_ns = 4 * DT_MS * MS + into_step_ns
    first_ns = reach_ns(RATED, horizon([move, free], 0, 4), np.zeros(2), now_ns)
    left_ns = DT_MS * MS - into_step_ns
    assert 0 < first_ns <= DT_MS * MS
    assert first_ns >= left_ns
    assert abs(move) <= 2.0 * first_ns / 1e9 + 1e-6
    if abs(move) <= 2.0 * left_ns / 1e9 - 1e-6:
        assert first_ns == left_ns


def test_where_an_acceleration_is_limited_it_takes_the_whole_step_that_was_checked() -> None:
    slow = contract(channel("a", max_acceleration=5.0))
    assert reach_ns(slow, horizon([0.0], 0, 0), np.zeros(1), 49 * MS) == DT_MS * MS


def test_points_are_one_policy_step_apart() -> None:
    message = trajectory_message(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), RATED, 20 * MS, NOW)
    assert list(message.joint_names) == ["a", "b"]
    assert [stamp(point.time_from_start) for point in message.points] == [20 * MS, 70 * MS, 120 * MS]
    assert [list(point.positions) for point in message.points] == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    assert stamp(message.header.stamp) == 7_000_000_005


class Slow:
    """A chunk's horizon whose check begins and ends when the test says so; its value is its number."""

    def __init__(self, number: int) -> None:
        self.values = np.full(2, float(number))
        self.provenance = Provenance(origin_stamp_ns=0, origin_mono_ns=0, request=number)
        self.begun, self.may_end = threading.Event(), threading.Event()

    def checked(self, is_over: Callable[[], bool]) -> Horizon:
        self.begun.set()
        assert self.may_end.wait(PATIENCE_S)
        return Horizon(0, np.stack([self.values, self.values]), self.provenance)


class Ticks:
    """The tick thread's part, played by the test; what was published: the value of each message's first point."""

    def __init__(self) -> None:
        self.published: list[tuple[float, int]] = []
        self.stamped_ns: list[int] = []  # the tick that each message is stamped by
        self._changed = threading.Condition()
        stamps = itertools.count(1)
        self.clock = SuspendingClock()
        self.trajectories = TrajectoryPublisher(
            self._publish,
            lambda at_ns: TimeMsg(sec=next(stamps), nanosec=at_ns),
            RATED,
            10**12,
            LEASE_MS * MS,
            self.clock,
        )

    def _publish(self, message: Any) -> None:
        with self._changed:
            self.published.append((message.points[0].positions[0], len(message.points)))
            self.stamped_ns.append(message.header.stamp.nanosec)
            self._changed.notify_all()

    def chunk(self, slow: Slow) -> None:
        command = Command(slow.values, True, SafetyState.ARMED, "chunk", provenance=slow.provenance)
        stream: Any = SimpleNamespace(ahead=lambda now_ns: slow, contract=RATED)
        self.trajectories.follow(command, stream, 1)

    def hold(self, value: float) -> None:
        command = Command(np.full(2, value), True, SafetyState.HOLDING, "hold")
        self.trajectories.follow(command, None, 1)  # type: ignore[arg-type]  # a hold asks the stream for nothing

    def would_publish(self) -> None:
        """Give the thread the time to publish what it must not; a thread that does right needs none of it."""
        self.trajectories._thread.join(0.05)

    def until(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.published) >= count, PATIENCE_S), self.published


@pytest.fixture
def ticks() -> Iterator[Ticks]:
    made = Ticks()
    yield made
    made.trajectories.close()


def test_ticks_go_on_while_a_horizon_is_checked_and_the_newest_chunk_wins(ticks: Ticks) -> None:
    """Order, not time: had any tick waited for the first check, the test would never get to let it end."""
    slow = [Slow(number) for number in range(4)]
    ticks.chunk(slow[0])
    assert slow[0].begun.wait(PATIENCE_S)
    for each in (slow[1], slow[2], slow[3], slow[3]):
        ticks.chunk(each)
    for each in slow:
        each.may_end.set()
    ticks.until(1)
    assert ticks.published == [(3.0, 2)], "0 came too late; 1 and 2 were never begun"
    assert not slow[1].begun.is_set()
    assert not slow[2].begun.is_set()
    assert ticks.trajectories.superseded == 3


def test_a_hold_is_never_overtaken_by_the_trajectory_that_it_ends(ticks: Ticks) -> None:
    slow, pending = Slow(1), Slow(2)
    pending.may_end.set()
    ticks.chunk(slow)
    assert slow.begun.wait(PATIENCE_S)
    ticks.chunk(pending)
    ticks.hold(5.0)
    ticks.hold(6.0)
    ticks.hold(6.0)
    slow.may_end.set()
    ticks.until(1)
    last = Slow(3)
    last.may_end.set()
    ticks.chunk(last)  # comes after whatever else would have come
    ticks.until(2)
    assert ticks.published == [(6.0, 1), (3.0, 2)]
    assert not pending.begun.is_set()


def test_a_hold_is_sent_though_a_chunk_follows_at_once(ticks: Ticks) -> None:
    """Else what was under way would go on until the chunk's horizon is checked, however long that takes."""
    first, second = Slow(1), Slow(2)
    ticks.chunk(first)
    assert first.begun.wait(PATIENCE_S)
    ticks.hold(5.0)
    ticks.chunk(second)
    first.may_end.set()
    ticks.until(1)
    assert ticks.published == [(5.0, 1)]
    second.may_end.set()
    ticks.until(2)
    assert ticks.published == [(5.0, 1), (2.0, 2)]


@pytest.mark.parametrize("waits", ["chunk", "hold"])
def test_nothing_that_was_on_its_way_is_sent_after_a_stall(ticks: Ticks, waits: str) -> None:
    """Somebody else may drive by then: neither the horizon that is being checked, nor what waits behind it."""
    slow, behind = Slow(1), Slow(2)
    behind.may_end.set()
    ticks.chunk(slow)
    assert slow.begun.wait(PATIENCE_S)
    ticks.chunk(behind) if waits == "chunk" else ticks.hold(5.0)
    ticks.trajectories.end(None)
    slow.may_end.set()
    ticks.would_publish()
    last = Slow(3)
    last.may_end.set()
    ticks.chunk(last)
    ticks.until(1)
    assert ticks.published == [(3.0, 2)]


@pytest.mark.parametrize("passes", ["advance", "suspend"])
def test_a_horizon_that_is_older_than_the_lease_is_not_sent(ticks: Ticks, passes: str) -> None:
    """Its thread may be awake before the one that ticks, and nobody has told it of the stall yet."""
    slow, last = Slow(1), Slow(2)
    ticks.chunk(slow)
    assert slow.begun.wait(PATIENCE_S)
    getattr(ticks.clock, passes)((LEASE_MS + 1) * MS)
    slow.may_end.set()
    ticks.would_publish()
    last.may_end.set()
    ticks.chunk(last)
    ticks.until(1)
    assert ticks.published == [(2.0, 2)]
    assert ticks.trajectories.superseded == 1


def test_after_a_stall_the_same_hold_is_said_again(ticks: Ticks) -> None:
    """The controller may follow another one's trajectory by now."""
    ticks.hold(5.0)
    ticks.until(1)
    ticks.trajectories.end(None)
    ticks.hold(5.0)
    ticks.until(2)
    assert ticks.published == [(5.0, 1), (5.0, 1)]


def test_a_trajectory_under_way_ends_at_the_given_place_after_a_jump(ticks: Ticks) -> None:
    slow = Slow(1)
    ticks.chunk(slow)
    assert slow.begun.wait(PATIENCE_S)
    ticks.trajectories.end(np.full(2, 6.0))
    slow.may_end.set()
    ticks.until(1)
    assert ticks.published == [(6.0, 1)]


def test_a_trajectory_is_stamped_by_its_tick(ticks: Ticks) -> None:
    """Guards against points that are reached later than they were limited for: the thread waits for the interpreter
    lock after it has published the command."""
    slow = Slow(1)
    ticks.chunk(slow)
    assert slow.begun.wait(PATIENCE_S)
    slow.may_end.set()
    ticks.until(1)
    ticks.hold(2.0)
    ticks.until(2)
    assert ticks.stamped_ns == [1, 1]


def test_a_plan_that_was_ended_before_it_was_noted_is_ended(ticks: Ticks) -> None:
    """The executor's thread may find a jump between the stream's answer and the note of it."""
    slow = Slow(1)
    slow.may_end.set()

    def ahead(now_ns: int) -> Slow:
        ticks.trajectories.end(np.full(2, 6.0))
        return slow

    command = Command(slow.values, True, SafetyState.ARMED, "chunk", provenance=slow.provenance)
    stream: Any = SimpleNamespace(ahead=ahead, contract=RATED)
    ticks.trajectories.follow(command, stream, 1)
    ticks.would_publish()
    last = Slow(3)
    last.may_end.set()
    ticks.chunk(last)
    ticks.until(1)
    assert ticks.published == [(3.0, 2)], "none was running, so none is ended at a point"


def test_a_robot_that_was_moved_while_it_was_held_is_sent_nowhere(ticks: Ticks) -> None:
    """It stands 1.5 rad away after a controller's restart, say: the point to stay at would drive it back."""
    ticks.hold(5.0)
    ticks.until(1)
    ticks.trajectories.end(np.full(2, 5.0))
    ticks.would_publish()
    ticks.hold(7.0)  # armed again, from where it is
    ticks.until(2)
    assert ticks.published == [(5.0, 1), (7.0, 1)]


def test_a_trajectory_whose_hold_was_not_sent_yet_is_ended_after_a_jump(ticks: Ticks) -> None:
    """The hold waits behind a horizon that is being limited: dropped with it, the first trajectory would go on."""
    first, second = Slow(1), Slow(2)
    first.may_end.set()
    ticks.chunk(first)
    ticks.until(1)
    ticks.chunk(second)
    assert second.begun.wait(PATIENCE_S)
    ticks.hold(5.0)
    ticks.trajectories.end(np.full(2, 6.0))
    second.may_end.set()
    ticks.until(2)
    assert ticks.published == [(1.0, 2), (6.0, 1)]


def test_the_point_to_stay_at_does_not_wait_for_the_rows_of_a_horizon(ticks: Ticks) -> None:
    """Four thousand rows take a tenth of a second and more; a stop is looked for between two of them."""
    begun, rows = threading.Event(), itertools.count()

    def checked(is_over: Callable[[], bool]) -> None:
        begun.set()
        while not is_over():
            next(rows)
            time.sleep(0.001)

    endless = Slow(1)
    endless.checked = checked  # type: ignore[method-assign, assignment]
    ticks.chunk(endless)
    assert begun.wait(PATIENCE_S)
    ticks.hold(5.0)
    ticks.until(1)
    assert ticks.published == [(5.0, 1)]
    assert ticks.trajectories.superseded == 1


def test_chunks_that_come_faster_than_they_are_checked_still_bring_trajectories(ticks: Ticks) -> None:
    """A chunk always newer than the one that was just checked must not keep the controller without any."""
    slow = [Slow(number) for number in range(6)]
    ticks.chunk(slow[0])
    for older, newer in itertools.pairwise(slow):
        assert older.begun.wait(PATIENCE_S)
        ticks.chunk(newer)
        older.may_end.set()
    slow[-1].may_end.set()
    ticks.until(3)
    assert ticks.published == [(1.0, 2), (3.0, 2), (5.0, 2)]


def test_the_point_to_stay_at_is_the_last_word_though_a_check_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("auras_ros.nodes.actuator.trajectories.END_S", 0.01)
    ticks, slow = Ticks(), Slow(1)
    ticks.chunk(slow)
    assert slow.begun.wait(PATIENCE_S)
    ticks.hold(5.0)
    ticks.trajectories.close()
    assert ticks.published == [(5.0, 1)]
    slow.may_end.set()
    ticks.trajectories._thread.join(PATIENCE_S)
    assert ticks.published == [(5.0, 1)], "what was under way gives way to the end"


def test_a_thread_that_broke_is_told(ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends then (`CommandLoop.working`): its controller would get no trajectory any more."""
    said: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", said.append)
    assert ticks.trajectories.working()
    broken = Slow(1)
    broken.checked = lambda is_over: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    ticks.chunk(broken)
    ticks.trajectories._thread.join(PATIENCE_S)
    assert said
    assert not ticks.trajectories.working()


NEVER_CHECKED = """
import threading
from auras_ros.action import Ahead
Ahead.checked = lambda self, is_over: print('checking', flush=True) or threading.Event().wait()
"""


def test_commands_go_on_every_tick_though_a_horizon_is_never_checked(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    child = actuator(code=NEVER_CHECKED, joint_trajectory=True)
    fake.live()
    fake.drive(ramp())
    watch.arm()
    watch.until(lambda: "checking" in child.output, "a horizon is being checked")
    begin_ns = time.monotonic_ns()
    driven = lambda: [each.label for each in watch.since(begin_ns) if each.label.state == "armed"]  # noqa: E731
    watch.until(lambda: len(driven()) > 50, "fifty commands more")
    assert len({label.request for label in driven()}) > 2, "of newer chunks too"
    assert watch.call("actuator/disarm")[0]


def test_a_horizon_whose_first_row_would_be_too_old_is_not_sent(ticks: Ticks) -> None:
    ticks.trajectories._max_age_ns = -1
    old, last = Slow(1), Slow(2)
    old.may_end.set()
    ticks.chunk(old)
    assert old.begun.wait(PATIENCE_S)
    ticks.would_publish()
    ticks.trajectories._max_age_ns = 10**12
    last.may_end.set()
    ticks.chunk(last)
    ticks.until(1)
    assert ticks.published == [(2.0, 2)]


CHECK_BREAKS = """
from auras_ros.action import Ahead
def checked(self, is_over): raise RuntimeError('the check broke')
Ahead.checked = checked
"""


def test_a_thread_of_trajectories_that_breaks_ends_the_process(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """Else the controller would follow nothing any more, and nobody would say so."""
    child = actuator(code=CHECK_BREAKS, joint_trajectory=True)
    fake.live()
    fake.drive(ramp())
    watch.arm()
    assert child.wait() == 1
    assert "the check broke" in child.output
