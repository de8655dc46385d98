"""The actuator's reports: the fields of `~/state`, which is published twenty times a second, and its diagnostics.

It only reads, and runs in the executor's thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from auras_ros.action import SafetyState
from auras_ros.clock import MonotonicClock
from auras_ros.nodes.actuator.arming import ACTIVE
from auras_ros.nodes.actuator.command_loop import CommandLoop
from auras_ros.nodes.actuator.command_subscribers import CommandSubscribers
from auras_ros.nodes.actuator.inputs import ActuatorInputs
from auras_ros.nodes.actuator.other_publishers import OtherPublishers, conflict_text
from auras_ros.nodes.actuator.settings import ActuatorSettings
from auras_ros.nodes.actuator.stop_words import STOP_QOS
from auras_ros.nodes.common.diagnostics import DiagnosticReport, Level

LATE_TICK_MS = 5.0  # a larger interval error is a warning


class ActuatorStatus:
    """The fields of the state message, and the diagnostic tasks."""

    def __init__(
        self,
        settings: ActuatorSettings,
        loop: CommandLoop,
        inputs: ActuatorInputs,
        conflict: OtherPublishers,
        subscribers: CommandSubscribers,
    ) -> None:
        self._settings, self._loop, self._inputs, self._agent = settings, loop, inputs, loop.agent
        self._conflict, self._clock = conflict, MonotonicClock()
        self._subscribers = subscribers

    def tasks(self) -> dict[str, Callable[[], DiagnosticReport]]:
        return {
            "state": self._state,
            "agent": self._agent_report,
            "timing": self._timing,
            "limits": self._limits,
            "chunks": self._chunks,
            "joint states": self._joint_states,
            "command topic": self._command_topic,
            "emergency stop": self._emergency_stop,
        }

    def fields(self) -> dict[str, Any]:
        """The fields of `~/state` (docs/interfaces.md)."""
        loop, inputs, error = self._loop, self._inputs, self._loop.meter.summary()
        stream = loop.stream
        return {
            "state": stream.state.value,
            "reason": loop.reason,
            "session": stream.session,
            "agent": self._agent.session,
            "lifecycle": self._agent.lifecycle,
            "tick": loop.ticks,
            "mono_ns": self._clock.now_ns(),
            "scheduling": loop.scheduling,
            "memory": loop.granted.memory,
            "collector": loop.granted.collector,
            "interval_error_ms": dataclasses.asdict(error) if error else None,
            "skipped_ticks": loop.skipped,
            "stalls": loop.stalls,
            "conflict": list(self._conflict.others),
            "emergency_stop": inputs.stop.buttons.pressed,
            "emergency_stop_rule": str(inputs.stop.rules),
            "emergency_stop_latched": inputs.stop.buttons.latched,
            "limits": inputs.limits,
            "unreadable": inputs.refused.count,
            "counters": stream.counters(),
        }

    # -- diagnostics --------------------------------------------------------------------------------------

    def _state(self) -> DiagnosticReport:
        stream = self._loop.stream
        levels = {SafetyState.STOPPED: Level.ERROR, SafetyState.HOLDING: Level.WARN}
        reason = self._loop.reason
        values = {"state": stream.state.value, "reason": reason, "tick": self._loop.ticks}
        return DiagnosticReport(levels.get(stream.state, Level.OK), f"{stream.state.value}: {reason}", values)

    def _agent_report(self) -> DiagnosticReport:
        agent, name = self._agent, self._settings.agent
        values = {"session": agent.session, "lifecycle": agent.lifecycle, "state": agent.state}
        values["checkpoint"] = agent.checkpoint
        age_ns = agent.age_ns(self._clock.now_ns())
        if age_ns is None:
            return DiagnosticReport(Level.STALE, f"no heartbeat of '{name}' yet", values)
        if age_ns > self._settings.agent_timeout_ms * 1e6:
            return DiagnosticReport(Level.STALE, f"'{name}' has been silent for {age_ns / 1e9:.1f} s", values)
        if agent.lifecycle != ACTIVE:
            return DiagnosticReport(Level.WARN, f"'{name}' is {agent.lifecycle or 'of no known state'}", values)
        if agent.other_checkpoint:
            return DiagnosticReport(Level.ERROR, f"'{name}' {agent.other_checkpoint}", values)
        return DiagnosticReport(Level.OK, f"'{name}' is active: {agent.state}", values)

    def _timing(self) -> DiagnosticReport:
        loop, error = self._loop, self._loop.meter.summary()
        values: dict[str, object] = {"scheduling": loop.scheduling, "memory": loop.granted.memory}
        values |= {"collector": loop.granted.collector, "skipped ticks": loop.skipped}
        values["trajectories superseded"] = loop.superseded
        if error is None:
            return DiagnosticReport(Level.OK, "no interval measured yet", values)
        values |= {f"interval error {key}": f"{value:.3f} ms" for key, value in dataclasses.asdict(error).items()}
        values["interval error n"] = error.n
        text = f"interval error p99 {error.p99:.2f} ms, {loop.skipped} ticks skipped"
        return DiagnosticReport(Level.WARN if error.p99 > LATE_TICK_MS else Level.OK, text, values)

    def _limits(self) -> DiagnosticReport:
        inputs, loop = self._inputs, self._loop
        values: dict[str, object] = {"limits": inputs.limits, "pending": loop.limits_pending}
        bitten = {name: count for name, count in loop.limited.items() if count}
        values |= {f"{name} limited ticks": count for name, count in bitten.items()}
        if loop.limits_pending:
            return DiagnosticReport(Level.WARN, "new limits will be used once disarmed", values)
        return DiagnosticReport(Level.OK, f"limited: {', '.join(bitten)}" if bitten else "nothing limited", values)

    def _chunks(self) -> DiagnosticReport:
        counters = self._loop.stream.counters()
        refused = counters.pop("refused")
        values = {**counters, **{f"refused {reason}": count for reason, count in refused.items()}}
        unreadable = self._inputs.refused
        values |= {"unreadable": unreadable.count, "last unreadable": unreadable.newest}
        wrong = unreadable.count + sum(refused.get(name, 0) for name in ("non_finite", "over_limit"))
        text = f"{counters['accepted']} accepted, {sum(refused.values())} refused, {unreadable.count} unreadable"
        return DiagnosticReport(Level.WARN if wrong else Level.OK, text, values)

    def _joint_states(self) -> DiagnosticReport:
        """Why arming is refused, for a user whose actuator arms itself and does not."""
        if not self._settings.measured_start:
            return DiagnosticReport(Level.OK, "not used: measured_start is false")
        if doubt := self._inputs.position_doubt() or self._inputs.rivals():
            return DiagnosticReport(Level.WARN, doubt)
        return DiagnosticReport(Level.OK, "no doubt about the robot's position")

    def _command_topic(self) -> DiagnosticReport:
        topics = {"topic": self._settings.action_topic}
        if self._conflict.others:
            return DiagnosticReport(Level.ERROR, conflict_text(self._conflict.others), topics)
        if mismatch := self._subscribers.mismatch:
            return DiagnosticReport(Level.WARN, mismatch, topics)
        return DiagnosticReport(Level.OK, "only this node publishes commands", topics)

    def _emergency_stop(self) -> DiagnosticReport:
        stop, required = self._inputs.stop.buttons, self._settings.require_emergency_stop
        pressers, publishers = stop.pressers(), stop.publishers()
        values = {"pressed": ", ".join(pressers), "publishers": len(publishers), "required": required}
        values |= {
            "rule": str(stop.rules),
            "refused signed words": stop.bad_words,
            "readers renewed": self._inputs.stop.renewals,
        }
        if pressers:
            return DiagnosticReport(Level.ERROR, f"pressed by {values['pressed']}", values)
        if deaf := stop.deaf_to():
            text = f"cannot receive {', '.join(deaf)}: publish it as {STOP_QOS}"
            return DiagnosticReport(Level.WARN, text, values)
        if missing := stop.missing():
            return DiagnosticReport(Level.WARN, f"{missing}, and it is required", values)
        if latched := stop.latched:
            return DiagnosticReport(Level.ERROR, f"not released: {latched}", values)
        return DiagnosticReport(Level.OK, "not pressed" if publishers else "none", values)
