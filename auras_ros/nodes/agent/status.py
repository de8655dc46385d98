"""The agent's status, as heartbeats and diagnostics report it. It decides nothing."""

from __future__ import annotations

from collections.abc import Callable

from auras_ros.nodes.agent.configured import ConfiguredPolicy
from auras_ros.nodes.agent.frame_runner import FrameRunner
from auras_ros.nodes.agent.frames_health import FramesHealth
from auras_ros.nodes.agent.overload import OverloadLevel
from auras_ros.nodes.common.diagnostics import DiagnosticReport, Level

UNVERIFIED = "no golden sample: it was not verified that this checkpoint works here as where it was trained"


class AgentStatus:
    """session: one configured life. Written by the executor's thread (and by the heartbeat's when it ends), read by
    any."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.lifecycle, self._doing, self._wrong = "unconfigured", "", False
        self.late = ""  # which frame is late, if one is; written by the heartbeat's thread
        self.configured: ConfiguredPolicy | None = None
        self.activate_ms: float | None = None
        self.footprint: dict[str, object] = {}  # of the configured policy
        self._frames: FrameRunner | None = None
        self._health: FramesHealth | None = None

    def now(self, lifecycle: str, doing: str = "", wrong: bool = False) -> None:
        self.lifecycle, self._doing, self._wrong = lifecycle, doing, wrong

    @property
    def frames(self) -> FrameRunner | None:
        return self._frames

    @frames.setter
    def frames(self, frames: FrameRunner | None) -> None:
        settings = self.configured.settings if self.configured else None
        self._health = FramesHealth(frames, settings) if frames and settings else None
        self._frames = frames

    def frame(self) -> int:
        """Number of frames begun in this session."""
        configured = self.configured
        return sum(each.executor.frames for each in configured.pipelines) if configured else 0

    def text(self) -> str:
        """For people: what the agent does, or why it does nothing."""
        frames, configured = self._frames, self.configured
        if self._doing:
            return self._doing if self._wrong else f"{self.lifecycle}: {self._doing}"
        if self.late:
            return self.late
        if self.lifecycle != "active" or frames is None or configured is None:
            return self.lifecycle
        if configured.actuator.lost():
            return "actuator lost"
        if frames.overload.step is OverloadLevel.HALTED:
            return "overloaded"
        if holds := configured.prompt.holds:
            return f"no chunk: {holds}"
        return configured.inputs.fault or "running"

    # -- diagnostics (executor thread) --------------------------------------------------------------------

    def tasks(self) -> dict[str, Callable[[], DiagnosticReport]]:
        return {
            "lifecycle": self._check_lifecycle,
            "observation": self._check_observation,
            "frames": self._check_frames,
            "plan": self._check_plan,
            "actuator": self._check_actuator,
            "prompt": self._check_prompt,
        }

    def _check_lifecycle(self) -> DiagnosticReport:
        values: dict[str, object] = {"lifecycle": self.lifecycle, "session": self.session}
        if self.activate_ms is not None:
            values["activate_ms"] = f"{self.activate_ms:.1f}"
        if self._wrong or self.configured is None:
            return DiagnosticReport(Level.ERROR if self._wrong else Level.OK, self._doing or self.lifecycle, values)
        verified = self.configured.pipelines[0].checkpoint.verified
        values["golden_sample"] = "replayed" if verified else "none"
        values |= self.footprint
        text = self._doing or self.lifecycle
        if verified:
            return DiagnosticReport(Level.OK, text, values)
        return DiagnosticReport(Level.WARN, f"{text}; {UNVERIFIED}", values)

    def _check_observation(self) -> DiagnosticReport:
        return self.configured.inputs.check() if self.configured else self._none()

    def _check_frames(self) -> DiagnosticReport:
        if self._health is None:
            return self._none()
        report = self._health.frames()
        return DiagnosticReport(Level.ERROR, self.late, report.values) if self.late else report

    def _check_plan(self) -> DiagnosticReport:
        return self._health.plan() if self._health else self._none()

    def _check_actuator(self) -> DiagnosticReport:
        return self.configured.actuator.check() if self.configured and self._frames else self._none()

    def _check_prompt(self) -> DiagnosticReport:
        return self.configured.prompt.check() if self.configured else self._none()

    def _none(self) -> DiagnosticReport:
        return DiagnosticReport(Level.OK, f"nothing while {self.lifecycle}")
