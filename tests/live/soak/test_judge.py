"""The judge of a soak: silent on what is promised, and each broken promise is named by its kind."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from auras_ros.live.soak.judge import NAMED, CommandLimits, Judge, ReceivedAction, ReceivedTrajectory

MS = 1_000_000
TICK_NS = 10 * MS
BOUNDS = CommandLimits.of([(0.0, 512.0, 4000.0), (-1.0, 1.0, None)], rate_hz=100.0, max_age_ms=1600.0)


class Told:
    """A judge that is told of commands, ten milliseconds apart unless said otherwise."""

    def __init__(self) -> None:
        self.judge = Judge(BOUNDS)
        self.tick = 0

    @property
    def now_ns(self) -> int:
        return self.tick * TICK_NS

    def send(self, x: float = 100.0, y: float = 0.0, state: str = "armed", age_ms: float | None = 100.0) -> None:
        self.tick += 1
        age_ns = None if age_ms is None else round(age_ms * MS)
        self.judge.action(ReceivedAction(self.now_ns, state, self.tick, age_ns, np.array([x, y])))

    def trajectory(
        self, *xs: float, each_ms: float = 100.0, y: float = 0.0, before_ms: float = 0.0, late_ms: float = 0.0
    ) -> None:
        """Points one after another, of the newest command's tick or one before it."""
        points, after_ns = np.array([[x, y] for x in xs]), np.arange(1, len(xs) + 1) * round(each_ms * MS)
        at_ns = self.now_ns - round(before_ms * MS)
        self.judge.trajectory(ReceivedTrajectory(at_ns, points, after_ns, round(late_ms * MS)))

    def go_on(self, x: float, state: str = "holding") -> None:
        """For long enough that whatever came is judged."""
        for _ in range(32):
            self.send(x, state=state, age_ms=None)

    def arm(self, armed: bool = True) -> None:
        self.judge.ask()
        self.judge.answered(armed, self.now_ns)

    @property
    def kinds(self) -> dict[str, int]:
        return dict(self.judge.kinds)


@pytest.fixture
def told() -> Told:
    made = Told()
    made.arm()
    made.send(state="holding", age_ms=None)
    made.send()
    return made


def test_a_good_life_breaks_nothing(told: Told) -> None:
    for step in range(5):
        told.send(x=100.0 + 40.0 * step)
    told.send(x=260.0, state="holding", age_ms=None)
    told.send(x=300.0)
    told.send(x=300.0, state="disarmed", age_ms=None)
    told.tick += 50
    told.arm()
    told.send(x=20.0, state="holding", age_ms=None)
    assert told.kinds == {}
    assert told.judge.lost == 0


@pytest.mark.parametrize("x", [float("nan"), float("inf"), -0.001, 512.001])
def test_a_value_beyond_its_limits(told: Told, x: float) -> None:
    told.send(x=x)
    assert "beyond limits" in told.kinds


def test_a_missing_channel(told: Told) -> None:
    told.judge.action(ReceivedAction(told.now_ns + TICK_NS, "armed", told.tick + 1, 0, np.array([1.0])))
    assert told.kinds == {"beyond limits": 1}


def test_a_step_beyond_the_rate(told: Told) -> None:
    told.send(x=140.0)
    assert told.kinds == {}
    told.send(x=180.01)
    assert told.kinds == {"beyond rate": 1}


def test_arming_again_may_start_elsewhere_but_what_follows_may_not(told: Told) -> None:
    told.judge.ask()
    told.send(x=400.0)  # before the answer is heard
    told.judge.answered(True, told.now_ns)
    told.send(x=450.0)
    assert told.kinds == {}
    told.send(x=500.0)
    assert told.kinds == {"beyond rate": 1}


def test_an_action_that_answers_an_old_observation(told: Told) -> None:
    told.send(age_ms=1600.0)
    assert told.kinds == {}
    told.send(age_ms=1600.1)
    assert told.kinds == {"old action": 1}


def test_an_action_after_the_last_word(told: Told) -> None:
    told.send(state="disarmed", age_ms=None)
    told.send(state="holding", age_ms=None)
    assert told.kinds == {"action while disarmed": 1}


