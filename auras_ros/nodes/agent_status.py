"""What the agent knows of itself, as heartbeats and diagnostics say it. It decides nothing."""

from __future__ import annotations

from collections.abc import Callable

from auras_ros.nodes.agent_frames import Frames
from auras_ros.nodes.agent_health import FramesHealth
from auras_ros.nodes.agent_policy import Configured
from auras_ros.nodes.diagnostics import Level, Report
from auras_ros.nodes.overload import Step

UNVERIFIED = "no golden sample: nothing shows that this checkpoint does here what it did where it was trained"


class Status:
    """session: one configured life. Written by the executor's thread (and by a heart that stops), read by any."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.lifecycle, self._doing, self._wrong = "unconfigured", "", False
        self.late = ""  # which frame is, if one is; the heart's thread
        self.configured: Configured | None = None
        self.activate_ms: float | None = None
        self.footprint: dict[str, object] = {}  # of what is configured
        self._frames: Frames | None = None
        self._health: FramesHealth | None = None

    def now(self, lifecycle: str, doing: str = "", wrong: bool = False) -> None:
        self.lifecycle, self._doing, self._wrong = lifecycle, doing, wrong

    @property
    def frames(self) -> Frames | None:
        return self._frames

    @frames.setter
    def frames(self, frames: Frames | None) -> None:
        settings = self.configured.settings if self.configured else None
        self._health = FramesHealth(frames, settings) if frames and settings else None
        self._frames = frames

    def frame(self) -> int:
        """Frames begun in this configured life."""
        configured = self.configured
        return sum(each.executor.frames for each in configured.pipelines) if configured else 0

    def text(self) -> str:
        """For people: what it does, or what keeps it from that."""
        frames, configured = self._frames, self.configured
        if self._doing:
            return self._doing if self._wrong else f"{self.lifecycle}: {self._doing}"
        if self.late:
            return self.late
        if self.lifecycle != "active" or frames is None or configured is None:
            return self.lifecycle
        if configured.actuator.lost():
            return "actuator lost"
        if frames.overload.step is Step.HALTED:
            return "overloaded"
        if holds := configured.prompt.holds:
            return f"no chunk: {holds}"
        return configured.inputs.fault or "running"

    # -- diagnostics (executor thread) --------------------------------------------------------------------

    def tasks(self) -> dict[str, Callable[[], Report]]:
        return {
            "lifecycle": self._check_lifecycle,
            "observation": self._check_observation,
            "frames": self._check_frames,
            "plan": self._check_plan,
            "actuator": self._check_actuator,
            "prompt": self._check_prompt,
        }

    def _check_lifecycle(self) -> Report:
        values: dict[str, object] = {"lifecycle": self.lifecycle, "session": self.session}
        if self.activate_ms is not None:
            values["activate_ms"] = f"{self.activate_ms:.1f}"
        if self._wrong or self.configured is None:
            return Report(Level.ERROR if self._wrong else Level.OK, self._doing or self.lifecycle, values)
        verified = self.configured.pipelines[0].checkpoint.verified
        values["golden_sample"] = "replayed" if verified else "none"
        values |= self.footprint
        text = self._doing or self.lifecycle
        return Report(Level.OK, text, values) if verified else Report(Level.WARN, f"{text}; {UNVERIFIED}", values)

    def _check_observation(self) -> Report:
        return self.configured.inputs.check() if self.configured else self._none()

    def _check_frames(self) -> Report:
        if self._health is None:
            return self._none()
        report = self._health.frames()
        return Report(Level.ERROR, self.late, report.values) if self.late else report

    def _check_plan(self) -> Report:
        return self._health.plan() if self._health else self._none()

    def _check_actuator(self) -> Report:
        return self.configured.actuator.check() if self.configured and self._frames else self._none()

    def _check_prompt(self) -> Report:
        return self.configured.prompt.check() if self.configured else self._none()

    def _none(self) -> Report:
        return Report(Level.OK, f"nothing while {self.lifecycle}")
