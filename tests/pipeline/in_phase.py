"""Frames before cameras in virtual time: the loop of `Live` with one worker, its waits replaced by the next event.

What counts is when each frame starts and what is the newest whole set of images then.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import count

from auras_ros.observation import Arrivals
from auras_ros.pipeline.frames import FrameClock
from auras_ros.pipeline.phase import PhaseLock

MS = 1_000_000
LOOK_NS = 20 * MS


@dataclass(frozen=True)
class Camera:
    """gone: from when to when nothing comes, ms; back: how much later it comes from then on."""

    period_ms: float
    phase_ms: float = 0.0
    jitter_ms: float = 0.0
    transport_ms: float = 5.0
    gone: tuple[float, float] = (0.0, 0.0)
    back_ms: float = 0.0

    def images(self, name: str, seed: int) -> Iterator[tuple[int, int, str]]:
        """(received, taken, name), in order."""
        rng, last_ns = random.Random(seed), 0
        for number in count():
            taken_ms = self.phase_ms + number * self.period_ms
            if self.gone[0] <= taken_ms < self.gone[1]:
                continue
            taken_ms += self.back_ms if taken_ms >= self.gone[1] > 0 else 0.0
            late_ms = self.transport_ms + rng.uniform(0.0, 2.0) * self.jitter_ms
            last_ns = max(last_ns + 1, round((taken_ms + late_ms) * MS))
            yield last_ns, round(taken_ms * MS), name


@dataclass
class Played:
    """Of each frame: when it started, when the newest whole set had come and when its oldest image was taken, ns."""

    skipped: int = 0
    starts: list[int] = field(default_factory=list)
    came: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)

    def waited(self) -> list[int]:
        """How long the newest set had lain there when each frame started."""
        return [start - came for start, came in zip(self.starts, self.came, strict=True)]

    def after(self, ms: float) -> Played:
        first = next(i for i, start in enumerate(self.starts) if start >= ms * MS)
        return Played(self.skipped, self.starts[first:], self.came[first:], self.taken[first:])


def play(
    cameras: Sequence[Camera], period_ms: float, lasts_ms: Sequence[float], seconds: float, *, lock: bool, seed: int = 0
) -> Played:
    """Frames on a grid; durations are drawn from `lasts_ms`."""
    arrivals = Arrivals(str(i) for i in range(len(cameras)))
    clock = FrameClock(round(period_ms * MS), patient=lock)
    phase = PhaseLock(arrivals, [clock])
    images = merge(*(each.images(str(i), seed + i) for i, each in enumerate(cameras)))
    coming, held, whole_ns = next(images), dict[str, int](), 0
    rng, played, now_ns, used = random.Random(seed), Played(), 0, -1

    def until(at_ns: int) -> None:
        """Let time pass, and images come."""
        nonlocal now_ns, coming, whole_ns
        while coming[0] <= at_ns:
            received_ns, taken_ns, name = coming
            held[name] = taken_ns
            arrivals.came(name, received_ns)
            whole_ns = arrivals.newest_ns() or 0
            coming = next(images)
        now_ns = max(now_ns, at_ns)

    while now_ns < seconds * 1000 * MS:
        until(clock.next_start_ns(now_ns))
        if lock and (wait_ns := phase.wait_ns(now_ns)):
            clock.idle()
            until(min(coming[0], now_ns + min(wait_ns, LOOK_NS)))
            continue
        taken_ns = min(held.values()) if len(held) == len(cameras) else -1
        if taken_ns <= used or now_ns - whole_ns > 350 * MS:
            phase.nothing()
            clock.idle()
            until(min(coming[0], now_ns + LOOK_NS))
            continue
        used, tick_ns = taken_ns, clock.tick_ns
        clock.started(now_ns)
        if lock and tick_ns is not None:
            phase.started(tick_ns, now_ns)
        played.starts.append(now_ns)
        played.came.append(whole_ns)
        played.taken.append(taken_ns)
        until(now_ns + round(rng.choice(lasts_ms) * MS))
        clock.ended(now_ns)
    played.skipped = clock.skipped
    return played
