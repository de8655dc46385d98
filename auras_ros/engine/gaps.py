"""Forwards in the gaps between a policy's frames, where both use the same units (`device.reservation`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from auras_ros.device.reservation import FillingWork, FrameReservation
from auras_ros.engine.scheduler import Dispatch

REMEMBERED = 8  # forwards of a kind; the longest of them is what the next one is expected to take
OUTLIER = 2  # times as long as the longest other one: the process was stopped meanwhile, and the next one is not so
Kind = tuple[str, int | None, int]


class FrameGaps:
    """A forward starts only if it will have ended when a frame has to start, as far as earlier forwards tell. Of a kind
    that never ran it is not known: the first one of each is taken to be as long as the longest of its stage. Without a
    reservation every forward starts."""

    def __init__(self, reservation: FrameReservation | None, more_fits: Callable[[], None]) -> None:
        """more_fits: called, in any thread, when a forward may fit that did not."""
        self._reservation = reservation
        self._taken: dict[Kind, deque[int]] = {}
        self._running: dict[str, FillingWork] = {}
        if reservation is not None:
            reservation.listen(more_fits)

    def begin(self, dispatch: Dispatch) -> bool:
        """Whether the forward may start now; if so it is known to those who run frames, until `ended`."""
        if self._reservation is None:
            return True
        work = self._reservation.start(self.expected_ns(dispatch))
        if work is None:
            return False
        self._running[dispatch.stage] = work
        return True

    def ended(self, dispatch: Dispatch, taken_ns: int | None = None) -> None:
        """taken_ns: None if it did not run."""
        if self._reservation is None:
            return
        self._running.pop(dispatch.stage).end()
        if taken_ns is not None:
            self._taken.setdefault(_kind(dispatch), deque(maxlen=REMEMBERED)).append(taken_ns)

    def expected_ns(self, dispatch: Dispatch) -> int:
        """The longest of the last ones of its kind, without an outlier: it would keep out all that could correct it."""
        kind = _kind(dispatch)
        known = [self._taken[kind]] if kind in self._taken else self._of_stage(dispatch.stage)
        return max(map(_longest, known), default=0)

    def retry_ns(self) -> int | None:
        """When to ask again, if nobody calls `more_fits` before."""
        return None if self._reservation is None else self._reservation.free_at_ns()

    def _of_stage(self, stage: str) -> list[deque[int]]:
        return [taken for (name, *_), taken in self._taken.items() if name == stage]


def _longest(taken_ns: Iterable[int]) -> int:
    longest, *others = sorted(taken_ns, reverse=True)
    return others[0] if others and longest > OUTLIER * others[0] else longest


def _kind(dispatch: Dispatch) -> Kind:
    """Forwards of one kind take alike: on the same part of the device, of a decode by its rows, of the others by tokens
    of prompt or image in steps of a doubling."""
    if dispatch.stage == "decode":
        return dispatch.stage, dispatch.split, len(dispatch.requests)
    if dispatch.stage == "prefill":
        return dispatch.stage, dispatch.split, sum(dispatch.counts).bit_length()
    image = dispatch.requests[0].request.prompt.images[dispatch.image]
    return dispatch.stage, dispatch.split, image.tokens.bit_length()
