"""Executors in time: when frames start on a grid, run over, are late or stand still, and what leaves when.

`played` drives an executor's workers by the project's own frame clock; `Walked` says by itself what has to happen. It
walks from instant to instant with the model of the rules (`reference`) and nothing else: a tick is an instant that is
a whole number of periods after the first start. Instants are whole numbers of UNIT_NS.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from auras_ros.pipeline.frames import FrameClock
from auras_ros.pipeline.plan import Plan
from tests.pipeline.driver import IDLE, Both, model_of
from tests.pipeline.recording import IMAGE, LooseDevice

UNIT_NS = 250_000


@dataclass(frozen=True)
class Script:
    """What happens to a plan, all of it fixed beforehand.

    seen: the newest observation at each instant, None where there is none. resets: instant -> the request from which
    numbers go on. runs: by worker, how long its first, second, ... frame lasts, at least 1. late: by worker, how late
    it wakes for its first, second, ... look at what there is to do. Both need no more entries than twice the instants.
    """

    plan: Plan
    steps: int
    seen: Sequence[int | None]
    resets: dict[int, int | None]
    runs: Sequence[Sequence[int]]
    late: Sequence[Sequence[int]]
    stale: int | None = None

    @property
    def period(self) -> int:
        """Of the frames' grid. For par frame_period_ms is the interval between requests, and there is no grid."""
        return 0 if self.plan.mode == "par" else round(self.plan.frame_period_ms * 1_000_000 / UNIT_NS)

    def seen_at(self, now: int) -> int | None:
        """After the end nothing comes, and what runs still ends."""
        return self.seen[min(now, len(self.seen) - 1)]


@dataclass(frozen=True)
class Left:
    """A chunk: at which instant it left, whose it was, and which observation each step of it used."""

    at: int
    request: int
    epoch: int
    frame: int
    used: tuple[int, ...]


@dataclass
class Account:
    """What happened. starts: (worker, instant, observation) of each frame. missed: ticks, by worker."""

    starts: list[tuple[int, int, int | None]] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)


def played(script: Script, choose: random.Random) -> Account:
    """The executor, each worker driven as `live` does it: sleep to the next start, look, run or wait."""
    both = Both(script.plan, script.steps, 1, LooseDevice(choose), script.stale)
    zero_ns, workers = both.clock.now_ns(), range(len(both.states))
    account = Account()
    clocks = [FrameClock(script.period * UNIT_NS) for _ in workers]
    looks, frames, ends = [0 for _ in workers], [0 for _ in workers], [0 for _ in workers]

    def next_look(worker: int, free: int) -> int:
        """It wakes at the next start, or late; the first look is the origin of the grid."""
        due_ns = clocks[worker].next_start_ns(zero_ns + free * UNIT_NS)
        looks[worker] += 1
        return (due_ns - zero_ns) // UNIT_NS + script.late[worker][looks[worker] - 1]

    look_at = [next_look(worker, 0) for worker in workers]
    now = 0
    while now < len(script.seen) or any(state != IDLE for state in both.states):
        both.clock.sleep_until_ns(zero_ns + now * UNIT_NS)
        both.stamp = script.seen_at(now)
        if now in script.resets:
            both.reset(script.resets[now])
        for worker in workers:
            if both.states[worker] != IDLE and ends[worker] == now:
                gone = both.advance(worker)
                if gone is not None:
                    used = tuple(gone.actions[0, : script.steps, IMAGE].astype(int).tolist())
                    of = gone.emission
                    account.left.append(Left(now, of.request, of.epoch, of.frame, used))
                look_at[worker] = next_look(worker, now)
        for worker in workers:
            if both.states[worker] == IDLE and look_at[worker] <= now < len(script.seen):
                both.advance(worker)
                if both.states[worker] == IDLE:
                    clocks[worker].idle()
                    look_at[worker] = next_look(worker, now + 1)
                    continue
                clocks[worker].started(zero_ns + now * UNIT_NS)
                account.starts.append((worker, now, both.stamp))
                both.advance(worker)
                ends[worker] = now + script.runs[worker][frames[worker]]
                frames[worker] += 1
        now += 1
    both.close()
    account.missed = [clock.skipped for clock in clocks]
    return account


@dataclass
class _Worker:
    """A worker as the rules see it."""

    runs: Sequence[int]
    late: Sequence[int]
    first: int | None = None  # the first start: the grid's origin
    ends: int | None = None  # of the frame that runs
    wakes: int = 0  # when it looks next
    overrun: int = 0  # ticks that the last frame ran over, until it is known whether they were missed
    waking: int = 0  # ticks that passed while it woke late
    waited: bool = False  # it has looked since its last frame, and there was nothing to do
    missed: int = 0
    frames: int = 0
    looks: int = 0


class Walked:
    """`account` is what the rules say of a script. Instant by instant: resets, ends, then starts in order."""

    def __init__(self, script: Script) -> None:
        self._script, self._model = script, model_of(script.plan, script.steps, script.stale)
        self._workers = [_Worker(runs, late) for runs, late in zip(script.runs, script.late, strict=True)]
        self.account = Account()
        for worker in self._workers:
            self._sleep(worker, 0)
        now = 0
        while now < len(script.seen) or any(worker.ends is not None for worker in self._workers):
            self._instant(now)
            now += 1
        self.account.missed = [worker.missed for worker in self._workers]

    def _tick(self, worker: _Worker, now: int) -> bool:
        """Whether a frame may start now, as far as the grid goes."""
        period = self._script.period
        return period == 0 or worker.first is None or (now - worker.first) % period == 0

    def _sleep(self, worker: _Worker, free: int) -> None:
        """To the first tick from now on, and for as long as it is late."""
        due = free
        while not self._tick(worker, due):
            due += 1
        worker.wakes = due + worker.late[worker.looks]
        worker.looks += 1
        on_the_way = range(due + 1, worker.wakes + 1)
        worker.waking = sum(self._tick(worker, at) for at in on_the_way) if self._grid(worker) else 0

    def _grid(self, worker: _Worker) -> bool:
        return self._script.period > 0 and worker.first is not None

    def _instant(self, now: int) -> None:
        script, model = self._script, self._model
        if now in script.resets:
            model.reset(script.resets[now])
        for number, worker in enumerate(self._workers):
            if worker.ends == now:
                self._end(number, worker, now)
            elif worker.ends is not None and self._grid(worker) and self._tick(worker, now):
                worker.overrun += 1
        if now >= len(script.seen):
            return
        for number, worker in enumerate(self._workers):
            if worker.ends is None and worker.wakes <= now:
                self._look(number, worker, now)

    def _end(self, number: int, worker: _Worker, now: int) -> None:
        request = self._model.end(number)
        if request is not None:
            left = Left(now, request.number, request.epoch, request.frame, tuple(request.used))
            self.account.left.append(left)
        worker.ends, worker.waited = None, False
        self._sleep(worker, now)

    def _look(self, number: int, worker: _Worker, now: int) -> None:
        """What an overrun has swallowed is missed; what passes while there is nothing to do is not (rule 1)."""
        seen = self._script.seen_at(now)
        worker.missed, worker.overrun = worker.missed + worker.overrun, 0
        if not self._model.wants(number, seen, now * UNIT_NS):
            worker.waited = True
            self._sleep(worker, now + 1)
            return
        worker.missed += 0 if worker.waited else worker.waking
        worker.first = now if worker.first is None else worker.first
        self._model.begin(number, seen, now * UNIT_NS)
        self.account.starts.append((number, now, seen))
        worker.ends = now + worker.runs[worker.frames]
        worker.frames += 1
