"""The `auras` mode: perception and generation of several requests side by side in one frame (Auras 4.3).

One worker. Within a frame every generation stage reads the same public context, so that even a request that began
frames ago ends on what the robot sees now. There is no queue: a frame admits at most one request, and the oldest leaves
at its end (rules 2 to 5 of docs/pipeline.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from auras_ros.device import Mark
from auras_ros.pipeline.continuity import Continuity
from auras_ros.pipeline.frame_stages import FrameStages
from auras_ros.pipeline.generation import ChunkWorker
from auras_ros.pipeline.request import Emission, Latched, Ledger, ObservationOrigin
from auras_ros.pipeline.run_context import RunContext


@dataclass
class _Request:
    """A request in flight: its number, and what its stages have seen so far."""

    number: int
    contexts: list[ObservationOrigin] = field(default_factory=list)
    stage_ns: list[int] = field(default_factory=list)

    @property
    def oldest_ns(self) -> int:
        return min(seen.mono_ns for seen in self.contexts)


class PipelineWorker(ChunkWorker):
    """See the module's docstring."""

    def __init__(self, run_context: RunContext, ledger: Ledger, continuity: Continuity) -> None:
        super().__init__(run_context, ledger, continuity, "frame")
        self._stages = FrameStages(run_context)
        self._clear()

    def _clear(self) -> None:
        """Start an epoch: forget every observation and request (rule 9 of docs/pipeline.md)."""
        self._epoch = self._ledger.epoch
        self._rows: list[_Request | None] = [None] * self._plan.pp_generation  # oldest first
        self._perceiving: list[ObservationOrigin | None] = [None] * self._plan.pp_perception
        self._seen: ObservationOrigin | None = None
        self._stages.clear()

    def wants(self, seen: Latched | None, now_ns: int) -> bool:
        """Run a frame if there is a newer observation, or while requests are in flight."""
        if seen is None:
            return False
        newest = self._perceiving[0]
        if self._epoch != self._ledger.epoch or newest is None or seen.origin.mono_ns > newest.mono_ns:
            return True
        return any(self._rows) or not all(_same(on_its_way, newest) for on_its_way in [*self._perceiving, self._seen])

    def begin(self, seen: Latched | None, now_ns: int) -> None:
        if seen is None:
            raise ValueError("a frame needs an observation")
        if self._epoch != self._ledger.epoch:
            self._clear()
        self._frame, self._latched_ns = self._ledger.count_frame(), now_ns
        self._drop_stale(seen.origin)
        self._stages.latch(seen.images, seen.state)
        self._perceiving = [seen.origin, *self._perceiving[:-1]]
        self._stages.public.put(self._frame, self._perceiving[-1])
        self._seen = self._stages.public.fetch(self._frame, self._plan.fetch_offset)
        if self._seen is None:  # the context was forgotten as stale, and rows cannot continue without one
            self._rows = [None] * len(self._rows)
        self._admit(now_ns)
        self._guide(now_ns)

    def _guide(self, now_ns: int) -> None:
        """All rows share the oldest request's guidance target. With no request in flight there is nothing to guide."""
        self._continuity.began(self._epoch, now_ns)
        if self._seen is not None and any(self._rows):
            self._stages.aim(self._continuity.aim(self._seen, now_ns))

    def _drop_stale(self, newest: ObservationOrigin) -> None:
        """Drop requests that waited while no observation came: such a request would mix stages from a minute ago with
        stages from now. What requests leave one another (action tokens, keys and values) is dropped with them."""
        limit_ns = self._ledger.stale_ns
        if limit_ns is None:
            return
        fresh = newest.mono_ns - limit_ns
        before, last = (self._rows, self._perceiving), self._seen
        self._rows = [row if row is None or row.oldest_ns >= fresh else None for row in self._rows]
        self._perceiving = [seen if seen is None or seen.mono_ns >= fresh else None for seen in self._perceiving]
        self._stages.public.forget(fresh)
        overtaken = last is not None and last.mono_ns < fresh  # what the last frame generated from
        if overtaken or (self._rows, self._perceiving) != before:
            self._stages.forget_generated()

    def _admit(self, now_ns: int) -> None:
        """Admit before the rows are moved up."""
        number = self._ledger.admit(self._seen, now_ns, self._epoch)
        if number is not None:
            self._rows[-1] = _Request(number)
        if any(self._rows):
            self._stages.launch_boundary(None if number is None else self._noise(number))

    def run(self) -> None:
        stages, offset, clock = self._stages, self._plan.fetch_offset, self._clock
        began_ns = clock.now_ns()
        perceived: list[Mark] = []
        for lane, stage in stages.perception[self._frame % 2]:
            perceived.append(lane.launch(stage, () if perceived else stages.arrived))
        public = perceived[-1]  # earlier stages work for later frames and run beside generation
        ahead = offset < 0 or stages.launches_ahead
        if not ahead:
            self._perceived_ns = self._over(public)
        generated: list[Mark] = []
        if any(self._rows):
            fetched = stages.launch_fetch(self._frame, () if offset < 0 else (public,))
            for lane, stage in stages.generation:
                generated.append(lane.launch(stage, (fetched,)))
        left = [stages.leaving.launch(generated)] if self._rows[0] is not None else []
        if ahead:
            self._perceived_ns = self._over(public)
        for mark in (*perceived, *generated):
            mark.wait()
        self._generated_ns = clock.now_ns()
        for mark in left:
            mark.wait()
        self._note(began_ns if offset < 0 else self._perceived_ns)

    def _note(self, began_ns: int) -> None:
        """Note for every request in flight that it has seen this frame's context."""
        for row in self._rows:
            if row is not None and self._seen is not None:
                row.contexts.append(self._seen)
                row.stage_ns.append(began_ns)

    def end(self, now_ns: int) -> Emission | None:
        done, emission = self._rows[0], None
        if done is not None and self._epoch == self._ledger.epoch:
            actions = self._stages.leaving.take()
            emission = self._emission(actions, done.number, done.contexts, done.stage_ns, self._epoch)
        self._continuity.ended(emission, now_ns, generated=any(self._rows))
        self._rows = [*self._rows[1:], None]
        return emission


def _same(one: ObservationOrigin | None, other: ObservationOrigin) -> bool:
    return one is not None and one.mono_ns == other.mono_ns
