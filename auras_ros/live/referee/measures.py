"""What the demo measures, from what came over the wire and nothing else.

Figures count only what happened while an episode was played and the actuator armed; between episodes nobody moves.
It knows no ROS: the node hands over plain values. Times are ns on the host's monotonic clock.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from auras_ros.live.chunk_times import ChunkTimes

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
KEPT = 60_000  # newest records kept for the timeline: ten minutes of actions at 100 Hz
SETTLED_NS = 100 * NS_PER_MS  # a deadline missed earlier than this after arming may stem from before it
LIVE = ("armed", "holding")
FRESH = ("chunk", "blend", "ensemble")  # sources of actions that answer an observation


class ActionMark(NamedTuple):
    """An action as it was sent; `request` is None for a hold."""

    mono_ns: int
    request: int | None


class StepMark(NamedTuple):
    """A control step of the world at its grid time, which is also the camera's stamp."""

    mono_ns: int
    step: int


@dataclass(frozen=True)
class Spread:
    """Median, 99th percentile, maximum and number of a sample; ms."""

    p50: float
    p99: float
    max: float
    n: int

    @classmethod
    def of(cls, values_ms: ArrayLike) -> Spread | None:
        """None of none."""
        values = np.asarray(values_ms, dtype=np.float64)
        if not values.size:
            return None
        p50, p99, longest = np.percentile(values, [50, 99, 100])
        return cls(float(p50), float(p99), float(longest), values.size)


