"""Which chunks are taken: all checks of a chunk that do not look at its values.

From arming on, one session of one agent is followed. Epochs only rise, and within an epoch only newer
origins (then newer requests) are taken. This module reads no clock; times are arguments.
"""

from __future__ import annotations

from .chunk import Chunk, Provenance
from .contract import Contract, ContractError
from .verdict import ChunkRefusal, Rejected

Order = tuple[int, int, int]


class Admission:
    """`host`: if given, chunks of other hosts are refused, because their monotonic clock is another one."""

    def __init__(self, contract: Contract, max_age_ns: int, host: str | None) -> None:
        self._contract, self._max_age_ns, self._host = contract, max_age_ns, host
        self.session: str | None = None
        self._newest: Order | None = None

    def refuse(self, chunk: Chunk, now_ns: int) -> Rejected | None:
        """The reason to refuse, or None."""
        try:
            chunk.check(self._contract)
        except ContractError as error:
            return Rejected(ChunkRefusal.SHAPE, str(error))
        source = chunk.provenance
        if self._host is not None and source.host != self._host:
            return Rejected(ChunkRefusal.OTHER_HOST, f"host {source.host!r}: its monotonic clock is not ours")
        if self.session is not None and source.session != self.session:
            text = f"session {source.session[:80]!r}, and {self.session[:80]!r} drives: arm again to follow it"
            return Rejected(ChunkRefusal.OTHER_SESSION, text)
        if self._newest is not None and (order := _order(source)) <= self._newest:
            return _not_newer(order, self._newest)
        age_ns = now_ns - source.origin_mono_ns
        if age_ns < 0:
            return Rejected(ChunkRefusal.FUTURE_ORIGIN, f"origin is {-age_ns / 1e6:.3f} ms in the future")
        if age_ns > self._max_age_ns:
            text = f"origin is {age_ns / 1e6:.1f} ms old, at most {self._max_age_ns / 1e6:g}"
            return Rejected(ChunkRefusal.TOO_OLD, text)
        return None

    def admit(self, source: Provenance) -> None:
        """The chunk was taken: its session is the one to follow, and only newer chunks come after it."""
        self.session, self._newest = source.session, _order(source)

    def forget(self) -> None:
        """Follow the session of the next chunk."""
        self.session, self._newest = None, None


def _order(source: Provenance) -> Order:
    return (source.epoch, source.origin_mono_ns, source.request)


def _not_newer(order: Order, newest: Order) -> Rejected:
    text = f"(epoch, origin, request) {order}, newest {newest}"
    if order == newest:
        return Rejected(ChunkRefusal.DUPLICATE, text)
    if order[0] < newest[0]:
        return Rejected(ChunkRefusal.OLD_EPOCH, text)
    return Rejected(ChunkRefusal.OUT_OF_ORDER, text)
