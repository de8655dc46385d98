"""Faults of those around: people who press and deactivate, a stranger on the command topic, endpoints whose QoS does
not fit, a clock that goes back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from auras_ros.live.soak.faults.processes import agent_killed
from auras_ros.live.soak.harness import PATIENCE_S, SoakHarness, Times
from auras_ros.live.soak.topics import ACTIONS, JOINTS, STATE_LISTENERS, STATES
from auras_ros.ros import DurabilityPolicy, Duration, LivelinessPolicy, QoSProfile, ReliabilityPolicy, msg

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
DOUBLE, TEXT = msg.ParameterType.PARAMETER_DOUBLE, msg.ParameterType.PARAMETER_STRING
BAD_PARAMETERS = [
    ("rate_hz", msg.ParameterValue(type=DOUBLE, double_value=float("nan"))),
    ("rate_hz", msg.ParameterValue(type=TEXT, string_value="fast")),
    ("agent_timeout_ms", msg.ParameterValue(type=DOUBLE, double_value=1e9)),
    ("nobody_declared_it", msg.ParameterValue(type=DOUBLE, double_value=1.0)),
]
CLOCK_S = 0.05
MOVED_S = 0.01
TABLE_PX = 512.0
AN_HOUR_S = 3600.0


@dataclass(frozen=True)
class Mismatch:
    """An endpoint of ours that one of theirs does not fit."""

    node: str
    topic: str
    kind: Any
    publishes: bool
    policy: str
    profile: QoSProfile

    @property
    def label(self) -> str:
        """How `node` calls the topic in the diagnostic."""
        return self.topic.replace(f"{self.node}/", "~/")

    @property
    def key(self) -> str:
        return f"{self.label} incompatible {self.policy}"


def mismatches() -> list[Mismatch]:
    """Every pair of topic and policy that can be missed on the topics of agent and actuator. A volatile button is none:
    the emergency stop hears it."""
    heard = [
        ("agent", "prompt", msg.String), ("agent", "actuator/state", msg.String),
        ("actuator", "emergency_stop", msg.Bool), ("actuator", "robot_description", msg.String),
    ]  # fmt: skip
    heartbeat = "agent", "agent/heartbeat", msg.String
    told = [("agent", "agent/chunk", msg.Float64MultiArray), heartbeat, ("agent", "provenance", msg.DiagnosticArray)]
    weak = [Mismatch(*where, True, *policy) for where in heard for policy in WEAK.items()]
    return [
        *(each for each in weak if (each.topic, each.policy) != ("emergency_stop", "DURABILITY")),
        *(Mismatch(*where, False, *picky) for where in told for picky in PICKY.items()),
        Mismatch(*heartbeat, False, "RELIABILITY", QoSProfile(depth=1)),
    ]


def agent_deactivated(harness: SoakHarness) -> Times:
    """The hold command is the last one; the judge hears any that comes after it."""
    at_ns = harness.now_ns()
    harness.answer(lambda: harness.witness.change("deactivate"), PATIENCE_S)
    held_ns = harness.left_armed(at_ns)
    if not harness.says("disarmed"):
        harness.judge.violate("not disarmed", "the agent was deactivated")
    harness.pause(harness.rng.uniform(0.2, 1.0))
    harness.answer(lambda: harness.witness.change("activate"), PATIENCE_S)
    return at_ns, held_ns


def robot_moved(harness: SoakHarness) -> Times:
    """Somebody puts it at the other end of the table. Measured to the last command that drives it.

    It is said until the actuator disarms: joint_states are best effort, and one message may be lost.
    """
    with harness.publisher(STATES, STATE_LISTENERS) as publisher:
        far = [0.0 if value > TABLE_PX / 2 else TABLE_PX for value in harness.judge.sent[-1].values]
        moved = partial(publisher.publish, msg.JointState(name=list(JOINTS), position=far))
        at_ns = harness.now_ns()
        with harness.timer(MOVED_S, moved):
            disarmed = harness.says("disarmed")
    if not disarmed:
        harness.judge.violate("robot_moved: driven on", f"it is at {far}")
        return at_ns, None
    harness.judge.silenced()
    harness.until(lambda: not harness.witness.driving)  # so that it is armed again before the next fault
    return at_ns, max(harness.driven_ns(at_ns), default=at_ns)


def _alone_again(harness: SoakHarness, who: str) -> None:
    harness.expect(lambda: not harness.witness.state["conflict"], "conflict stays", who)


def second_publisher(harness: SoakHarness) -> Times:
    """It says nothing: that it is there is the conflict."""
    at_ns = harness.now_ns()
    with harness.publisher(ACTIONS, listeners=0):
        named = harness.until(lambda: harness.witness.state["conflict"])
        named_ns = int(harness.witness.state["mono_ns"]) if named else None
        harness.pause(harness.rng.uniform(0.0, 1.0))
    _alone_again(harness, "the other publisher is gone")
    return at_ns, named_ns


def publishers_at_arming(harness: SoakHarness) -> Times:
    """Two that appear at once while somebody arms: refused, or disarmed again."""
    disarmed_ns = None
    harness.call("actuator/disarm")
    with harness.publisher(ACTIONS, listeners=0), harness.publisher(ACTIONS, listeners=0):
        at_ns = harness.now_ns()
        if not harness.arm() or harness.says("disarmed"):
            disarmed_ns = max(at_ns, int(harness.witness.state["mono_ns"]))
        else:
            harness.judge.violate("armed beside others", "two publishers appeared when it was armed")
        harness.until(lambda: harness.witness.state["conflict"])
    _alone_again(harness, "the other publishers are gone")
    return at_ns, disarmed_ns


def qos_mismatch(harness: SoakHarness) -> Times:
    """A node names each pair of topic and policy at once, but once in its life: one that knows them all is killed."""
    logs = harness.witness.logs

    def known(each: Mismatch) -> bool:
        return logs.count(f"{each.node}: qos", each.key) > 0

    def fresh() -> list[Mismatch]:
        return [each for each in mismatches() if not known(each)]

    if not fresh():
        agent_killed(harness)
        harness.drive()
        harness.until(fresh)
    chosen = harness.rng.choice(fresh())
    topic = chosen.kind, chosen.topic, chosen.profile
    publishes = chosen.publishes
    with harness.publisher(topic, listeners=0) if publishes else harness.subscription(topic, lambda _: None):
        at_ns = harness.now_ns()
        named = harness.until(lambda: known(chosen))
    status = logs.status(f"{chosen.node}: qos")
    if named and f"{chosen.label}: incompatible {chosen.policy}" not in status.message:
        harness.judge.violate("qos_mismatch: not named", f"'{status.message}' of {chosen.key}")
    return at_ns, status.heard_ns if named else None


def bad_parameter(harness: SoakHarness) -> Times:
    """Refused, and whoever drives drives on. Measured to the refusal."""
    name, value = harness.draw("bad_parameter", BAD_PARAMETERS)
    at_ns = harness.now_ns()
    refused, answered_ns = harness.sets(name, value) is False, harness.now_ns()
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
        topic.publish(msg.ClockMsg(clock=msg.TimeMsg(sec=seconds, nanosec=int((now_s[0] - seconds) * 1e9))))

    clock = msg.ClockMsg, "/clock", QoSProfile(depth=1, reliability=BEST_EFFORT)
    with harness.publisher(clock, listeners=0) as topic, harness.timer(CLOCK_S, tick):
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
            disarmed_ns = harness.first_of("disarmed", at_ns)
            harness.pause(0.5)
        finally:
            _follow(harness, False)
    return at_ns, disarmed_ns


def _follow(harness: SoakHarness, on: bool) -> None:
    """A change of clocks disarms too."""
    value = msg.ParameterValue(type=msg.ParameterType.PARAMETER_BOOL, bool_value=on)
    if not harness.sets("use_sim_time", value):
        harness.judge.violate("use_sim_time refused", f"the actuator did not take {on}")
    harness.says("disarmed")
