"""Whether the actuator supervises this agent, from the actuator's state: small texts that are not trusted. Malformed
messages are refused and counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from auras_ros.clock import MonotonicClock
from auras_ros.nodes.common.bounded_subscription import subscribe
from auras_ros.nodes.common.diagnostics import DiagnosticReport, Level, QosWatch
from auras_ros.nodes.common.messages import JSON_LIMITS
from auras_ros.nodes.common.qos import LATCHED
from auras_ros.nodes.common.texts import MessageError, read_json
from auras_ros.repeated_lines import RepeatedLines
from auras_ros.ros import Node
from auras_ros.ros.msg import String

DISCOVERY_NS = 2_000_000_000


class ActuatorWatch:
    """Whether a state of the actuator came lately: without an actuator nothing would check our chunks."""

    def __init__(self, node: Node, name: str, timeout_ms: float, qos: QosWatch) -> None:
        self._node, self._name, self._timeout_ns = node, name, timeout_ms * 1e6
        self._monotonic = MonotonicClock()
        self._since_ns = self._monotonic.now_ns()
        self._heard_ns: int | None = None
        self._follows = ""  # the agent's session whose chunks it executes now
        self._unreadable = 0
        self._was_silent = False
        self._said = False  # whether the newest line in the log says that it is silent
        self._lines = RepeatedLines()
        self._topic = subscribe(
            qos, String, f"{name}/state", self._on_state, LATCHED, JSON_LIMITS, self._refuse, periodic=True
        )

    def close(self) -> None:
        self._topic.close()

    def _on_state(self, message: String) -> None:
        """Raises MessageError."""
        fields = read_json(message.data, "actuator state")
        sent_ns = _sent_ns(fields)
        # `_follows` first, then `_heard_ns`: a reader in between must not take the old session for fresh.
        self._follows = str(fields.get("session")) if fields.get("state") == "armed" else ""
        self._heard_ns = min(sent_ns, self._monotonic.now_ns())  # a latched state of a dead actuator is old

    def _refuse(self, error: ValueError) -> None:
        self._unreadable += 1
        if line := self._lines.line("state", f"refused: {error}"):
            self._node.get_logger().warning(line)

    def silent(self) -> bool:
        """Whether its state is missing or too old; from any thread."""
        heard_ns = self._heard_ns
        return heard_ns is None or self._monotonic.now_ns() - heard_ns > self._timeout_ns

    def executes(self, session: str) -> bool:
        """Whether it executes chunks of this session, according to its last state; from any thread."""
        return bool(session) and self._follows == session and not self.silent()

    def lost(self) -> bool:
        """Whether it is silent, and not only because it is not yet discovered. Logs when that changes."""
        silent = self.silent()
        if self._heard_ns is None and self._monotonic.now_ns() - self._since_ns < DISCOVERY_NS:
            return False
        is_change = silent is not self._was_silent
        self._was_silent = silent
        if silent is not self._said:
            self._say(silent, is_change)
        return silent

    def _say(self, silent: bool, is_change: bool) -> None:
        name, logger = self._name, self._node.get_logger()
        text = f"actuator '{name}' is silent: no chunk is published" if silent else f"actuator '{name}' is back"
        if line := self._lines.line("life", text, is_event=is_change):
            self._said = silent
            (logger.error if silent else logger.info)(line)

    def check(self) -> DiagnosticReport:
        heard_ns = self._heard_ns
        age = "never" if heard_ns is None else f"{(self._monotonic.now_ns() - heard_ns) / 1e6:.0f}"
        values = {"actuator": self._name, "age_ms": age, "unreadable": self._unreadable}
        if self.silent():
            return DiagnosticReport(Level.ERROR, f"actuator '{self._name}' is silent: no chunk is published", values)
        return DiagnosticReport(Level.OK, "the actuator is alive", values)


def _sent_ns(fields: Mapping[str, Any]) -> int:
    """When the actuator sent this state. Raises MessageError."""
    try:
        return int(fields["mono_ns"])
    except KeyError:
        raise MessageError("actuator state: mono_ns: missing") from None
    except (TypeError, ValueError, OverflowError):
        raise MessageError(f"actuator state: mono_ns: {str(fields['mono_ns'])[:80]!r} is not a time") from None
