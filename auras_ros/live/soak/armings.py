"""Armings beside a second publisher of joint_states, and with honest robots: how many begin elsewhere.

The loop's own actuator is armed again and again. Its first command must be where the robot is, within one hundredth of
each joint's range; any other counts as `armed_elsewhere`. The second publishers do what a joint_state_publisher does
that nobody wanted: they send zeros, or positions that are shifted, at several rates. `count_armings` plays one case so
often as it is told; what must come of it is decided by the caller.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from auras_ros.live.soak.harness import MS, RECOVERY_S, SoakHarness
from auras_ros.live.soak.judge import ReceivedAction
from auras_ros.live.soak.topics import STATES
from auras_ros.ros.image import to_time_msg
from auras_ros.ros.msg import Header, JointState

RATES_HZ = (5.0, 10.0, 50.0, 200.0)
ELSEWHERE = 0.01  # share of a joint's range from the robot's position: further away is elsewhere
SHIFT = 0.02  # share of a joint's range by which a second publisher is wrong
NOISE = 0.005  # share of a joint's range by which a sensor is wrong in either direction
QUIET_S = 1.3  # before each arming: nothing that was heard before counts any more, and the robot rests
BESIDE_S = 1.0  # how long arming is asked for beside a second publisher, from its beginning
LATEST_START_S = 0.4  # of the first request, after the second publisher's beginning
ASK_S = 0.03  # between two requests
FIRST_S = 2.0  # for the first command after arming
RESTARTED_NS = 300 * MS  # after a kill: what comes later is of the next process


@dataclass(frozen=True)
class PlayedDriver:
    """A publisher of joint_states that is played here."""

    joints: tuple[str, ...]
    rate_hz: float
    # It says that its joints are at 0.
    zeros: bool = False
    # Shares of a joint's range by which its positions are off: always, and at most, at random.
    shift: float = 0.0
    noise: float = 0.0
    # Its positions are angles within half a turn of 0.
    wraps: bool = False


@dataclass(frozen=True)
class ArmingCase:
    """Who publishes joint_states while somebody tries to arm."""

    name: str
    # Publishers beside the robot's own.
    seconds: tuple[PlayedDriver, ...] = ()
    # Drivers that speak instead of the loop's simulator, which is stopped meanwhile; empty: the simulator speaks.
    robot: tuple[PlayedDriver, ...] = ()
    # The simulator is killed before each arming.
    restarts: bool = False

    @property
    def honest(self) -> bool:
        """Whether each joint has one publisher: then it must arm."""
        return not self.seconds


@dataclass
class ArmingCounts:
    """What became of the armings of one case."""

    case: str
    tried: int = 0
    armed: int = 0
    # Armings whose first command was not where the robot is.
    armed_elsewhere: int = 0
    # By reason, how many requests were refused.
    refusals: Counter[str] = field(default_factory=Counter)


def second_publishers(joints: tuple[str, ...]) -> list[ArmingCase]:
    """Zeros, shifted positions and zeros of one joint alone, at every rate."""
    cases = []
    for rate_hz in RATES_HZ:
        kinds = {
            "zeros": PlayedDriver(joints, rate_hz, zeros=True),
            "shifted": PlayedDriver(joints, rate_hz, shift=SHIFT),
            "one_joint": PlayedDriver(joints[-1:], rate_hz, zeros=True),
        }
        cases += [ArmingCase(f"{kind}_{rate_hz:g}_hz", seconds=(driver,)) for kind, driver in kinds.items()]
    return cases


def honest_robots(joints: tuple[str, ...]) -> list[ArmingCase]:
    """What must arm: the simulator as it is (10 Hz) and after SIGKILL, noise, a slow driver, drivers of separate
    joints."""
    return [
        ArmingCase("simulator"),
        ArmingCase("noise", robot=(PlayedDriver(joints, 50.0, noise=NOISE),)),
        ArmingCase("slow", robot=(PlayedDriver(joints, 10.0, noise=NOISE),)),
        ArmingCase("separate", robot=tuple(PlayedDriver((joint,), 50.0) for joint in joints)),
        ArmingCase("restarted", restarts=True),
    ]


def count_armings(
    harness: SoakHarness,
    ranges: Mapping[str, float],
    case: ArmingCase,
    count: int,
    *,
    robot_position: Mapping[str, float] | None = None,
    turns: Mapping[str, float] | None = None,
) -> ArmingCounts:
    """Try to arm `count` times in this case; the actuator must be disarmed, and is after it.

    ranges: of each joint, in the order of a command's values. robot_position: by joint, where a played robot is; None:
    where the simulator's robot is. turns: by joint, a full turn of those that are continuous.
    """
    counts = ArmingCounts(case.name)
    with ExitStack() as stack:
        if case.robot:
            robot_position = dict(robot_position or _measured_position(harness))
            if "sim_bridge" in harness.usage:
                stack.enter_context(harness.stopped("sim_bridge"))
            for driver in case.robot:
                stack.enter_context(played(harness, ranges, driver, robot_position))
        for _ in range(count):
            if case.restarts:
                _restart(harness)
            harness.pause(QUIET_S)
            _try(harness, ranges, case, counts, robot_position or _measured_position(harness), turns or {})
    return counts


def _try(
    harness: SoakHarness,
    ranges: Mapping[str, float],
    case: ArmingCase,
    counts: ArmingCounts,
    robot_position: Mapping[str, float],
    turns: Mapping[str, float],
) -> None:
    """Ask until it is armed or the time is over; look at the first command; disarm."""
    with ExitStack() as stack:
        end_s = time.monotonic() + (RECOVERY_S if case.honest else BESIDE_S)
        for driver in case.seconds:
            stack.enter_context(played(harness, ranges, driver, robot_position))
        harness.pause(harness.rng.uniform(0.0, LATEST_START_S))
        since_ns = harness.now_ns()
        armed = False
        while not armed and time.monotonic() < end_s:
            harness.pause(ASK_S)
            armed = _ask(harness, counts)
        counts.tried += 1
        counts.armed += armed
        harness.until(lambda: _first(harness, since_ns) is not None, FIRST_S if armed else 0.0)
        first = _first(harness, since_ns)
        if first is not None and _is_elsewhere(first, ranges, robot_position, turns):
            counts.armed_elsewhere += 1
    if armed:
        harness.until(lambda: harness.call("actuator/disarm"))
        harness.says("disarmed")


def _ask(harness: SoakHarness, counts: ArmingCounts) -> bool:
    """Ask once to arm; note the reason of a refusal."""
    harness.judge.ask()
    response = harness.answer(lambda: harness.witness.call("actuator/arm"))
    harness.judge.answered(response is None or response.success, harness.now_ns())
    if response is None:
        return False
    if not response.success:
        counts.refusals[str(response.message)] += 1
    return bool(response.success)


def _first(harness: SoakHarness, since_ns: int) -> ReceivedAction | None:
    return next((action for action in harness.judge.sent if action.mono_ns >= since_ns), None)


def _is_elsewhere(
    action: ReceivedAction, ranges: Mapping[str, float], robot_position: Mapping[str, float], turns: Mapping[str, float]
) -> bool:
    for joint, value in zip(ranges, action.values.tolist(), strict=True):
        if joint in robot_position:
            away = value - robot_position[joint]
            if joint in turns:
                away = math.remainder(away, turns[joint])
            if abs(away) > ELSEWHERE * ranges[joint]:
                return True
    return False


@contextmanager
def played(
    harness: SoakHarness, ranges: Mapping[str, float], driver: PlayedDriver, robot_position: Mapping[str, float]
) -> Iterator[None]:
    """A driver that publishes for a block."""

    def position(joint: str) -> float:
        off = driver.shift + driver.noise * harness.rng.uniform(-1.0, 1.0)
        value = 0.0 if driver.zeros else robot_position[joint] + off * ranges[joint]
        return math.remainder(value, math.tau) if driver.wraps else value

    def publish() -> None:
        header = Header(stamp=to_time_msg(time.time_ns()))
        positions = [position(joint) for joint in driver.joints]
        publisher.publish(JointState(header=header, name=list(driver.joints), position=positions))

    with harness.publisher(STATES, listeners=0) as publisher, harness.timer(1.0 / driver.rate_hz, publish):
        yield


def _measured_position(harness: SoakHarness) -> dict[str, float]:
    """Where the robot is now, by the next message of joint_states."""
    messages: list[Any] = []
    with harness.subscription(STATES, messages.append):
        if not harness.until(lambda: messages, RECOVERY_S):
            harness.judge.violate("not recovered", f"no joint_states within {RECOVERY_S:g} s")
            return {}
    return dict(zip(messages[0].name, messages[0].position, strict=True))


def _restart(harness: SoakHarness) -> None:
    """Kill the simulator, and wait until the next one speaks."""
    at_ns = harness.kill("sim_bridge")
    heard_ns: list[int] = []
    with harness.subscription(STATES, lambda _: heard_ns.append(harness.now_ns())):
        harness.until(lambda: heard_ns and heard_ns[-1] > at_ns + RESTARTED_NS, RECOVERY_S)
