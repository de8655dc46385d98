"""The node's status, as heartbeats, diagnostics and the log report it. It decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from auras_ros.clock import MonotonicClock
from auras_ros.device import MB
from auras_ros.engine.engine import Engine
from auras_ros.nodes.common.diagnostics import DiagnosticReport, Level
from auras_ros.nodes.common.status import LoadedNodeStatus
from auras_ros.nodes.vlm.answering import Answering
from auras_ros.nodes.vlm.configured import ConfiguredVlm


class VlmStatus(LoadedNodeStatus):
    """configured, answering: what there is now."""

    RUNS: ClassVar[str] = "forward"

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.configured: ConfiguredVlm | None = None
        self.answering: Answering | None = None
        self.resources: dict[str, object] = {}  # of the configured model
        self._monotonic = MonotonicClock()
        self._counted, self._rate = (0, 0), 0.0  # when tokens were counted, and how many

    @property
    def work(self) -> Answering | None:
        return self.answering

    def frame(self) -> int:
        """Number of tokens of answers in this session."""
        configured = self.configured
        return configured.engine.stats.tokens if configured else 0

    def working_text(self) -> str:
        configured = self.configured
        if configured is None:
            return self.lifecycle
        return f"the engine failed: {failure}" if (failure := configured.engine.failure) else "running"

    # -- diagnostics (executor thread) --------------------------------------------------------------------

    def tasks(self) -> dict[str, Callable[[], DiagnosticReport]]:
        nothing = self.nothing
        return {
            "lifecycle": self._lifecycle,
            "cameras": lambda: self.configured.cameras.check() if self.configured else nothing(),
            "engine": lambda: self._engine(self.configured.engine) if self.configured else nothing(),
            "adapters": lambda: self._adapters(self.configured) if self.configured else nothing(),
            "questions": lambda: self._questions(self.answering) if self.answering else nothing(),
        }

    def _lifecycle(self) -> DiagnosticReport:
        values: dict[str, object] = {"lifecycle": self.lifecycle, "session": self.session}
        if self.configured is not None:
            values |= self.resources
        return DiagnosticReport(Level.ERROR if self.wrong else Level.OK, self.doing or self.lifecycle, values)

    def _engine(self, engine: Engine) -> DiagnosticReport:
        """Its queues, its rate since the last report, and why it has failed."""
        stats, (then_ns, before) = engine.stats, self._counted
        now_ns, tokens = self._monotonic.now_ns(), stats.tokens
        if now_ns - then_ns > 500_000_000 or tokens < before:
            self._rate = max(0, tokens - before) * 1e9 / (now_ns - then_ns)
            self._counted = now_ns, tokens
        values: dict[str, object] = {
            "running": engine.running,
            "waiting": engine.waiting,
            "tokens": tokens,
            "tokens_per_s": f"{self._rate:.1f}",
            "blocks_in_use": f"{engine.blocks_in_use:.0%}",
            "preemptions": stats.preemptions,
            "cached_tokens": stats.cached_tokens,
            "images": stats.images,
            "image_hits": stats.image_hits,
        } | {f"ended {reason}": count for reason, count in sorted(dict(stats.ended).items())}
        if engine.failure:
            text = f"failed: {engine.failure}; clean up and configure again"
            return DiagnosticReport(Level.ERROR, text, {**values, "failure": engine.failure})
        if self.late:
            return DiagnosticReport(Level.ERROR, self.late, values)
        return DiagnosticReport(Level.OK, "answers" if engine.running else "waits for questions", values)

    def _adapters(self, configured: ConfiguredVlm) -> DiagnosticReport:
        """Which there are, and what the engine does for them."""
        adapters = configured.engine.adapters
        if adapters is None:
            return DiagnosticReport(Level.OK, "none can be asked for: max_loras is 0")
        pool, known = adapters.pool.stats, adapters.registry.all()
        values: dict[str, object] = {
            f"adapter {each.name}": f"{each.folder} {each.digest[:12]}{', task head' if each.head else ''}"
            for each in known
        }
        values |= {"loads": pool.loads, "load_ms": f"{pool.load_s * 1e3:.0f}"}
        values |= {"hits": pool.hits, "evictions": pool.evictions}
        return DiagnosticReport(Level.OK, f"there are: {', '.join(each.name for each in known) or 'none'}", values)

    def _questions(self, answering: Answering) -> DiagnosticReport:
        """How questions ended; the newest answer's age and its image's age; the standing questions."""
        values: dict[str, object] = {"open": answering.open_questions, "refused": 0}
        values |= sorted(dict(answering.ended).items())  # a copy: other threads count
        if answering.newest is not None:
            asked, end = answering.newest
            values["answer age_ms"] = f"{(self._monotonic.now_ns() - end.ended_ns) / 1e6:.0f}"
            values["answer took_ms"] = f"{(end.ended_ns - asked.asked_ns) / 1e6:.0f}"
            if (age_ms := asked.age_ms(end.ended_ns)) is not None:
                values["image age_ms"] = f"{age_ms:.0f}"
        for each in answering.standing:
            counts = {"frames": each.frames, "asked": each.asked, "skipped": each.skipped}
            values |= {f"{each.name} {what}": count for what, count in counts.items()}
        if reason := answering.refusal:
            return DiagnosticReport(Level.WARN, f"the newest was refused: {reason}", values)
        return DiagnosticReport(Level.OK, "questions are answered", values)


def resource_usage(engine: Engine, configure_ms: float) -> dict[str, object]:
    """What a configured model is and takes."""
    tensors = engine.checkpoint.model.state_dict().values()
    weights = sum(each.numel() * each.element_size() for each in tensors)
    return {
        "configure_ms": f"{configure_ms:.0f}",
        "model": engine.checkpoint.name,
        "digest": engine.checkpoint.digest,
        "weights_mb": f"{weights / MB:.1f}",
        "length": engine.length,
    }
