"""Two publishers of a joint, positions that no motion explains, publishers that were not heard yet: arming waits.

Messages are played in virtual time, with publishers that are identified and, as under rclpy 7.1, that are not."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.action import Contract
from auras_ros.nodes.common.joint_publishers import MAX_PUBLISHERS, JointPublishers
from auras_ros.ros.identity import UNKNOWN
from tests.nodes.controllers import channel

MS = 1_000_000
S_NS = 1000 * MS
SPAN = 4.0  # range of a and b
JOINTS = ("a", "b")
HERE = {"a": 1.0, "b": -0.5}
CHANNELS = [channel(name, lower=-2.0, upper=2.0, max_rate=8.0) for name in JOINTS]
CONTRACT = Contract.from_dict({"dt_ms": 100.0, "channels": [*CHANNELS, channel("wheel", "velocity", unit="rad/s")]})
UNLIMITED = Contract.from_dict(
    {"dt_ms": 100.0, "channels": [channel(name, lower=-2.0, upper=2.0, max_rate=None) for name in JOINTS]}
)
SLOW = Contract.from_dict(
    {"dt_ms": 100.0, "channels": [channel(name, lower=-2.0, upper=2.0, max_rate=1.0) for name in JOINTS]}
)
DRIVER, SECOND = b"driver", b"second"
NODES = {DRIVER: "/driver", SECOND: "/joint_state_publisher"}


@dataclass
class Publisher:
    """Publishes from `begin_ms` to `end_ms`, at `hz`."""

    identity: bytes
    positions: dict[str, float]
    hz: float
    begin_ms: float = 0.0
    end_ms: float = math.inf
    noise: float = 0.0
    stamped: bool = True

    def times_ns(self, until_ns: int) -> Iterator[int]:
        at_ms = self.begin_ms
        while at_ms < min(self.end_ms, until_ns / MS):
            yield round(at_ms * MS)
            at_ms += 1000.0 / self.hz


def played(
    judge: JointPublishers, *publishers: Publisher, until_ms: float, identified: bool = True
) -> Iterator[tuple[float, str]]:
    """Play these publishers; at every message and every 7 ms, the time in ms and the doubt."""
    rng = random.Random(0)
    until_ns = round(until_ms * MS)
    events = [(at_ns, 0, each) for each in publishers for at_ns in each.times_ns(until_ns)]
    looks = [(at_ns, 1, None) for at_ns in range(0, until_ns, 7 * MS)]
    for at_ns, _, each in sorted([*events, *looks], key=lambda event: event[:2]):
        if each is not None:
            values = [value + SPAN * each.noise * rng.uniform(-1.0, 1.0) for value in each.positions.values()]
            stamp_ns = S_NS + at_ns if each.stamped else 0
            judge.heard(each.identity if identified else UNKNOWN, list(each.positions), values, stamp_ns, at_ns)
        yield at_ns / MS, judge.doubt(at_ns)


def judge_of(contract: Contract = CONTRACT, *publishers: bytes) -> JointPublishers:
    """One that has known these publishers for long."""
    judge = JointPublishers(contract)
    judge.discovered({each: NODES[each] for each in publishers or (DRIVER, SECOND)}, -10 * S_NS)
    return judge


SECONDS = {
    "zeros": {"a": 0.0, "b": 0.0},
    "shifted": {name: value + 0.02 * SPAN for name, value in HERE.items()},
    "one_joint": {"b": 0.0},
}


@pytest.mark.parametrize("identified", [True, False])
@pytest.mark.parametrize("contract", [CONTRACT, UNLIMITED, SLOW], ids=["fast", "unlimited", "slow"])
@pytest.mark.parametrize("hz", [5.0, 10.0, 50.0, 200.0])
@pytest.mark.parametrize("kind", SECONDS)
def test_beside_a_second_publisher_nobody_arms(kind: str, hz: float, contract: Contract, identified: bool) -> None:
    """From its first message until a second after its last one, at any instant, whatever the driver's rate."""
    for driver_hz in (10.0, 50.0, 137.0):
        judge = judge_of(contract)
        driver = Publisher(DRIVER, HERE, driver_hz)
        second = Publisher(SECOND, SECONDS[kind], hz, begin_ms=2003.0, end_ms=5000.0)
        doubts = list(played(judge, driver, second, until_ms=7000.0, identified=identified))
        before = [doubt for at_ms, doubt in doubts if at_ms < 2003.0]
        beside = [doubt for at_ms, doubt in doubts if 2003.0 <= at_ms < 5200.0]
        after = [doubt for at_ms, doubt in doubts if at_ms > 6200.0]
        assert set(before) == {""}
        assert "" not in beside
        assert set(after) == {""}
        assert all("/driver, /joint_state_publisher" in doubt for doubt in beside), "the publishers are named"


