"""What the twelve frame rules say, as plain Python: no tensors, no threads, no code of the executor's.

Written from the rules alone, so that a fault shared by the executor and its tests has nowhere to hide. An observation
is one integer here, its stamp: newer means larger, equal means the same image again, None means that there was none.
A model is told when a worker begins, what it sees, and when it ends; it says what leaves. It never computes anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass
class Request:
    """One request's life. Lists with one entry a generation stage tell which `begin` (counted from 0) did what."""

    number: int
    epoch: int
    frame: int = -1  # at whose end it leaves
    used: list[int] = field(default_factory=list)  # the observation of each generation step
    stages: list[int] = field(default_factory=list)  # the observation of each stage
    began: list[int] = field(default_factory=list)  # the begin of the frame that ran the stage


def split(steps: int, stages: int, alpha: float) -> list[int]:
    """Rule 6: weights e^(i alpha) normalised, cumulative rounding, at least one each."""
    weights = [math.exp(i * alpha) for i in range(stages)]
    counts: list[int] = []
    for i in range(stages):
        bound = round(steps * sum(weights[: i + 1]) / sum(weights))
        least, most = sum(counts) + 1, steps - (stages - 1 - i)
        counts.append(min(max(bound, least), most) - sum(counts))
    return counts


def latency(pp_perception: int, pp_generation: int, fetch_offset: int) -> int:
    """Rule 3, counted instead of computed: frames from the one that latches to the one at whose end it leaves."""
    latched = 0
    put = latched + (pp_perception - 1)
    first_fetched = put - fetch_offset
    leaves = first_fetched + (pp_generation - 1)
    return len(range(latched, leaves + 1))


class Model:
    """What all modes share: request numbers, the observation of the last admission, the epoch.

    interval: for par, the least time from one admission to the next. Rule 9: a reset forgets every observation.
    """

    def __init__(self, interval: int = 0) -> None:
        self.epoch, self.begins = 0, 0
        self.frames = 0  # begun; perception by itself (dec) is none
        self.tapes: list[int] = []  # rule 7: one tape a request, drawn when it is admitted
        self._interval = interval
        self._numbers, self._admitted, self._admitted_at = 0, -math.inf, -math.inf

    def reset(self, first_request: int | None) -> None:
        self.epoch += 1
        self._admitted = self._admitted_at = -math.inf
        if first_request is not None:
            self._numbers = first_request
        self.forget()

    def forget(self) -> None:
        """Drop what an older epoch has left behind."""

    def admits(self, seen: int | None, now: int) -> bool:
        """Rule 4: only what is newer than the last admission's."""
        return seen is not None and seen > self._admitted and now >= self._admitted_at + self._interval

    def admit(self, seen: int, now: int) -> Request:
        request = Request(self._numbers, self.epoch)
        self._numbers, self._admitted, self._admitted_at = self._numbers + 1, seen, now
        self.tapes.append(request.number)
        return request

    def leaves(self, request: Request | None) -> Request | None:
        """Rule 9: what is of an older epoch is dropped."""
        return request if request is not None and request.epoch == self.epoch else None

    def wants(self, worker: int, seen: int | None, now: int) -> bool:
        raise NotImplementedError

    def begin(self, worker: int, seen: int | None, now: int) -> None:
        raise NotImplementedError

    def end(self, worker: int) -> Request | None:
        raise NotImplementedError

    def whole(self, seen: int, now: int, steps: int) -> Request:
        """A request that is admitted now and uses one observation from its first step to its last."""
        request = self.admit(seen, now)
        request.frame, request.used = self.frames, [seen] * steps
        request.stages, request.began = [seen], [self.begins]
        return request


class Whole(Model):
    """seq (one worker) and par (N): a worker begins a whole request on what it sees (rule 11)."""

    def __init__(self, workers: int, steps: int, interval: int = 0) -> None:
        super().__init__(interval)
        self._steps = steps
        self._running: list[Request | None] = [None] * workers

    def wants(self, worker: int, seen: int | None, now: int) -> bool:
        return self.admits(seen, now)

    def begin(self, worker: int, seen: int | None, now: int) -> None:
        self._running[worker] = None
        if seen is not None and self.admits(seen, now):
            self._running[worker] = self.whole(seen, now, self._steps)
        self.begins, self.frames = self.begins + 1, self.frames + 1

    def end(self, worker: int) -> Request | None:
        return self.leaves(self._running[worker])