class Rises(Counter[str]):
    """How much a process's totals rose while they were watched, by name."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[str, int] | None = None

    def watch(self, totals: Mapping[str, Any]) -> None:
        """A total that fell belongs to a process that started again."""
        after = {name: int(total) for name, total in totals.items()}
        known = after if self._before is None else self._before
        for name, total in after.items():
            before = known.get(name, 0)
            if total != before:
                self[name] += total - before if total > before else total
        self._before = after

    def pause(self) -> None:
        """What rises until the next `watch` is not counted."""
        self._before = None


class Rate:
    """How often something comes, over the time in which it is watched."""

    def __init__(self) -> None:
        self._intervals = self._watched_ns = 0
        self._last_ns: int | None = None

    def at(self, stamp_ns: int) -> None:
        """It came; in order."""
        if self._last_ns is not None:
            self._intervals += 1
            self._watched_ns += stamp_ns - self._last_ns
        self._last_ns = stamp_ns

    def pause(self) -> None:
        """The time until it comes again is not watched."""
        self._last_ns = None

    @property
    def per_s(self) -> float | None:
        """None before the second time."""
        return self._intervals * NS_PER_S / self._watched_ns if self._watched_ns > 0 else None


class Measures:
    """Feed it while playing; `figures` at any time."""

    def __init__(self) -> None:
        self.actions: deque[ActionMark] = deque(maxlen=KEPT)
        self.chunks: deque[ChunkTimes] = deque(maxlen=KEPT)
        self.steps: deque[StepMark] = deque(maxlen=KEPT)
        self.spans: list[tuple[int, int]] = []
        self.scheduling = "unknown"
        self.refused_chunks, self.refused_actions = Rises(), Rises()
        self._skipped_ticks, self._missed_steps = Rises(), Rises()
        self._world, self._cameras = Rate(), dict[str, Rate]()
        self._ages_ns, self._requests_ns = array("q"), array("q")
        self._armed_ns = self._intervals = 0
        self._actions = self._holds = self._lost = self._gap_ns = 0
        self._tick = 0
        self._span: tuple[int, int] | None = None
        self._deadline_misses = 0
        self.interval_error: Spread | None = None  # the actuator's own measurement over its last intervals

    # -- while playing ------------------------------------------------------------------------------------

    def action(self, mono_ns: int, request: int | None, source: str, age_ns: int | None, tick: int) -> None:
        """An action received. Its age counts where it answers an observation (source in FRESH).

        tick: the actuator's count of its ticks; a number that is missing was sent, but did not come here.
        """
        self.actions.append(ActionMark(mono_ns, request))
        self._actions += 1
        self._holds += source not in FRESH
        if source in FRESH and age_ns is not None:
            self._ages_ns.append(age_ns)
        before, self._tick = self._tick, tick
        if self._span is None:
            self._span = (mono_ns, mono_ns)
            return
        if tick == before + 1:
            self._gap_ns = max(self._gap_ns, mono_ns - self._span[1])
        self._lost += max(0, tick - before - 1)
        self._armed_ns += max(0, mono_ns - self._span[1])
        self._intervals += 1
        self._span = (self._span[0], mono_ns)

    def chunk(self, times: ChunkTimes) -> None:
        """A chunk that was published, by its provenance."""
        self.chunks.append(times)
        if self._span is not None:
            self._requests_ns.append(times.request_ns)

    def actuator(self, state: Mapping[str, Any]) -> None:
        """The actuator's `~/state`; its counters count by how much they rose."""
        self.scheduling = str(state.get("scheduling", "unknown"))
        error = state.get("interval_error_ms")
        if error:
            self.interval_error = Spread(float(error["p50"]), float(error["p99"]), float(error["max"]), int(error["n"]))
        if state.get("state") in LIVE:
            self.refused_chunks.watch(state.get("counters", {}).get("refused", {}))
            self._skipped_ticks.watch({"": state.get("skipped_ticks", 0)})
        else:
            self.refused_chunks.pause()
            self._skipped_ticks.pause()

    def world(self, status: Mapping[str, Any]) -> None:
        """The world's status. One that stands and waits refuses every action but its first: not counted."""
        self.steps.append(StepMark(int(status["mono_ns"]), int(status["step"])))
        if not status.get("waiting"):
            self._world.at(int(status["mono_ns"]))
            self.refused_actions.watch(status.get("refused", {}))
            self._missed_steps.watch({"": status.get("missed_ticks", 0)})

    def picture(self, camera: str, stamp_ns: int) -> None:
        """A picture that came here."""
        self._cameras.setdefault(camera, Rate()).at(stamp_ns)

    def deadlines_missed(self, count: int, now_ns: int) -> None:
        """DDS reported that no action came here within the deadline; what was sent when is `sent_gap_ms_max`."""
        if self._span is not None and now_ns - self._span[0] > SETTLED_NS:
            self._deadline_misses += count

    def pause(self) -> None:
        """The episode is over: what comes until the next one is not counted."""
        if self._span is not None:
            self.spans.append(self._span)
        self._span = None
        for total in (self.refused_chunks, self.refused_actions, self._skipped_ticks, self._missed_steps):
            total.pause()
        for rate in (self._world, *self._cameras.values()):
            rate.pause()

    # -- afterwards ---------------------------------------------------------------------------------------

    def staleness(self) -> Spread | None:
        """Age of the observation that each action answers; None before the first."""
        return Spread.of(np.asarray(self._ages_ns) / NS_PER_MS)

    def figures(self) -> dict[str, float]:
        """Every number of the summary, flat; a key is missing where there is nothing to say."""
        rates = {"steps_per_s": self._world, **{f"camera_{name}_per_s": rate for name, rate in self._cameras.items()}}
        armed_s = self._armed_ns / NS_PER_S
        found: dict[str, float] = {"armed_s": armed_s}
        if armed_s > 0:
            found |= {"chunks_per_s": len(self._requests_ns) / armed_s, "actions_per_s": self._intervals / armed_s}
            found |= {"held_share": self._holds / self._actions, "sent_gap_ms_max": self._gap_ns / NS_PER_MS}
        found |= {name: rate.per_s for name, rate in rates.items() if rate.per_s is not None}
        spreads = {
            "interval_error_ms": self.interval_error,
            "staleness_ms": self.staleness(),
            "request_ms": Spread.of(np.asarray(self._requests_ns) / NS_PER_MS),
        }
        for name, spread in spreads.items():
            if spread is not None:
                found |= {f"{name}_{key}": value for key, value in vars(spread).items()}
        found |= {
            "deadline_misses": self._deadline_misses,
            "actions_lost": self._lost,
            "skipped_ticks": self._skipped_ticks.total(),
            "missed_steps": self._missed_steps.total(),
            "refused_chunks": self.refused_chunks.total(),
            "refused_actions": self.refused_actions.total(),
        }
        found |= {f"refused_chunks_{reason}": n for reason, n in sorted(self.refused_chunks.items())}
        found |= {f"refused_actions_{reason}": n for reason, n in sorted(self.refused_actions.items())}
        return found