@pytest.mark.parametrize("hz", [1.0, 0.4])
@pytest.mark.parametrize("identified", [True, False])
def test_one_that_is_slower_than_once_a_second_lets_arm_only_long_after_its_message(
    hz: float, identified: bool
) -> None:
    """Then the newest position has been the driver's for half a second at least, for a second if it is identified."""
    driver, second = Publisher(DRIVER, HERE, 50.0), Publisher(SECOND, SECONDS["zeros"], hz, begin_ms=1003.0)
    quiet_ms = 1000.0 if identified else 500.0
    for at_ms, doubt in played(judge_of(), driver, second, until_ms=9000.0, identified=identified):
        since_ms = (at_ms - 1003.0) % (1000.0 / hz)
        if at_ms >= 1003.0 and since_ms <= quiet_ms:
            assert doubt, f"{since_ms} ms after a message of the second one"


@pytest.mark.parametrize("identified", [True, False])
def test_after_a_single_false_position_half_a_second_is_waited(identified: bool) -> None:
    """The first message of a publisher that was silent until then, and the driver falls silent with it."""
    judge = judge_of(CONTRACT)
    driver = Publisher(DRIVER, HERE, 10.0, end_ms=1000.0)
    second = Publisher(SECOND, SECONDS["zeros"], 10.0, begin_ms=940.0)
    waited = [at for at, doubt in played(judge, driver, second, until_ms=2500.0, identified=identified) if doubt]
    assert min(waited) == 940.0
    assert max(waited) >= 1440.0