class Decoupled(Model):
    """dec: worker 0 perceives whatever is new, worker 1 fetches once, at its request's start (rule 11)."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps = steps
        self._perceived = -math.inf
        self._perceiving: tuple[int, int] | None = None  # observation, epoch
        self._context: int | None = None
        self._running: Request | None = None

    def forget(self) -> None:
        self._context, self._perceived = None, -math.inf

    def wants(self, worker: int, seen: int | None, now: int) -> bool:
        if worker == 1:
            return self.admits(self._context, now)
        return seen is not None and seen > self._perceived

    def begin(self, worker: int, seen: int | None, now: int) -> None:
        if worker == 0:
            assert seen is not None
            self._perceiving, self._perceived = (seen, self.epoch), seen
        else:
            self._running = None
            if self._context is not None and self.admits(self._context, now):
                self._running = self.whole(self._context, now, self._steps)
            self.frames += 1
        self.begins += 1

    def end(self, worker: int) -> Request | None:
        if worker == 1:
            return self.leaves(self._running)
        assert self._perceiving is not None
        observation, epoch = self._perceiving
        if epoch == self.epoch:
            self._context = observation
        return None


class Frames(Model):
    """auras: a frame latches one observation, and all its generation stages read one public context (rules 2 to 5).

    stale: what has seen an observation that is so much older than the newest is over, and so is what was perceived
    from one; None: nothing ever is.
    """

    def __init__(self, pp_perception: int, fetch_offset: int, counts: list[int], stale: int | None = None) -> None:
        super().__init__()
        self._back = pp_perception - 1 - fetch_offset  # rule 3: generation sees what was latched so many frames ago
        self._stale = stale
        self._counts = counts
        self._latched: dict[int, int] = {}  # frame -> observation, of this epoch alone
        self._inside: list[Request] = []  # oldest first

    def forget(self) -> None:
        self._latched, self._inside = {}, []

    def wants(self, worker: int, seen: int | None, now: int) -> bool:
        """Rule 4: something is in generation, or what is seen or on its way there is newer than the last admission."""
        if seen is None:
            return False
        on_its_way = [self._latched.get(frame) for frame in range(self.frames - self._back, self.frames)]
        return bool(self._inside) or any(self.admits(one, now) for one in [seen, *on_its_way])

    def _drop(self, newest: int) -> None:
        if self._stale is not None:
            oldest = newest - self._stale
            self._inside = [request for request in self._inside if min(request.stages) >= oldest]
            self._latched = {frame: seen for frame, seen in self._latched.items() if seen >= oldest}

    def begin(self, worker: int, seen: int | None, now: int) -> None:
        assert seen is not None
        self._drop(seen)
        self._latched[self.frames] = seen
        context = self._latched.get(self.frames - self._back)
        if context is not None and self.admits(context, now):
            self._inside.append(self.admit(context, now))
        if context is None:  # dropped as too old: observations went back
            self._inside = []
        for request in self._inside:
            assert context is not None
            request.used += [context] * self._counts[len(request.stages)]
            request.stages.append(context)
            request.began.append(self.begins)
            request.frame = self.frames
        self.begins, self.frames = self.begins + 1, self.frames + 1

    def end(self, worker: int) -> Request | None:
        if self._inside and len(self._inside[0].stages) == len(self._counts):
            return self._inside.pop(0)
        return None


@dataclass(frozen=True)
class Tick:
    """A frame as its clock sees it: how long it runs (at least 1), how late it wakes, how long it idles afterwards."""

    runs: int
    late: int = 0
    idle: int = 0


def frame_starts(ticks: list[Tick], period: int) -> tuple[list[int], int]:
    """Rule 1: when each frame starts, the first at 0, and how many grid ticks were missed.

    Frames start on the grid alone: one that started where an overrun ended would make up for a missed tick. A tick is
    missed that passes while a frame runs or wakes late; with nothing to do none is, up to the start that ends this. A
    frame that ends on a tick has missed nothing. Period 0 has no grid: a frame starts at the end of the one before.
    """
    starts: list[int] = []
    missed, free = 0, 0  # free: when the next frame could start
    for tick in ticks:
        due = free if period == 0 else math.ceil(free / period) * period
        start = due + (tick.late if starts else 0)
        end = start + tick.runs
        if period:
            waited = bool(starts) and ticks[len(starts) - 1].idle > 0
            missed += sum(1 for at in range(0, end, period) if start < at < end or (due < at <= start and not waited))
        starts.append(start)
        free = end + tick.idle
    return starts, missed
