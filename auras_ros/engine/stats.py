"""What an engine has done so far, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from auras_ros.lora.pool import PoolStats


@dataclass
class EngineStats:
    """ended: requests by reason. tokens: of answers. images: encoded. image_hits: taken from the cache."""

    ended: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    images: int = 0
    image_hits: int = 0


@dataclass(frozen=True)
class EngineSnapshot:
    """An engine at one moment. open: requests that were taken and have not ended; running: those in one of the stages.
    blocks_in_use: share of the blocks that requests own. failure: why it has failed; empty while it works.
    adapters: what was read into memory."""

    stats: EngineStats
    open: int = 0
    running: int = 0
    waiting: int = 0
    blocks_in_use: float = 0.0
    failure: str = ""
    adapters: PoolStats = field(default_factory=PoolStats)


def joined(snapshots: Sequence[EngineSnapshot]) -> EngineSnapshot:
    """Several engines' as one: sums, and the mean share of the blocks. It has failed when all have."""
    stats = EngineStats(Counter())
    pool = PoolStats()
    for each in snapshots:
        for sums, own in ((stats, each.stats), (pool, each.adapters)):
            for one in fields(sums):
                setattr(sums, one.name, getattr(sums, one.name) + getattr(own, one.name))
    return EngineSnapshot(
        stats,
        sum(each.open for each in snapshots),
        sum(each.running for each in snapshots),
        sum(each.waiting for each in snapshots),
        sum(each.blocks_in_use for each in snapshots) / len(snapshots),
        snapshots[0].failure if all(each.failure for each in snapshots) else "",
        pool,
    )
