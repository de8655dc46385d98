"""Diagnostics of the agent's frames: rate, durations, overruns, the active plan.

It only reads. `overload` checks the age contract, `hang_detector` detects hung frames.
"""

from __future__ import annotations

from auras_ros.clock import MonotonicClock
from auras_ros.nodes.agent.frame_runner import FrameRunner
from auras_ros.nodes.agent.overload import OverloadLevel
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.common.diagnostics import DiagnosticReport, Level


class FramesHealth:
    """Reports on the frames of one activation; executor thread."""

    def __init__(self, frames: FrameRunner, settings: AgentSettings) -> None:
        self._frames, self._settings = frames, settings
        self._monotonic = MonotonicClock()
        self._last = self._monotonic.now_ns(), frames.pipeline.executor.frames
        self._rate_hz = 0.0

    def frames(self) -> DiagnosticReport:
        """Rate since the last call, durations of the newest frames, missed ticks of the grid."""
        live, executor = self._frames.live, self._frames.pipeline.executor
        then_ns, before = self._last
        now_ns, count = self._monotonic.now_ns(), executor.frames
        if now_ns - then_ns > 500_000_000 or count < before:
            self._rate_hz = max(0, count - before) * 1e9 / (now_ns - then_ns)
            self._last = now_ns, count
        skipped = sum(clock.skipped for clock in live.frame_clocks.values())
        values: dict[str, object] = {"frames": count, "rate_hz": f"{self._rate_hz:.2f}", "missed_ticks": skipped}
        times = live.meter.times()
        if times is not None:
            values |= {"p50_ms": f"{times.p50_ms:.1f}", "p99_ms": f"{times.p99_ms:.1f}", "n": times.n}
        return DiagnosticReport(Level.OK, "frames are running" if self._rate_hz else "no frames", values)

    def plan(self) -> DiagnosticReport:
        """Which plan is active, and how it keeps the age contract."""
        overload = self._frames.overload
        values: dict[str, object] = {
            "plan": str(self._frames.pipeline.plan),
            "step": overload.step.value,
            "fallback_plan": self._settings.fallback_plan or "none",
            "max_age_ms": f"{self._settings.max_age_ms:g}",
            "oldest_ms": f"{overload.oldest_ns / 1e6:.1f}",
            "late": overload.late,
            "overruns": overload.overruns,
        }
        level, text = {
            OverloadLevel.FIRST: (Level.OK, "first plan"),
            OverloadLevel.FALLBACK: (Level.WARN, "overloaded: fallback plan"),
            OverloadLevel.HALTED: (Level.ERROR, "overloaded: no chunk is published until frames are in time"),
        }[overload.step]
        return DiagnosticReport(level, text, values)