def test_arming_that_overtakes_the_last_word_excuses_what_follows(told: Told) -> None:
    told.judge.ask()
    told.send(state="disarmed", age_ms=None)
    told.judge.answered(True, told.now_ns + 1)
    told.send(state="holding", age_ms=None)
    assert told.kinds == {}


def test_arming_that_was_refused_excuses_nothing(told: Told) -> None:
    told.send(state="disarmed", age_ms=None)
    told.tick += 1
    told.arm(armed=False)
    told.send(state="holding", age_ms=None)
    assert told.kinds == {"action while disarmed": 1}


def test_arming_long_ago_does_not_excuse_it(told: Told) -> None:
    told.arm()
    told.send()
    told.send(state="disarmed", age_ms=None)
    told.tick += 100
    told.send(state="holding", age_ms=None)
    assert told.kinds == {"action while disarmed": 1}


def test_nobody_drives_where_arming_is_needed_first(told: Told) -> None:
    told.judge.forbid(told.now_ns + TICK_NS)
    told.send()  # still in time
    told.send(state="holding", age_ms=None)
    assert told.kinds == {}
    told.send()
    assert told.kinds == {"driven unasked": 1}
    told.arm(armed=False)
    told.send()
    assert told.kinds == {"driven unasked": 2}
    told.arm()
    told.send()
    assert told.kinds == {"driven unasked": 2}


def test_ticks_that_did_not_come_are_counted_while_it_speaks(told: Told) -> None:
    told.tick += 3
    told.send()
    assert told.judge.lost == 3
    told.send(state="disarmed", age_ms=None)
    told.tick += 100
    told.arm()
    told.send(state="holding", age_ms=None)
    assert told.judge.lost == 3


def test_a_stop_that_does_not_stay(told: Told) -> None:
    told.send(state="stopped", age_ms=None)
    told.send(state="stopped", age_ms=None)
    assert told.kinds == {}
    told.send(state="holding", age_ms=None)
    assert told.kinds == {"not latched": 1}


def test_a_stop_that_ends_in_an_arming_was_latched(told: Told) -> None:
    told.send(state="stopped", age_ms=None)
    told.send(state="disarmed", age_ms=None)
    told.tick += 1
    told.arm()
    told.send(state="holding", age_ms=None)
    assert told.kinds == {}


@pytest.mark.parametrize("state", ["holding", "stopped", "disarmed"])
def test_a_hold_that_moves(told: Told, state: str) -> None:
    told.send(x=101.0, state=state, age_ms=None)
    assert told.kinds == {"moved in a hold": 1}


# -- trajectories ---------------------------------------------------------------------------------------------


def test_trajectories_that_begin_where_the_command_is_and_end_in_a_point_break_nothing(told: Told) -> None:
    told.trajectory(500.0, 100.0)
    told.send(x=140.0)
    told.send(x=140.0, state="holding", age_ms=None)
    told.trajectory(140.0)
    told.go_on(140.0)
    told.send(x=150.0)
    told.trajectory(160.0, 170.0)
    told.send(x=150.0, state="stopped", age_ms=None)
    told.trajectory(150.0)
    told.go_on(150.0, "stopped")
    assert told.kinds == {}


@pytest.mark.parametrize("points", [(600.0,), (100.0, float("nan")), (-1.0, 100.0)])
def test_a_trajectory_beyond_its_limits(told: Told, points: tuple[float, ...]) -> None:
    told.trajectory(*points, each_ms=1000.0)
    told.go_on(100.0, "armed")
    assert told.kinds == {"trajectory beyond limits": 1}


def test_points_whose_times_do_not_rise(told: Told) -> None:
    told.trajectory(100.0, 100.0, each_ms=0.0)
    told.go_on(100.0, "armed")
    assert told.kinds == {"trajectory beyond limits": 1}


@pytest.mark.parametrize(("points", "kinds"), [((500.0,), 0), ((500.0, 101.0), 0), ((500.0, 99.0), 1)])
def test_a_trajectory_keeps_to_the_rate(told: Told, points: tuple[float, ...], kinds: int) -> None:
    told.trajectory(*points)
    told.go_on(100.0, "armed")
    assert told.kinds == ({"trajectory beyond rate": 1} if kinds else {})


def test_a_first_point_that_nobody_can_reach(told: Told) -> None:
    told.trajectory(190.0, 200.0, each_ms=10.0)  # 80 px with the tick of grace
    told.go_on(100.0, "armed")
    assert told.kinds == {"trajectory beyond rate": 1}


