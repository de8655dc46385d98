"""Statistics of the commands where one chunk follows another: how far they jump, and how far the two chunks differ.

A watch reads one episode's commands and changes nothing. For a chunk's own value at a tick it uses `action.align`, as
the stream does, so that alignment is written once. Everything is counted in whole tenths of the channels' unit, so
that parts joined later give exactly the same result as one run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from auras_ros.action import ChannelKind, Chunk, Command, Contract, ContractError, Limits, Provenance
from auras_ros.action.align import AlignedChunk, Timeline
from auras_ros.action.contract import FloatArray
from auras_ros.report.statistics import quantile

PER_UNIT = 10  # values are counted in tenths of the unit
COMMANDED_AS_IT_IS = (ChannelKind.ABSOLUTE, ChannelKind.DELTA_ORIGIN)
Key = tuple[str, int, int]  # session, epoch, request


@dataclass
class Seams:
    """Counts over all seams. A seam is a tick whose command comes from another chunk than the previous tick's; the
    first chunk after a hold follows none and makes no seam.

    jumps, disagreements: tenths of the unit -> number of seams. jumps: from the previous command to this one, as
    published, limits and blends included. disagreements: from the old chunk's value for this tick to the new chunk's,
    before anything joins or limits them. limited: seams whose first command was changed by a limit. within: the largest
    step of the commands from a tick to the next within one chunk, in tenths.
    """

    jumps: Counter[int] = field(default_factory=Counter)
    disagreements: Counter[int] = field(default_factory=Counter)
    limited: int = 0
    within: int = 0

    @property
    def count(self) -> int:
        return self.jumps.total()

    def add(self, other: Seams) -> None:
        """Add the counts of another one."""
        self.jumps.update(other.jumps)
        self.disagreements.update(other.disagreements)
        self.limited += other.limited
        self.within = max(self.within, other.within)

    def figures(self) -> dict[str, float | None]:
        """Flat, in the unit: largest, 99th percentile and median of jumps and disagreements, the largest step within a
        chunk, and the largest step of all; None without a seam.

        To compare ways of joining, use the last one: a chunk whose first actions are those of the previous chunk does
        not jump at its beginning, but may jump where its own actions begin.
        """
        found: dict[str, float | None] = {}
        for name, counts in (("jump", self.jumps), ("disagreement", self.disagreements)):
            for label, share in (("max", 1.0), ("p99", 0.99), ("median", 0.5)):
                tenths = quantile([counts[value] for value in range(max(counts, default=-1) + 1)], share)
                found[f"{name}_{label}"] = None if tenths is None else tenths / PER_UNIT
        anywhere = max(self.within, max(self.jumps, default=0))
        for name, value in (("within_max", self.within), ("step_max", anywhere)):
            found[name] = value / PER_UNIT if self.count else None
        return found

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `from_dict` reads."""
        return {
            "jumps": _words(self.jumps),
            "disagreements": _words(self.disagreements),
            "limited": self.limited,
            "within": self.within,
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Seams:
        """Raises KeyError, ValueError or AttributeError for any other object."""
        return cls(_counts(raw["jumps"]), _counts(raw["disagreements"]), int(raw["limited"]), int(raw["within"]))


class SeamWatch:
    """Adds one episode's seams to `seams`. Call `offered` for every chunk that the stream has accepted, and `ticked`
    for every command.

    tick_ns: the stream's period; span_ns: how far back an origin may lie. Raises ContractError, naming the channel, for
    a kind for which the difference of two commands is not a distance.
    """

    def __init__(self, contract: Contract, tick_ns: int, span_ns: int, seams: Seams) -> None:
        for channel in contract.channels:
            if channel.kind not in COMMANDED_AS_IT_IS:
                raise ContractError(f"channel {channel.name!r}: kind: jumps of {channel.kind.value} are not measured")
        self._contract, self._seams = contract, seams
        self._timeline = Timeline(tick_ns, span_ns, len(contract.channels))
        self._limits = Limits(contract, tick_ns)
        self._placed: dict[Key, AlignedChunk] = {}
        self._key: Key | None = None
        self._last: FloatArray | None = None

    def offered(self, chunk: Chunk, now_ns: int) -> None:
        """Note a chunk that the stream has accepted for the ticks from now on."""
        origin = self._timeline.locate(chunk.provenance.origin_mono_ns, now_ns)
        if origin is None:
            raise ValueError("the stream took a chunk whose origin is older than the record of its ticks")
        placed = AlignedChunk(chunk, self._contract, self._timeline.tick_ns, origin)
        placed.screen(self._limits, self._timeline.number(now_ns))
        self._placed[_key(chunk.provenance)] = placed

    def ticked(self, command: Command, now_ns: int) -> None:
        """Note the stream's command of this tick."""
        self._timeline.advance(now_ns)
        if command.provenance is None:
            self._key = self._last = None
            return
        key = _key(command.provenance)
        if self._last is not None:
            step = _tenths(command.values - self._last)
            if key == self._key:
                self._seams.within = max(self._seams.within, step)
            else:
                self._seam(key, step, bool(command.limited))
        if key != self._key:
            self._placed = {key: self._placed[key]}
        self._key, self._last = key, np.array(command.values)

    def _seam(self, key: Key, jump: int, limited: bool) -> None:
        self._seams.jumps[jump] += 1
        self._seams.limited += int(limited)
        before = None if self._key is None else self._placed[self._key].at(self._timeline.count)
        now = self._placed[key].at(self._timeline.count)
        if before is not None and now is not None:
            self._seams.disagreements[_tenths(now - before)] += 1


def _key(provenance: Provenance) -> Key:
    return provenance.session, provenance.epoch, provenance.request


def _tenths(difference: FloatArray) -> int:
    return round(float(np.linalg.norm(difference)) * PER_UNIT)


def _words(counts: Counter[int]) -> str:
    return " ".join(f"{value}:{counts[value]}" for value in sorted(counts))


def _counts(words: str) -> Counter[int]:
    pairs = (word.split(":") for word in words.split())
    return Counter({int(value): int(count) for value, count in pairs})
