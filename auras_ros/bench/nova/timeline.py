"""What Nova did during a burst: pending requests, decode's units, and how long forwards took (Nova figure 14)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from statistics import mean
from typing import Any

import numpy as np

from auras_ros.engine.simulation import Served, SimulatedForwards


@dataclass(frozen=True)
class TimelineForward:
    """One forward. pending: requests in vision or prefill or before them, when it began. units: of decode's part; None
    on the whole device."""

    stage: str
    began_s: float
    ended_s: float
    units: int | None
    pending: int

    @property
    def ms(self) -> float:
        return 1e3 * (self.ended_s - self.began_s)


def pending_steps(served: Sequence[Served]) -> list[tuple[float, int]]:
    """(time, requests that have come and have no first token), at every change."""
    timings = [each.usage.timings for each in served]
    changes = sorted([(each.arrived_ns, 1) for each in timings] + [(each.first_token_ns, -1) for each in timings])
    steps, pending = list[tuple[float, int]](), 0
    for at_ns, group in groupby(changes, key=itemgetter(0)):
        pending += sum(change for _, change in group)
        steps.append((at_ns / 1e9, pending))
    return steps


def forwards_of(forwards: SimulatedForwards, steps: Sequence[tuple[float, int]]) -> list[TimelineForward]:
    """All forwards by their beginning; of those that begin together, decode comes last."""
    times = [at_s for at_s, _ in steps]
    found = []
    for dispatch, began_ns, ended_ns in sorted(forwards.log, key=lambda each: (each[1], each[0].stage == "decode")):
        at = int(np.searchsorted(times, began_ns / 1e9, side="right")) - 1
        found.append(TimelineForward(dispatch.stage, began_ns / 1e9, ended_ns / 1e9, dispatch.split, steps[at][1]))
    return found


def by_units(forwards: Sequence[TimelineForward]) -> list[dict[str, Any]]:
    """A row for each split beside vision: its forwards, how many were pending, and how long they took, in the mean.
    A decode counts with the vision beside which it began."""
    visions, decodes, front = defaultdict[int, list[TimelineForward]](list), defaultdict[int, list[float]](list), ""
    for each in forwards:
        if each.stage != "decode":
            front = each.stage
        if each.units is not None and each.stage == "vision":
            visions[each.units].append(each)
        elif each.units is not None and each.stage == "decode" and front == "vision":
            decodes[each.units].append(each.ms)
    return [
        {
            "units": units,
            "visions": len(own),
            "decodes": len(decodes[units]),
            "pending": mean(each.pending for each in own),
            "vision_ms": mean(each.ms for each in own),
            "decode_ms": mean(decodes[units]) if decodes[units] else None,
        }
        for units, own in sorted(visions.items())
    ]


def around_peak(
    steps: Sequence[tuple[float, int]], forwards: Sequence[TimelineForward], margin_s: float
) -> dict[str, Any]:
    """What is drawn: the first burst with the most pending requests, from when nobody had to wait before it until so
    again, and so many seconds around."""
    peak_s, _ = max(steps, key=itemgetter(1))
    low_s = max((at_s for at_s, pending in steps if at_s < peak_s and pending <= 1), default=0.0) - margin_s
    high_s = min(at_s for at_s, pending in steps if at_s >= peak_s and pending <= 1) + margin_s
    shown = [each for each in forwards if low_s <= each.began_s <= high_s]
    return {
        "pending": [[at_s, pending] for at_s, pending in steps if low_s <= at_s <= high_s],
        "forwards": [[each.stage, each.began_s, each.ended_s, each.units, each.pending] for each in shown],
    }