def test_signs_of_two_publishers_that_are_not_identified() -> None:
    """All of them say the same position, so that only the sign tells."""
    others = (
        (["a"], 2 * S_NS, "the names beside it"),
        (["b", "a"], 2 * S_NS, "the names beside it"),
        (["a", "b"], S_NS // 2, "stamps go back"),
        (["a", "b"], 0, "the names beside it, or the stamp, come and go"),
    )
    for names, stamp_ns, word in others:
        judge = judge_of()
        judge.heard(UNKNOWN, ["a", "b"], [1.0, -0.5], S_NS, 0)
        assert judge.doubt(0) == ""
        judge.heard(UNKNOWN, names, [HERE[name] for name in names], stamp_ns, 20 * MS)
        assert word in judge.doubt(20 * MS)
        judge.heard(UNKNOWN, names, [HERE[name] for name in names], stamp_ns + bool(stamp_ns) * MS, 900 * MS)
        assert judge.doubt(1021 * MS) == ""
        identified = judge_of()
        identified.heard(DRIVER, ["a", "b"], [1.0, -0.5], S_NS, 0)
        identified.heard(DRIVER, names, [HERE[name] for name in names], stamp_ns, 20 * MS)
        assert identified.doubt(20 * MS) == "", "an identified driver may"


# -- set-ups that are honest ------------------------------------------------------------------------------


@pytest.mark.parametrize("identified", [True, False])
@pytest.mark.parametrize("contract", [CONTRACT, UNLIMITED, SLOW], ids=["fast", "unlimited", "slow"])
@pytest.mark.parametrize("hz", [10.0, 50.0, 500.0])
def test_noise_is_no_doubt(hz: float, contract: Contract, identified: bool) -> None:
    driver = Publisher(DRIVER, HERE, hz, noise=0.005)
    assert {doubt for _, doubt in played(judge_of(contract), driver, until_ms=4000.0, identified=identified)} == {""}


@pytest.mark.parametrize("identified", [True, False])
def test_drivers_of_separate_joints_are_no_doubt(identified: bool) -> None:
    """Each with a rate, a clock and stamps of its own; a third one has joints that no channel commands."""
    drivers = [
        Publisher(DRIVER, {"a": 1.0, "wrist": 9.0}, 37.0, noise=0.005),
        Publisher(SECOND, {"b": -0.5}, 100.0, noise=0.005, stamped=False),
        Publisher(b"base", {"wheel": 3.0, "wrist": -9.0}, 50.0),
    ]
    assert {doubt for _, doubt in played(judge_of(), *drivers, until_ms=4000.0, identified=identified)} == {""}


@pytest.mark.parametrize("identified", [True, False])
def test_a_driver_that_was_killed_and_started_again_is_waited_for_no_longer_than_a_second(identified: bool) -> None:
    """The killed one stays in the graph. Under rclpy 7.1 nothing at all tells the two apart."""
    judge = judge_of(CONTRACT, DRIVER)
    old = Publisher(DRIVER, HERE, 50.0, end_ms=1000.0, noise=0.004)
    new = Publisher(SECOND, HERE, 50.0, begin_ms=1300.0, noise=0.004)
    doubts = []
    for at_ms, doubt in played(judge, old, new, until_ms=5000.0, identified=identified):
        doubts.append((at_ms, doubt))
        if at_ms > 1250.0:
            judge.discovered(NODES, round(at_ms * MS))
    assert {doubt for at_ms, doubt in doubts if at_ms < 1250.0 or at_ms > 2300.0} == {""}


@pytest.mark.parametrize("identified", [True, False])
def test_a_continuous_joint_at_the_end_of_its_turn_has_not_jumped(identified: bool) -> None:
    turning = [channel("a", lower=-3.1416, upper=3.1416, unit="rad"), channel("b", unit="rad")]
    judge = JointPublishers(Contract.from_dict({"dt_ms": 100.0, "channels": turning}))
    judge.discovered({DRIVER: "/driver"}, -10 * S_NS)
    rng = random.Random(0)
    jumped = False
    for known in (False, True):
        if known:
            judge.use(Contract.from_dict({"dt_ms": 100.0, "channels": turning}), [math.tau, math.inf])
        begin_ns = 10 * S_NS * known
        for step in range(200):
            now_ns = begin_ns + step * 20 * MS
            at = math.remainder(math.pi + rng.uniform(-0.02, 0.02), math.tau)
            judge.heard(DRIVER if identified else UNKNOWN, ["a", "b"], [at, 0.0], now_ns, now_ns)
            jumped = jumped or bool(judge.doubt(now_ns))
            assert not (known and judge.doubt(now_ns))
    assert jumped, "without the description it is a jump"


@given(
    st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=60),
    st.sampled_from([10, 20, 100]),
    st.randoms(use_true_random=False),
)
def test_a_robot_that_is_moved_by_hand_within_its_velocity_is_no_doubt(
    paces: list[float], period_ms: int, rng: random.Random
) -> None:
    judge, at = judge_of(), 0.0
    for step, pace in enumerate(paces):
        at = min(2.0, max(-2.0, at + pace * 8.0 * period_ms / 1000.0))
        noisy = at + SPAN * 0.005 * rng.uniform(-1.0, 1.0)
        now_ns = step * period_ms * MS
        judge.heard(DRIVER, ["a", "b"], [noisy, -0.5], 0, now_ns)
        assert judge.doubt(now_ns) == ""


def test_a_robot_that_was_put_elsewhere_is_armed_after_half_a_second() -> None:
    judge = judge_of(SLOW, DRIVER)
    there = {"a": -1.0, "b": -0.5}
    robot = [Publisher(DRIVER, HERE, 50.0, end_ms=1000.0), Publisher(DRIVER, there, 50.0, begin_ms=1000.0)]
    doubted = {at_ms: doubt for at_ms, doubt in played(judge, *robot, until_ms=3000.0) if doubt}
    assert (min(doubted), max(doubted)) == (1000.0, 1500.0)
    assert "a went from 1 to -1 within 20 ms" in doubted[1000.0]
    assert "(publishers of joint_states: /driver)" in doubted[1000.0]


# -- publishers that were not heard yet -------------------------------------------------------------------


