"""The node that listens to the loop while it is broken, calls its services, and presses the emergency stop.

It publishes no command, and decides nothing: what it hears of commands goes to the judge.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from auras_ros.clock import MonotonicClock
from auras_ros.live.soak.judge import Judge, ReceivedAction
from auras_ros.live.soak.qos import EVERY, LATCHED
from auras_ros.live.soak.said import LogListener
from auras_ros.nodes.common.messages import MessageError, read_action, read_json
from auras_ros.ros import Future, Node, QoSProfile, ReliabilityPolicy
from auras_ros.ros.msg import (
    Bool,
    DiagnosticArray,
    Float64MultiArray,
    ParameterMsg,
    ParameterType,
    ParameterValue,
    String,
    Transition,
)
from auras_ros.ros.srv import ChangeState, SetParameters, Trigger

ACTION = "action"
NEWEST = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
JUST_NOW_NS = 200_000_000
SERVICES = ("pusht/reset", "actuator/arm", "actuator/disarm", "actuator/stop", "actuator/release_stop", "agent/reset")


@dataclass(frozen=True)
class MadeChunk:
    """One chunk, as the agent tells of it: when its observation was made, latched, and the chunk published (monotonic
    ns), and the prompt that it answers."""

    origin_ns: int
    latched_ns: int
    published_ns: int
    prompt: str


class Witness(Node):
    """`state` and `beat`: the newest words of actuator and agent. `chunks`: the newest ones. `said`: logs and
    diagnostics."""

    def __init__(self, judge: Judge, **node_options: Any) -> None:
        super().__init__("soak", **node_options)
        self.judge = judge
        self._monotonic = MonotonicClock()
        self.state: dict[str, Any] = {}
        self.beat: dict[str, Any] = {}
        self.chunks: deque[MadeChunk] = deque(maxlen=100)
        self.unreadable = 0
        self._skipped_before = 0  # ticks missed by actuators that are dead
        self.said = LogListener(self)
        self.create_subscription(Float64MultiArray, ACTION, self._on_action, EVERY)
        self.create_subscription(String, "actuator/state", self._on_state, LATCHED)
        self.create_subscription(String, "agent/heartbeat", self._on_beat, NEWEST)
        self.create_subscription(DiagnosticArray, "provenance", self._on_provenance, EVERY)
        self._button = self.create_publisher(Bool, "emergency_stop", LATCHED)
        self._triggers = {name: self.create_client(Trigger, name) for name in SERVICES}
        self._transitions = self.create_client(ChangeState, "agent/change_state")
        self._actuator_parameters = self.create_client(SetParameters, "actuator/set_parameters")

    def call(self, service: str) -> Future | None:
        """Ask; None where nobody answers that service now."""
        client = self._triggers[service]
        return client.call_async(Trigger.Request()) if client.service_is_ready() else None

    def change(self, label: str) -> Future | None:
        """Ask the agent for a transition; None where nobody answers."""
        if not self._transitions.service_is_ready():
            return None
        return self._transitions.call_async(ChangeState.Request(transition=Transition(label=label)))

    def simulated_time(self, on: bool) -> Future | None:
        """Ask the actuator to follow /clock, or to leave it; None where nobody answers."""
        return self.set_parameter("use_sim_time", ParameterValue(type=ParameterType.PARAMETER_BOOL, bool_value=on))

    def set_parameter(self, name: str, value: Any) -> Future | None:
        """Ask the actuator for another value; None where nobody answers."""
        if not self._actuator_parameters.service_is_ready():
            return None
        asked = [ParameterMsg(name=name, value=value)]
        return self._actuator_parameters.call_async(SetParameters.Request(parameters=asked))

    def press(self, pressed: bool) -> None:
        self._button.publish(Bool(data=pressed))

    @property
    def published_ns(self) -> list[int]:
        """When the newest chunks were published."""
        return [each.published_ns for each in self.chunks]

    @property
    def skipped(self) -> int:
        """Ticks that actuators have missed since this began to listen."""
        return self._skipped_before + int(self.state.get("skipped_ticks", 0))

    @property
    def driving(self) -> bool:
        """Whether the newest command came from a chunk, just now: the last words of a dead actuator may have too."""
        sent = self.judge.sent
        return bool(sent) and sent[-1].state == "armed" and self._monotonic.now_ns() - sent[-1].mono_ns < JUST_NOW_NS

    # -- what arrives; garbage of our own is among it -----------------------------------------------------

    def _on_action(self, message: Float64MultiArray) -> None:
        try:
            values, label = read_action(message)
        except MessageError as error:
            self.judge.violate("unreadable action", str(error))
            return
        self.judge.action(ReceivedAction(label.mono_ns, label.state, label.tick, label.age_ns, values, label.request))

    def _on_state(self, message: String) -> None:
        fields = self._read(message, ("state", "mono_ns", "skipped_ticks", "conflict", "tick"))
        if fields and fields["tick"] < self.state.get("tick", 0):  # another life
            self._skipped_before = self.skipped
        self.state = fields or self.state

    def _on_beat(self, message: String) -> None:
        fields = self._read(message, ("session", "lifecycle"))
        self.beat = fields or self.beat

    def _read(self, message: String, keys: tuple[str, ...]) -> dict[str, Any]:
        try:
            fields = read_json(message.data, "soak")
        except MessageError:
            fields = {}
        if not set(keys) <= set(fields):
            self.unreadable += 1
            return {}
        return fields

    def _on_provenance(self, message: DiagnosticArray) -> None:
        for status in message.status:
            values = {pair.key: pair.value for pair in status.values}
            origin, latched, published = (int(values[f"{name}_ns"]) for name in ("origin_mono", "latched", "published"))
            self.chunks.append(MadeChunk(origin, latched, published, values["prompt"]))