@pytest.mark.parametrize(("each_ms", "kinds"), [(755.0, 0), (756.0, 1)])
def test_points_that_are_too_old_when_they_are_reached(told: Told, each_ms: float, kinds: int) -> None:
    told.trajectory(100.0, 100.0, each_ms=each_ms)  # of an observation of 100 ms
    told.go_on(100.0, "armed")
    assert told.kinds == ({"old trajectory": 1} if kinds else {})


@pytest.mark.parametrize(("before_ms", "kinds"), [(0.5, 0), (2.0, 1)])
def test_a_trajectory_is_of_its_tick_though_its_stamp_is_a_little_early(
    told: Told, before_ms: float, kinds: int
) -> None:
    """Guards against the age of the chunk before: two clocks are compared to a tenth of a millisecond."""
    told.send(age_ms=800.0)
    told.send(age_ms=50.0)
    told.trajectory(100.0, 100.0, each_ms=700.0, before_ms=before_ms)
    told.go_on(100.0, "armed")
    assert told.kinds == ({"old trajectory": 1} if kinds else {})


@pytest.mark.parametrize("points", [(101.0,), (100.0, 100.0)])
def test_a_trajectory_that_moves_on_in_a_hold(told: Told, points: tuple[float, ...]) -> None:
    told.send(state="stopped", age_ms=None)
    told.trajectory(*points)
    told.go_on(100.0, "stopped")
    assert told.kinds == {"trajectory moves on": 1}


@pytest.mark.parametrize(("late_ms", "violations"), [(40.0, 0), (5.0, 1), (0.0, 1)])
def test_a_trajectory_whose_time_is_not_known_may_be_older_than_the_hold(
    told: Told, late_ms: float, violations: int
) -> None:
    """Guards against a verdict on the machine: without a stamp of the host's clock only its arrival is known."""
    told.send()
    told.send(state="stopped", age_ms=None)
    told.trajectory(100.0, 110.0, late_ms=late_ms)
    told.trajectory(100.0)
    told.go_on(100.0, "stopped")
    assert told.kinds == ({"trajectory moves on": 1} if violations else {})


def test_a_horizon_that_comes_after_the_point_that_ends_it(told: Told) -> None:
    told.send()
    told.send(state="stopped", age_ms=None)
    told.trajectory(100.0)
    told.trajectory(110.0, 120.0, before_ms=10.0)
    assert told.kinds == {"trajectory overtaken": 1}


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_a_trajectory_whose_action_was_not_heard_is_not_judged(told: Told, lost: int) -> None:
    """On a machine that is too slow the witness loses messages; an older action says nothing of this trajectory."""
    told.tick += lost
    told.trajectory(100.0, 100.0, each_ms=1000.0)  # too old for the action before
    told.tick += 1
    told.go_on(100.0, state="armed")
    assert told.kinds == ({} if lost else {"old trajectory": 1})
    assert told.judge.unjudged == (1 if lost else 0)


def test_an_end_is_not_missed_where_ticks_were_not_heard(told: Told) -> None:
    told.trajectory(200.0, 300.0)
    told.send(state="holding", age_ms=None)
    told.tick += 20
    told.go_on(100.0)
    assert told.kinds == {}
    assert told.judge.unjudged == 1


def test_a_violation_says_during_which_fault(told: Told) -> None:
    told.judge.during = "agent_killed, 12 s"
    told.send(x=600.0)
    assert told.judge.violations[0].endswith(" (agent_killed, 12 s)")


def test_a_trajectory_that_no_hold_ends(told: Told) -> None:
    told.trajectory(200.0, 300.0)
    told.go_on(100.0)
    assert told.kinds == {"trajectory not ended": 1}


def test_without_trajectories_no_hold_needs_a_point(told: Told) -> None:
    told.go_on(100.0)
    assert told.kinds == {}


@pytest.mark.parametrize("count", [1, NAMED, NAMED + 7])
def test_all_are_counted_and_the_first_are_named(told: Told, count: int) -> None:
    violate: Callable[[str, str], None] = told.judge.violate
    for each in range(count):
        violate("kind", str(each))
    assert told.kinds == {"kind": count}
    assert told.judge.violations == [f"kind: {each}" for each in range(min(count, NAMED))]
