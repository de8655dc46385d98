"""Faults of those around: people who press and deactivate, a stranger on the command topic, endpoints whose QoS does
not fit, a clock that goes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from auras_ros.live.soak.faults.kinds import PATIENCE_S, Times
from auras_ros.live.soak.faults.processes import agent_killed
from auras_ros.live.soak.other import JOINTS
from auras_ros.live.soak.scene import SoakHarness
from auras_ros.live.soak.witness import ACTION
from auras_ros.ros import (
    Clock,
    ClockType,
    DurabilityPolicy,
    Duration,
    LivelinessPolicy,
    QoSProfile,
    ReliabilityPolicy,
    qos_profile_sensor_data,
)
from auras_ros.ros.msg import (
    Bool,
    ClockMsg,
    DiagnosticArray,
    Float64MultiArray,
    JointState,
    ParameterType,
    ParameterValue,
    String,
    TimeMsg,
)

RELIABLE, BEST_EFFORT = ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT
LATCHED = DurabilityPolicy.TRANSIENT_LOCAL
WEAK = {  # what a listener that wants it latched and reliable does not take
    "RELIABILITY": QoSProfile(depth=1, reliability=BEST_EFFORT, durability=LATCHED),
    "DURABILITY": QoSProfile(depth=1, reliability=RELIABLE),
}
PICKY = {  # what a publisher that promises nothing does not give
    "DURABILITY": QoSProfile(depth=1, reliability=BEST_EFFORT, durability=LATCHED),
    "DEADLINE": QoSProfile(depth=1, reliability=BEST_EFFORT, deadline=Duration(seconds=1)),
    "LIVELINESS": QoSProfile(depth=1, reliability=BEST_EFFORT, liveliness=LivelinessPolicy.MANUAL_BY_TOPIC),
}
DOUBLE, TEXT = ParameterType.PARAMETER_DOUBLE, ParameterType.PARAMETER_STRING
BAD_PARAMETERS = [
    ("rate_hz", ParameterValue(type=DOUBLE, double_value=float("nan"))),
    ("rate_hz", ParameterValue(type=TEXT, string_value="fast")),
    ("agent_timeout_ms", ParameterValue(type=DOUBLE, double_value=1e9)),
    ("nobody_declared_it", ParameterValue(type=DOUBLE, double_value=1.0)),
]
CLOCK_S = 0.05
TABLE_PX, LISTENERS = 512.0, 2  # of joint_states: agent and actuator
AN_HOUR_S = 3600.0


@dataclass(frozen=True)
class Mismatch:
    """An endpoint of ours that one of theirs does not fit, and how `node` calls its topic in the diagnostic."""

    node: str
    label: str
    topic: str
    kind: Any
    publishes: bool
    policy: str
    profile: QoSProfile

    @property
    def key(self) -> str:
        return f"{self.label} incompatible {self.policy}"


def mismatches() -> list[Mismatch]:
    """Every pair of topic and policy that can be missed on the topics of agent and actuator."""
    heard = [
        ("agent", "prompt", String), ("agent", "actuator/state", String), ("actuator", "emergency_stop", Bool),
        ("actuator", "robot_description", String),
    ]  # fmt: skip
    told = [
        ("agent", "~/chunk", "agent/chunk", Float64MultiArray), ("agent", "~/heartbeat", "agent/heartbeat", String),
        ("agent", "provenance", "provenance", DiagnosticArray),
    ]  # fmt: skip
    return [
        *(Mismatch(node, name, name, kind, True, *weak) for node, name, kind in heard for weak in WEAK.items()),
        *(Mismatch(*where, False, *picky) for where in told for picky in PICKY.items()),
        Mismatch("agent", "~/heartbeat", "agent/heartbeat", String, False, "RELIABILITY", QoSProfile(depth=1)),
    ]


def agent_deactivated(harness: SoakHarness) -> Times:
    """The hold command is the last one; the judge hears any that comes after it."""
    at_ns = harness.now_ns()
    harness.answer(lambda: harness.witness.change("deactivate"), PATIENCE_S)
    held_ns = harness.left_armed(at_ns, PATIENCE_S)
    if not harness.says("disarmed", PATIENCE_S):
        harness.judge.violate("not disarmed", "the agent was deactivated")
    harness.pause(harness.rng.uniform(0.2, 1.0))
    harness.answer(lambda: harness.witness.change("activate"), PATIENCE_S)
    return at_ns, held_ns


def robot_moved(harness: SoakHarness) -> Times:
    """Somebody puts it at the other end of the table. Measured to the last command that drives it."""
    publisher = harness.witness.create_publisher(JointState, "joint_states", qos_profile_sensor_data)
    try:
        harness.until(lambda: publisher.get_subscription_count() >= LISTENERS, PATIENCE_S)
        far = [0.0 if value > TABLE_PX / 2 else TABLE_PX for value in harness.judge.sent[-1].values]
        at_ns = harness.now_ns()
        publisher.publish(JointState(name=list(JOINTS), position=far))
        if not harness.says("disarmed", PATIENCE_S):
            harness.judge.violate("robot_moved: driven on", f"it is at {far}")
            return at_ns, None
    finally:
        harness.witness.destroy_publisher(publisher)
    harness.judge.silenced()
    harness.until(lambda: not harness.witness.driving, PATIENCE_S)  # so that it is armed again before the next fault
    driven_ns = [each.mono_ns for each in harness.judge.sent if each.mono_ns > at_ns and each.state == "armed"]
    return at_ns, max(driven_ns, default=at_ns)


def second_publisher(harness: SoakHarness) -> Times:
    """It says nothing: that it is there is the conflict."""
    at_ns = harness.now_ns()
    other = harness.witness.create_publisher(Float64MultiArray, ACTION, 1)
    named = harness.until(lambda: harness.witness.state["conflict"], PATIENCE_S)
    named_ns = int(harness.witness.state["mono_ns"]) if named else None
    harness.pause(harness.rng.uniform(0.0, 1.0))
    harness.witness.destroy_publisher(other)
    if not harness.until(lambda: not harness.witness.state["conflict"], PATIENCE_S):
        harness.judge.violate("conflict stays", "the other publisher is gone")
    return at_ns, named_ns


def publishers_at_arming(harness: SoakHarness) -> Times:
    """Two that appear at once while somebody arms: refused, or disarmed again."""
    harness.answer(lambda: harness.witness.call("actuator/disarm"))
    others = [harness.witness.create_publisher(Float64MultiArray, ACTION, 1) for _ in range(2)]
    try:
        at_ns = harness.now_ns()
        armed = harness.arm()
        if not armed or harness.says("disarmed", PATIENCE_S):
            disarmed_ns: int | None = max(at_ns, int(harness.witness.state["mono_ns"]))
        else:
            disarmed_ns = None
            harness.judge.violate("armed beside others", "two publishers appeared when it was armed")
        harness.until(lambda: harness.witness.state["conflict"], PATIENCE_S)
    finally:
        for each in others:
            harness.witness.destroy_publisher(each)
    if not harness.until(lambda: not harness.witness.state["conflict"], PATIENCE_S):
        harness.judge.violate("conflict stays", "the other publishers are gone")
    return at_ns, disarmed_ns


def qos_mismatch(harness: SoakHarness) -> Times:
    """A node names each pair of topic and policy at once, but once in its life: one that knows them all is killed."""
    said = harness.witness.said

    def known(each: Mismatch) -> bool:
        return said.count(f"{each.node}: qos", each.key) > 0

    fresh = [each for each in mismatches() if not known(each)]
    if not fresh:
        agent_killed(harness)
        harness.drive()
        harness.until(lambda: not all(known(each) for each in mismatches()), PATIENCE_S)
        fresh = [each for each in mismatches() if not known(each)]
    chosen = harness.rng.choice(fresh)
    with _endpoint(harness, chosen):
        at_ns = harness.now_ns()
        named = harness.until(lambda: known(chosen), PATIENCE_S)
    status = said.status(f"{chosen.node}: qos")
    if named and f"{chosen.label}: incompatible {chosen.policy}" not in status.message:
        harness.judge.violate("qos_mismatch: not named", f"'{status.message}' of {chosen.key}")
    return at_ns, status.heard_ns if named else None


@contextmanager
def _endpoint(harness: SoakHarness, chosen: Mismatch) -> Iterator[None]:
    node = harness.witness
    if chosen.publishes:
        publisher = node.create_publisher(chosen.kind, chosen.topic, chosen.profile)
        yield
        node.destroy_publisher(publisher)
    else:
        subscription = node.create_subscription(chosen.kind, chosen.topic, lambda _: None, chosen.profile)
        yield
        node.destroy_subscription(subscription)


def bad_parameter(harness: SoakHarness) -> Times:
    """Refused, and whoever drives drives on. Measured to the refusal."""
    name, value = harness.draw("bad_parameter", BAD_PARAMETERS)
    at_ns = harness.now_ns()
    response = harness.answer(lambda: harness.witness.set_parameter(name, value), PATIENCE_S)
    answered_ns = harness.now_ns()
    refused = response is not None and not response.results[0].successful
    if not refused:
        harness.judge.violate("bad_parameter: taken", name)
    harness.undisturbed(at_ns, f"a bad {name}")
    return at_ns, answered_ns if refused else None


def clock_set_back(harness: SoakHarness) -> Times:
    """The actuator follows a clock of ours. An hour forward is no reset, since ages are not on this clock; back is
    another world, and disarms."""
    now_s = [1000.0]

    def tick() -> None:
        now_s[0] += CLOCK_S
        seconds = int(now_s[0])
        topic.publish(ClockMsg(clock=TimeMsg(sec=seconds, nanosec=int((now_s[0] - seconds) * 1e9))))

    topic = harness.witness.create_publisher(ClockMsg, "/clock", QoSProfile(depth=1, reliability=BEST_EFFORT))
    timer = harness.witness.create_timer(CLOCK_S, tick, clock=Clock(clock_type=ClockType.STEADY_TIME))
    try:
        _follow(harness, True)
        harness.drive()
        now_s[0] += AN_HOUR_S
        forward_ns = harness.now_ns()
        harness.pause(0.5)
        if any(each.mono_ns > forward_ns and each.state == "disarmed" for each in harness.judge.sent):
            harness.judge.violate("clock_set_back: forward", "an hour forward has disarmed")
        harness.steady()
        at_ns = harness.now_ns()
        now_s[0] -= AN_HOUR_S / 2
        tick()
        disarmed_ns = harness.first_of("disarmed", at_ns, PATIENCE_S)
        harness.pause(0.5)
    finally:
        _follow(harness, False)
        harness.witness.destroy_timer(timer)
        harness.witness.destroy_publisher(topic)
    return at_ns, disarmed_ns


def _follow(harness: SoakHarness, on: bool) -> None:
    """A change of clocks disarms too."""
    response = harness.answer(lambda: harness.witness.simulated_time(on), PATIENCE_S)
    if response is None or not response.results[0].successful:
        harness.judge.violate("use_sim_time refused", f"the actuator did not take {on}")
    harness.says("disarmed", PATIENCE_S)
