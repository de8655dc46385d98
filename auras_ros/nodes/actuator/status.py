"""The actuator's reports: the fields of `~/state`, which is published twenty times a second, and its diagnostics.

It only reads, and runs in the executor's thread.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from auras_ros.action import SafetyState
from auras_ros.clock import MonotonicClock
from auras_ros.nodes.actuator.agent_watch import AgentWatch
from auras_ros.nodes.actuator.arming import ACTIVE, STOP_QOS
from auras_ros.nodes.actuator.command_loop import CommandLoop
from auras_ros.nodes.actuator.emergency_stop import TOPIC as STOP_TOPIC
from auras_ros.nodes.actuator.inputs import ActuatorInputs
from auras_ros.nodes.actuator.other_publishers import OtherPublishers, conflict_text
from auras_ros.nodes.actuator.settings import ActuatorSettings
from auras_ros.nodes.common.diagnostics import DiagnosticReport, Diagnostics, Level, QosWatch

LATE_TICK_MS = 5.0  # a larger interval error is a warning


class ActuatorStatus:
    """The fields of the state message, and the diagnostic tasks."""

    def __init__(
        self,
        settings: ActuatorSettings,
        drive: CommandLoop,
        inputs: ActuatorInputs,
        agent: AgentWatch,
        conflict: OtherPublishers,
    ) -> None:
        self._settings, self._drive, self._inputs, self._agent = settings, drive, inputs, agent
        self._conflict, self._clock = conflict, MonotonicClock()

    def add_to(self, diagnostics: Diagnostics, qos: QosWatch) -> None:
        for task, check in (
            ("state", self.state),
            ("agent", self.agent),
            ("timing", self.timing),
            ("limits", self.limits),
            ("chunks", self.chunks),
            ("command topic", self.command_topic),
            ("emergency stop", self.emergency_stop),
            ("qos", qos.check),
        ):
            diagnostics.add(task, check)

    def fields(self) -> dict[str, Any]:
        """The fields of `~/state` (docs/interfaces.md)."""
        drive, inputs, error = self._drive, self._inputs, self._drive.meter.summary()
        stream = drive.stream
        return {
            "state": stream.state.value,
            "reason": drive.reason,
            "session": stream.session,
            "agent": self._agent.session,
            "lifecycle": self._agent.lifecycle,
            "tick": drive.ticks,
            "mono_ns": self._clock.now_ns(),
            "scheduling": drive.scheduling,
            "memory": drive.settled.memory,
            "collector": drive.settled.collector,
            "interval_error_ms": dataclasses.asdict(error) if error else None,
            "skipped_ticks": drive.skipped,
            "stalls": drive.stalls,
            "conflict": list(self._conflict.others),
            "emergency_stop": inputs.stop.pressed,
            "limits": inputs.limits,
            "unreadable": inputs.refused.count,
            "counters": stream.counters(),
        }

    # -- diagnostics --------------------------------------------------------------------------------------

    def state(self) -> DiagnosticReport:
        stream = self._drive.stream
        levels = {SafetyState.STOPPED: Level.ERROR, SafetyState.HOLDING: Level.WARN}
        reason = self._drive.reason
        values = {"state": stream.state.value, "reason": reason, "tick": self._drive.ticks}
        return DiagnosticReport(levels.get(stream.state, Level.OK), f"{stream.state.value}: {reason}", values)

    def agent(self) -> DiagnosticReport:
        agent, name = self._agent, self._settings.agent
        values = {"session": agent.session, "lifecycle": agent.lifecycle, "state": agent.state}
        age_ns = agent.age_ns(self._clock.now_ns())
        if age_ns is None:
            return DiagnosticReport(Level.STALE, f"no heartbeat of '{name}' yet", values)
        if age_ns > self._settings.agent_timeout_ms * 1e6:
            return DiagnosticReport(Level.STALE, f"'{name}' has been silent for {age_ns / 1e9:.1f} s", values)
        if agent.lifecycle != ACTIVE:
            return DiagnosticReport(Level.WARN, f"'{name}' is {agent.lifecycle or 'of no known state'}", values)
        return DiagnosticReport(Level.OK, f"'{name}' is active: {agent.state}", values)

    def timing(self) -> DiagnosticReport:
        drive, error = self._drive, self._drive.meter.summary()
        values: dict[str, object] = {"scheduling": drive.scheduling, "memory": drive.settled.memory}
        values |= {"collector": drive.settled.collector, "skipped ticks": drive.skipped}
        values["trajectories superseded"] = drive.superseded
        if error is None:
            return DiagnosticReport(Level.OK, "no interval measured yet", values)
        values |= {f"interval error {key}": f"{value:.3f} ms" for key, value in dataclasses.asdict(error).items()}
        values["interval error n"] = error.n
        text = f"interval error p99 {error.p99:.2f} ms, {drive.skipped} ticks skipped"
        return DiagnosticReport(Level.WARN if error.p99 > LATE_TICK_MS else Level.OK, text, values)

    def limits(self) -> DiagnosticReport:
        inputs, drive = self._inputs, self._drive
        values: dict[str, object] = {"limits": inputs.limits, "pending": drive.limits_pending}
        bitten = {name: count for name, count in drive.limited.items() if count}
        values |= {f"{name} limited ticks": count for name, count in bitten.items()}
        if drive.limits_pending:
            return DiagnosticReport(Level.WARN, "new limits will be used once disarmed", values)
        return DiagnosticReport(Level.OK, f"limited: {', '.join(bitten)}" if bitten else "nothing limited", values)

    def chunks(self) -> DiagnosticReport:
        counters = self._drive.stream.counters()
        refused = counters.pop("refused")
        values = {**counters, **{f"refused {reason}": count for reason, count in refused.items()}}
        unreadable = self._inputs.refused
        values |= {"unreadable": unreadable.count, "last unreadable": unreadable.newest}
        wrong = unreadable.count + sum(refused.get(name, 0) for name in ("non_finite", "over_limit"))
        text = f"{counters['accepted']} accepted, {sum(refused.values())} refused, {unreadable.count} unreadable"
        return DiagnosticReport(Level.WARN if wrong else Level.OK, text, values)

    def command_topic(self) -> DiagnosticReport:
        topics = {"topic": self._settings.action_topic}
        if self._conflict.others:
            return DiagnosticReport(Level.ERROR, conflict_text(self._conflict.others), topics)
        return DiagnosticReport(Level.OK, "only this node publishes commands", topics)

    def emergency_stop(self) -> DiagnosticReport:
        stop, required = self._inputs.stop, self._settings.require_emergency_stop
        pressers, publishers = stop.pressers(), stop.publishers()
        values = {"pressed": ", ".join(pressers), "publishers": len(publishers), "required": required}
        if pressers:
            return DiagnosticReport(Level.ERROR, f"pressed by {values['pressed']}", values)
        if deaf := stop.deaf_to():
            text = f"cannot receive {', '.join(deaf)}: publish it as {STOP_QOS}"
            return DiagnosticReport(Level.WARN, text, values)
        if required and not stop.present():
            return DiagnosticReport(Level.WARN, f"nobody publishes {STOP_TOPIC}, and it is required", values)
        return DiagnosticReport(Level.OK, "not pressed" if publishers else "none", values)
