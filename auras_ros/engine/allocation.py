"""Blocks for a forward, and what happens when there are too few: the youngest request gives its own back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from auras_ros.engine.active import ActiveRequest
from auras_ros.engine.adapters import EngineAdapters
from auras_ros.engine.scheduler import Dispatch, StageQueues
from auras_ros.engine.stats import EngineStats
from auras_ros.engine.tables import BlockTables


class BlockAllocation:
    """Preemption by recompute (Kwon et al. 2023, 4.5): a request that gives back its blocks goes to prefill again, with
    its answer so far."""

    def __init__(
        self,
        tables: BlockTables,
        queues: StageQueues,
        stats: EngineStats,
        adapters: EngineAdapters | None = None,
    ) -> None:
        """adapters: of which unused ones give their blocks back first."""
        self._adapters = adapters
        self._tables, self._queues, self._stats = tables, queues, stats

    def fits(self, requests: Sequence[ActiveRequest], counts: Sequence[int]) -> bool:
        """Whether there are blocks for this prefill, and one for each request that decodes. One alone, where nothing
        decodes, fits always: those who wait give back theirs, if they came later."""
        needed = sum(self._tables.lacking(each, count) for each, count in zip(requests, counts, strict=True))
        decoding = len(self._queues["decode"])
        unused = 0 if self._adapters is None else self._adapters.pool.unused_blocks
        if needed + decoding <= self._tables.free + unused:
            return True
        first, *others = requests
        keep = (each for each in self._queues.everyone() if each.busy or (each.table and each.order < first.order))
        return not others and not decoding and not any(keep)

    def allocate(self, dispatch: Dispatch) -> Dispatch:
        """The dispatch without those requests for which there are no blocks."""
        pairs = list(zip(dispatch.requests, dispatch.counts, strict=True))
        if dispatch.stage == "prefill":
            for each, _ in pairs:
                if not each.table:
                    self._tables.share(each)
        preempted, kept = {each: each.preempted for each, _ in pairs}, []
        for each, count in sorted(pairs, key=lambda pair: pair[0].order):
            if each.preempted == preempted[each] and self._grow(each, count):
                kept.append((each, count))
        return replace(dispatch, requests=tuple(each for each, _ in kept), counts=tuple(count for _, count in kept))

    def _grow(self, active: ActiveRequest, count: int) -> bool:
        """Blocks for so many more tokens. While there are too few, the youngest gives back its own; False if that is
        this request itself."""
        while not self._tables.grow(active, count):
            if self._adapters is not None and self._adapters.shrink():
                continue
            owners = [each for each in self._queues.everyone() if each.table and not each.busy]
            victim = max([*owners, active], key=lambda each: each.order)
            self._tables.give_back(victim)
            victim.preempted += 1
            self._stats.preemptions += 1
            self._queues.move(victim, "prefill")
            if victim is active:
                return False
        return True