def test_a_new_publisher_is_waited_for_until_it_is_heard_or_a_second_has_passed() -> None:
    judge = judge_of(CONTRACT, DRIVER)
    judge.heard(DRIVER, ["a", "b"], [1.0, -0.5], 0, 0)
    assert judge.doubt(0) == ""
    judge.discovered(NODES, 10 * MS)
    assert judge.doubt(20 * MS).startswith("/joint_state_publisher publishes joint_states, was found less than 1 s ago")
    judge.discovered(NODES, 900 * MS)
    judge.heard(DRIVER, ["a", "b"], [1.0, -0.5], 0, 900 * MS)
    assert judge.doubt(1009 * MS)
    assert judge.doubt(1010 * MS) == "", "it is in the graph and dead, or says nothing"
    other = judge_of(CONTRACT, DRIVER)
    other.discovered(NODES, 10 * MS)
    other.heard(SECOND, ["gripper"], [0.1], 0, 20 * MS)
    assert other.doubt(20 * MS) == "", "it was heard, and has joints of its own"


def test_of_publishers_that_are_not_identified_each_new_one_is_waited_for_unless_it_is_the_only_one() -> None:
    judge = JointPublishers(CONTRACT)
    judge.discovered({DRIVER: "/driver"}, 0)
    assert "/driver publishes joint_states" in judge.doubt(5 * MS)
    judge.heard(UNKNOWN, ["a", "b"], [1.0, -0.5], 0, 10 * MS)
    assert judge.doubt(10 * MS) == ""
    judge.discovered(NODES, 500 * MS)
    assert "/joint_state_publisher publishes joint_states" in judge.doubt(510 * MS)
    assert judge.doubt(1500 * MS) == ""


# -- what erases nothing ----------------------------------------------------------------------------------


def test_new_limits_erase_nothing() -> None:
    judge = judge_of()
    judge.heard(DRIVER, ["a", "b"], [1.0, -0.5], 0, 0)
    judge.heard(SECOND, ["a", "b"], [0.0, 0.0], 0, 10 * MS)
    judge.use(SLOW_TOO, [math.inf] * 3)
    assert "2 publishers give the position of a" in judge.doubt(10 * MS)


SLOW_TOO = Contract.from_dict({"dt_ms": 100.0, "channels": [*SLOW.to_dict()["channels"], channel("wheel", "velocity")]})


def test_many_messages_of_one_publisher_erase_none_of_another() -> None:
    judge = judge_of()
    judge.heard(DRIVER, ["a", "b"], [1.0, -0.5], 0, 0)
    for step in range(50_000):
        judge.heard(SECOND, ["a", "b"], [0.0, 0.0], 0, 10_000 * step)
    assert "2 publishers give the position of a" in judge.doubt(500 * MS)


def test_any_number_of_publishers_takes_little_memory() -> None:
    judge = judge_of()
    for number in range(10 * MAX_PUBLISHERS):
        judge.heard(number.to_bytes(4, "little"), ["a", "b"], [1.0, -0.5], 0, number)
    assert f"{MAX_PUBLISHERS} publishers give the position of a" in judge.doubt(S_NS // 2)
    judge.heard(DRIVER, ["a", "b"], [1.0, -0.5], 0, 3 * S_NS)
    assert judge.doubt(3 * S_NS) == ""


def test_positions_that_are_no_numbers_say_nothing() -> None:
    judge = judge_of()
    judge.heard(DRIVER, ["a", "b"], [1.0, -0.5], 0, 0)
    judge.heard(SECOND, ["a", "b"], [math.nan, math.inf], 0, 10 * MS)
    judge.heard(SECOND, ["a", "b"], [], 0, 10 * MS)
    assert judge.doubt(10 * MS) == ""


def test_where_no_command_starts_from_a_position_there_is_no_doubt() -> None:
    judge = JointPublishers(Contract.from_dict({"dt_ms": 100.0, "channels": [channel("wheel", "velocity")]}))
    judge.discovered(NODES, 0)
    judge.heard(DRIVER, ["wheel"], [1.0], 0, 0)
    judge.heard(SECOND, ["wheel"], [-1.0], 0, MS)
    assert judge.doubt(MS) == ""
