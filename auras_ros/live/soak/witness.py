"""The node that listens to the loop while it is broken, calls its services, and presses the emergency stop.

It publishes no command, and decides nothing: what it hears of commands goes to the judge.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import numpy as np

from auras_ros.clock import MonotonicClock, difference_ns
from auras_ros.live.chunk_times import ChunkTimes, values_of
from auras_ros.live.soak.judge import Judge, ReceivedAction, ReceivedTrajectory
from auras_ros.live.soak.log_listener import LogListener
from auras_ros.live.soak.topics import ACTION, BUTTON, EVERY
from auras_ros.nodes.common.messages import read_action
from auras_ros.nodes.common.qos import LATCHED
from auras_ros.nodes.common.texts import MessageError, read_json
from auras_ros.ros import Future, Node, QoSProfile, ReliabilityPolicy
from auras_ros.ros.image import stamp_ns
from auras_ros.ros.msg import (
    Bool,
    DiagnosticArray,
    Float64MultiArray,
    JointTrajectory,
    ParameterMsg,
    String,
    Transition,
)
from auras_ros.ros.srv import ChangeState, SetParameters, Trigger

NEWEST = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
JUST_NOW_NS = 200_000_000
ANOTHER_CLOCK_NS, LATE_NS = 5_000_000_000, 40_000_000
SERVICES = ("pusht/reset", "actuator/arm", "actuator/disarm", "actuator/stop", "actuator/release_stop", "agent/reset")


class Witness(Node):
    """`state` and `heartbeat`: the newest words of actuator and agent. `chunks`: the newest ones. `logs`: logs and
    diagnostics."""

    def __init__(self, judge: Judge, **node_options: Any) -> None:
        super().__init__("soak", **node_options)
        self.judge = judge
        self._monotonic = MonotonicClock()
        self.state: dict[str, Any] = {}
        self.heartbeat: dict[str, Any] = {}
        self.chunks: deque[ChunkTimes] = deque(maxlen=100)
        self._skipped_before = 0  # ticks missed by actuators that are dead
        self.logs = LogListener(self)
        self.create_subscription(Float64MultiArray, ACTION, self._on_action, EVERY)
        self.create_subscription(JointTrajectory, "joint_trajectory", self._on_trajectory, EVERY)
        self.create_subscription(String, "actuator/state", self._on_state, LATCHED)
        self.create_subscription(String, "agent/heartbeat", self._on_heartbeat, NEWEST)
        self.create_subscription(DiagnosticArray, "provenance", self._on_provenance, EVERY)
        self._button = self.create_publisher(*BUTTON)
        self._triggers = {name: self.create_client(Trigger, name) for name in SERVICES}
        self._transitions = self.create_client(ChangeState, "agent/change_state")
        self._actuator_parameters = self.create_client(SetParameters, "actuator/set_parameters")

    def call(self, service: str) -> Future | None:
        """Ask; None where nobody answers that service now."""
        return asked(self._triggers[service], Trigger.Request())

    def change(self, label: str) -> Future | None:
        """Ask the agent for a transition; None where nobody answers."""
        return asked(self._transitions, ChangeState.Request(transition=Transition(label=label)))

    def set_parameter(self, name: str, value: Any) -> Future | None:
        """Ask the actuator for another value; None where nobody answers."""
        parameters = [ParameterMsg(name=name, value=value)]
        return asked(self._actuator_parameters, SetParameters.Request(parameters=parameters))

    def press(self, pressed: bool) -> None:
        self._button.publish(Bool(data=pressed))

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

    def _on_trajectory(self, message: JointTrajectory) -> None:
        """Stamped by the host's clock, or by another one that it is to follow: then the time of receipt counts."""
        heard_ns, late_ns = self._monotonic.now_ns(), 0
        mono_ns = stamp_ns(message) - difference_ns(time.time_ns, self._monotonic.now_ns)
        if abs(heard_ns - mono_ns) > ANOTHER_CLOCK_NS:
            mono_ns, late_ns = heard_ns, LATE_NS
        rows = np.array([each.positions for each in message.points])
        after_ns = np.array([stamp_ns(each.time_from_start) for each in message.points])
        self.judge.trajectory(ReceivedTrajectory(mono_ns, rows, after_ns, late_ns))

    def _on_state(self, message: String) -> None:
        fields = self._read(message, {"state", "mono_ns", "skipped_ticks", "conflict", "tick"})
        if fields and fields["tick"] < self.state.get("tick", 0):  # another life
            self._skipped_before = self.skipped
        self.state = fields or self.state

    def _on_heartbeat(self, message: String) -> None:
        self.heartbeat = self._read(message, {"session", "lifecycle"}) or self.heartbeat

    def _read(self, message: String, keys: set[str]) -> dict[str, Any]:
        try:
            fields = read_json(message.data, "soak")
        except MessageError:
            return {}
        return fields if keys <= fields.keys() else {}

    def _on_provenance(self, message: DiagnosticArray) -> None:
        self.chunks.extend(ChunkTimes.from_values(values_of(status)) for status in message.status)


def asked(client: Any, request: Any) -> Future | None:
    """Call a service; None where nobody answers it now."""
    return client.call_async(request) if client.service_is_ready() else None
