"""The agent's status, as heartbeats, diagnostics and the log report it. It decides nothing.

`overload` checks the age contract, `heartbeat` detects hung frames.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from auras_ros.clock import MonotonicClock
from auras_ros.device import MB, in_words
from auras_ros.loading.pipeline import Pipeline
from auras_ros.nodes.agent.configured import ConfiguredPolicy
from auras_ros.nodes.agent.frame_runner import FrameRunner
from auras_ros.nodes.agent.overload import OverloadLevel
from auras_ros.nodes.common.diagnostics import DiagnosticReport, Level
from auras_ros.nodes.common.status import LoadedNodeStatus

UNVERIFIED = "no golden sample: it was not verified that this checkpoint works here as where it was trained"
PLAN_REPORTS = {
    OverloadLevel.FIRST: (Level.OK, "first plan"),
    OverloadLevel.FALLBACK: (Level.WARN, "overloaded: fallback plan"),
    OverloadLevel.HALTED: (Level.ERROR, "overloaded: no chunk is published until frames are in time"),
}


class AgentStatus(LoadedNodeStatus):
    """configured, frames: what there is now."""

    RUNS: ClassVar[str] = "frame"
    SO: ClassVar[str] = ", so the actuator holds"

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.configured: ConfiguredPolicy | None = None
        self.frames: FrameRunner | None = None
        self.resources: dict[str, object] = {}  # of the configured policy
        self._activate_ms: float | None = None
        self._monotonic = MonotonicClock()
        self._counted, self._rate_hz = (0, 0), 0.0  # when frames were counted, and how many

    def frames_started(self, frames: FrameRunner, activate_ms: float) -> None:
        self._counted, self._rate_hz = (self._monotonic.now_ns(), frames.pipeline.executor.frames), 0.0
        self.frames, self._activate_ms = frames, activate_ms

    @property
    def work(self) -> FrameRunner | None:
        return self.frames

    def frame(self) -> int:
        """Number of frames begun in this session."""
        configured = self.configured
        return sum(each.executor.frames for each in configured.pipelines) if configured else 0

    def working_text(self) -> str:
        frames, configured = self.frames, self.configured
        if frames is None or configured is None:
            return self.lifecycle
        if configured.actuator.lost():
            return "actuator lost"
        if frames.overload.level is OverloadLevel.HALTED:
            return "overloaded"
        if blocked := configured.gate.blocked_because:
            return f"no chunk: {blocked}"
        return configured.inputs.fault or "running"

    @property
    def pause(self) -> str:
        """By a monitor."""
        configured = self.configured
        monitors = configured.monitors if configured and self.frames else None
        return monitors.paused_because if monitors else ""

    # -- diagnostics (executor thread) --------------------------------------------------------------------

    def tasks(self) -> dict[str, Callable[[], DiagnosticReport]]:
        nothing = self.nothing
        return {
            "lifecycle": self._lifecycle,
            "observation": lambda: self.configured.inputs.check() if self.configured else nothing(),
            "frames": lambda: self._frames(self.frames) if self.frames else nothing(),
            "plan": lambda: self._plan(self.frames) if self.frames else nothing(),
            "actuator": lambda: self.configured.actuator.check() if self.configured and self.frames else nothing(),
            "prompt": lambda: self.configured.prompts.check() if self.configured else nothing(),
            "monitors": lambda: self._monitors(self.configured) if self.configured else nothing(),
        }

    def _monitors(self, configured: ConfiguredPolicy) -> DiagnosticReport:
        return configured.monitors.check() if configured.monitors else DiagnosticReport(Level.OK, "no rules")

    def _lifecycle(self) -> DiagnosticReport:
        values: dict[str, object] = {"lifecycle": self.lifecycle, "session": self.session}
        text = self.doing or self.lifecycle
        if self._activate_ms is not None:
            values["activate_ms"] = f"{self._activate_ms:.1f}"
        if self.wrong or self.configured is None:
            return DiagnosticReport(Level.ERROR if self.wrong else Level.OK, text, values)
        verified = self.configured.pipelines[0].checkpoint.verified
        values |= {"golden_sample": "replayed" if verified else "none", **self.resources}
        if verified:
            return DiagnosticReport(Level.OK, text, values)
        return DiagnosticReport(Level.WARN, f"{text}; {UNVERIFIED}", values)

    def _frames(self, frames: FrameRunner) -> DiagnosticReport:
        """Rate since the last report, durations of the newest frames, missed ticks of the grid."""
        live, (then_ns, before) = frames.live, self._counted
        now_ns, count = self._monotonic.now_ns(), live.executor.frames
        if now_ns - then_ns > 500_000_000 or count < before:
            self._rate_hz = max(0, count - before) * 1e9 / (now_ns - then_ns)
            self._counted = now_ns, count
        skipped = sum(clock.skipped for clock in live.frame_clocks.values())
        values: dict[str, object] = {"frames": count, "rate_hz": f"{self._rate_hz:.2f}", "missed_ticks": skipped}
        times = live.meter.times()
        if times is not None:
            values |= {"p50_ms": f"{times.p50_ms:.1f}", "p99_ms": f"{times.p99_ms:.1f}", "n": times.n}
        if self.late:
            return DiagnosticReport(Level.ERROR, self.late, values)
        return DiagnosticReport(Level.OK, "frames are running" if self._rate_hz else "no frames", values)

    def _plan(self, frames: FrameRunner) -> DiagnosticReport:
        """Which plan is active, and how it keeps the age contract."""
        overload, settings = frames.overload, frames.settings
        values: dict[str, object] = {
            "plan": str(frames.pipeline.plan),
            "level": overload.level.value,
            "fallback_plan": settings.fallback_plan or "none",
            "max_age_ms": f"{settings.max_age_ms:g}",
            "oldest_ms": f"{overload.oldest_ns / 1e6:.1f}",
            "late": overload.late,
            "overruns": overload.overruns,
        }
        return DiagnosticReport(*PLAN_REPORTS[overload.level], values)


def resource_usage(pipelines: Sequence[Pipeline], configure_ms: float) -> dict[str, object]:
    """What a configured policy takes. device_mb: GPU memory in tensors and in total, graphs included; only with a GPU.
    offloaded_mb and uncaptured (stages that are not captured, with the reasons): only if there are any."""
    placed = pipelines[0].placed  # plans share their networks
    values: dict[str, object] = {"configure_ms": f"{configure_ms:.0f}", "weights_mb": f"{placed.resident / MB:.1f}"}
    if placed.modules:
        values["offloaded_mb"] = f"{placed.offloaded / MB:.1f}"
    tensors, taken = pipelines[0].device_bytes()
    if taken:
        values["device_mb"] = f"{tensors / MB:.1f} in tensors, {taken / MB:.1f} reserved"
    if uncaptured := in_words({stage: reasons for each in pipelines for stage, reasons in each.uncaptured.items()}):
        values["uncaptured"] = uncaptured
    return values
