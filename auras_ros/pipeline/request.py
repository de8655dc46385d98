"""Inputs and outputs of the executor, and the ledger that all workers of one executor share.

Everything here has E environments that share one schedule: one on a robot, many in lockstep evaluation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from auras_ros.action import Chunk, Provenance


@dataclass(frozen=True, eq=False)
class ObservationOrigin:
    """Which observation it was: what is kept when its pixels are not needed any more.

    stamp_ns is its oldest camera stamp in the camera's clock, mono_ns the same instant on the host's monotonic clock.
    reference [E, channels]: the state at that instant in channel order, NaN if no joint has the channel's name.
    """

    stamp_ns: int
    mono_ns: int
    reference: NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False)
class Latched:
    """What a frame latched at its start (rule 1 of docs/pipeline.md).

    images float32 [E, history, cameras, 3, h, w], state float32 [E, history, D], as preprocessed.
    """

    images: Tensor
    state: Tensor
    origin: ObservationOrigin


@dataclass(frozen=True, eq=False)
class Emission:
    """One finished request. actions float64 [E, horizon, channels] in physical units.

    contexts: what each generation stage saw; the last defines action index 0 (rule 8 of docs/pipeline.md). stage_ns:
    when each stage began. latched_ns, perceived_ns, generated_ns: of the frame that finished it. beside: the other
    requests of the same batch (plans with `together`), in the order of their numbers; their own `beside` is empty.
    """

    actions: Tensor
    request: int
    frame: int
    epoch: int
    contexts: tuple[ObservationOrigin, ...]
    stage_ns: tuple[int, ...]
    latched_ns: int
    perceived_ns: int
    generated_ns: int
    beside: tuple[Emission, ...] = ()

    @property
    def every(self) -> tuple[Emission, ...]:
        """This emission and those beside it: all that finished in one frame."""
        return (self, *self.beside)

    @property
    def origin(self) -> ObservationOrigin:
        return self.contexts[-1]


# The noise of the request of this number for all environments, [E, *noise_shape] (rule 7 of docs/pipeline.md).
NoiseTape = Callable[[int], Tensor]


class Worker(Protocol):
    """One thread of work of a mode. `begin` and `end` are its boundaries; only `run` takes time.

    A driver calls begin, run, end in turn, in real threads or in virtual time, with the same results.
    """

    @property
    def name(self) -> str: ...

    @property
    def emits(self) -> bool:
        """Whether its frames end in chunks; dec's perception has none."""
        ...

    def wants(self, seen: Latched | None, now_ns: int) -> bool:
        """Whether a frame that starts now would do anything (rule 4 of docs/pipeline.md)."""
        ...

    def begin(self, seen: Latched | None, now_ns: int) -> None:
        """The boundary at the start: latch, admit, fetch."""
        ...

    def run(self) -> None: ...

    def end(self, now_ns: int) -> Emission | None:
        """The boundary at the end: put contexts, emit. None for a bubble or a request of an older epoch. The driver
        must take every emission of `Emission.every`."""
        ...


WARM_UP_EPOCH = -1


class Ledger:
    """Request numbers, the epoch and the frame count, shared by the workers' threads."""

    def __init__(self, interval_ns: int = 0, stale_ns: int | None = None) -> None:
        self._lock = threading.Lock()
        self.interval_ns = interval_ns  # least time between two admissions; par spaces its requests
        self.stale_ns = stale_ns  # drop requests that saw an observation so much older than the newest; None: none
        self.epoch = 0
        self.frames = 0
        self._request = 0
        self._origin_ns: int | None = None
        self._admitted_ns: int | None = None

    def reset(self, first_request: int | None = None) -> None:
        """Start a new epoch (rule 9 of docs/pipeline.md): workers drop what is older at their next boundary."""
        with self._lock:
            self.epoch += 1
            self._origin_ns = self._admitted_ns = None
            if first_request is not None:
                self._request = first_request

    def follow(self, other: Ledger) -> None:
        """Continue another executor's numbering, in the epoch after its own; its requests in flight are dropped."""
        with other._lock:
            epoch, request = other.epoch, other._request
        with self._lock:
            self.epoch, self._request = epoch + 1, request
            self._origin_ns = self._admitted_ns = None

    def would_admit(self, seen: ObservationOrigin | None, now_ns: int) -> bool:
        """Whether the observation is newer than the last admission's, and the interval since then is over."""
        if seen is None or (self._origin_ns is not None and seen.mono_ns <= self._origin_ns):
            return False
        return self.wait_ns(now_ns) <= 0

    def wait_ns(self, now_ns: int) -> int:
        """Time until the next request may be admitted, because another one was a moment ago; may be negative."""
        return 0 if self._admitted_ns is None else self._admitted_ns + self.interval_ns - now_ns

    def admit(self, seen: ObservationOrigin | None, now_ns: int, epoch: int, count: int = 1) -> int | None:
        """The number of a new request, or None for a bubble; always None in an epoch that is over. count: number of
        requests that begin together, numbered from there."""
        with self._lock:
            if seen is None or epoch != self.epoch or not self.would_admit(seen, now_ns):
                return None
            self._origin_ns, self._admitted_ns = seen.mono_ns, now_ns
            request, self._request = self._request, self._request + count
            return request

    def count_frame(self) -> int:
        """Count a frame. Returns its number, from 0."""
        with self._lock:
            self.frames += 1
            return self.frames - 1

    def begin_warm_up(self) -> None:
        """Begin warm-up, in an epoch of its own, until `end_warm_up` (rule 10 of docs/pipeline.md)."""
        self.reset(first_request=0)
        self.epoch = WARM_UP_EPOCH

    def end_warm_up(self) -> None:
        """End warm-up and start from zero: workers see another epoch and clear what warm-up has left."""
        self.reset(first_request=0)
        self.epoch = self.frames = 0


@dataclass(frozen=True)
class Identity:
    """What every provenance of one session of an agent has in common."""

    host: str = ""
    session: str = ""
    plan: str = ""
    checkpoint: str = ""
    stamps: str = ""


def to_chunk(emission: Emission, identity: Identity, row: int = 0) -> Chunk:
    """The chunk of one environment, with its provenance."""
    origin = emission.origin
    ages = [began - seen.mono_ns for began, seen in zip(emission.stage_ns, emission.contexts, strict=True)]
    provenance = Provenance(
        origin_stamp_ns=origin.stamp_ns,
        origin_mono_ns=origin.mono_ns,
        frame=emission.frame,
        request=emission.request,
        epoch=emission.epoch,
        context_age_ns=tuple(ages),
        **asdict(identity),
    )
    reference = None if origin.reference is None else origin.reference[row]
    return Chunk(emission.actions[row].numpy(), provenance, reference)
