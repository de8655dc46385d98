"""20,000 ticks beside an agent that says anything: nothing beyond limits or rates is ever published."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auras_ros.action import ActionStream, ChannelKind, Chunk, Contract, ContractError, Provenance, SafetyState

TICK_NS = 10_000_000
TICKS = 10_000


def garbage(rng: np.random.Generator, now_ns: int, channels: int) -> Chunk | None:
    """A chunk that is in turn fine, wild, poisoned, mis-shaped, early, late or ancient."""
    kind = rng.integers(0, 8)
    scale = [90.0, 90.0, 90.0, 103.0, 1e3, 1e300, 90.0, 90.0][kind]
    actions = rng.uniform(-scale, scale, (int(rng.integers(1, 12)), channels + int(kind == 7)))
    if kind == 6:
        actions[rng.integers(0, len(actions)), rng.integers(0, channels)] = rng.choice([np.nan, np.inf, -np.inf])
    origin_ns = now_ns - int(rng.choice([0, 1, 5, 30, 100, -1, 10_000])) * TICK_NS // 2
    reference = rng.uniform(-100, 100, channels + int(kind == 7))
    if rng.random() < 0.1:
        reference[0] = np.nan
    source = Provenance(origin_ns, origin_ns, session="s", request=int(rng.integers(0, 99)))
    try:
        return Chunk(actions, source, reference)
    except ContractError:
        return None


def prod(rng: np.random.Generator, stream: ActionStream, now_ns: int) -> Any:
    """Now and then the operator does something as well. Returns the measured position if it armed at one, and whether
    nothing was sent until then."""
    draw = rng.random()
    if draw < 0.002:
        stream.stop(now_ns)
    elif draw < 0.006:
        stream.disarm(now_ns)
    elif draw < 0.010:
        stream.hold(now_ns)
    elif draw < 0.06:
        current = rng.uniform(-100.3, 100.3, len(stream.contract.channels)) if draw < 0.03 else None
        silent, verdict = stream.silent, stream.arm(now_ns, current)
        return (current, silent) if current is not None and verdict.ok and verdict.detail == "armed" else None
    return None


class Watch:
    """What the last commands were, tick by tick: what a controller sees. Every bound is checked at every command."""

    def __init__(self, contract: Contract) -> None:
        seconds, channels = TICK_NS * 1e-9, contract.channels

        def bounds(values: Any, scale: float) -> Any:
            return np.array([np.inf if value is None else value * scale for value in values]) * (1 + 1e-9) + 1e-9

        self.adds = contract.is_kind(ChannelKind.DELTA_PREVIOUS)
        rates = contract.is_kind(ChannelKind.VELOCITY)
        step, change = [c.max_rate for c in channels], [c.max_acceleration for c in channels]
        of_rates = np.minimum(bounds(step, seconds), bounds(change, seconds))
        self.step = np.where(rates, of_rates, bounds(step, seconds))
        self.change = np.where(rates, np.inf, bounds(change, seconds**2))
        self.starts_at_rest = rates | self.adds
        self.silence()

    def silence(self) -> None:
        """Nothing is published: positions start again, rates and increments from nothing."""
        self.last = np.where(self.starts_at_rest, 0.0, np.nan)
        self.pace: Any = np.zeros(len(self.last))

    def placed(self, measured: Any, silent: bool) -> None:
        """Armed at a measured position: a channel at rest to which nothing was sent, or just now nothing is, starts
        from there."""
        resting = ((self.pace == 0.0) | (self.change == np.inf)) & silent
        starts = (resting | np.isnan(self.last)) & ~self.starts_at_rest
        self.last = np.where(starts, np.clip(measured, -100, 100), self.last)

    def see(self, values: Any, missed: bool) -> None:
        assert np.isfinite(values).all()
        assert (np.abs(values) <= 100.0).all()
        if missed:
            self.pace = np.zeros(len(self.last))
        known = np.isfinite(self.last)
        pace = np.where(self.adds, values, np.where(known, values - self.last, 0.0))
        assert (np.abs(pace) <= self.step).all()
        assert (np.abs(pace - self.pace) <= self.change).all()
        self.last, self.pace = np.where(self.adds, 0.0, values), pace


CHANNELS: list[tuple[str, dict[str, Any]]] = [
    ("absolute", {}),
    ("absolute", {"max_rate": 500.0, "hold": "value", "hold_value": 20.0, "interpolation": "linear"}),
    ("absolute", {"max_rate": 500.0, "max_acceleration": 2000.0}),
    ("absolute", {"max_acceleration": 9000.0, "hold": "value", "hold_value": -95.0, "interpolation": "linear"}),
    ("delta_origin", {"max_rate": 2000.0, "max_acceleration": 30000.0}),
    ("velocity", {"max_rate": 100.0}),
    ("velocity", {}),
    ("velocity", {"max_acceleration": 400.0, "interpolation": "linear"}),
    ("delta_previous", {"max_rate": 300.0}),
    ("delta_previous", {"max_rate": 3000.0, "max_acceleration": 50000.0}),
    ("gripper", {}),
    ("gripper", {"max_rate": 50.0, "max_acceleration": 500.0}),
]


@pytest.mark.parametrize("seam", ["blend", "ensemble"])
def test_nothing_beyond_limits_in_ten_thousand_ticks(make: SimpleNamespace, seam: str) -> None:
    """Value, rate and acceleration, from arming to the last command, holds, seams and re-arming included."""
    channels = [make.channel(f"{kind}{i}", kind, **rules) for i, (kind, rules) in enumerate(CHANNELS)]
    rules = make.contract(*channels, dt_ms=50)
    stream = make.stream(rules, TICK_NS, blend_ms=30, hold_after_ms=40, max_chunk_age_ms=400, seam=seam)
    rng, watch = np.random.default_rng(1), Watch(rules)
    now_ns, published, ramps = 0, 0, 0
    for _ in range(TICKS):
        skipped = 0 if rng.random() < 0.98 else int(rng.integers(0, 29))
        now_ns += TICK_NS * (1 + skipped)
        if rng.random() < 0.2:
            chunk = garbage(rng, now_ns, len(channels))
            if chunk is not None:
                stream.offer(chunk, now_ns)
        if (measured := prod(rng, stream, now_ns)) is not None:
            watch.placed(*measured)
        command = stream.tick(now_ns)
        if not command.publish:
            watch.silence()
            continue
        published += 1
        ramps += command.state is SafetyState.DISARMED
        watch.see(command.values, skipped > 0)
    counters = stream.counters()
    assert published > TICKS / 3
    assert ramps > 60, "on the way to rest after disarm"
    assert counters["accepted"] > 100
    assert min(counters["refused"].get(name, 0) for name in ("non_finite", "over_limit", "shape", "past")) > 10


@pytest.mark.parametrize(("seam", "acceleration"), [("blend", None), ("ensemble", 1e4)])
def test_a_tick_costs_little(make: SimpleNamespace, seam: str, acceleration: float | None) -> None:
    """About 50 us for 20 channels where nothing disturbs, and 150 with an ensemble and accelerations; the bound
    leaves room for a busy machine."""
    rules = [make.channel(f"c{i}", max_rate=2000.0, max_acceleration=acceleration) for i in range(20)]
    stream = make.stream(
        make.contract(*rules), TICK_NS, blend_ms=50, hold_after_ms=100, max_chunk_age_ms=1000, seam=seam
    )
    stream.tick(0)
    stream.arm(0, np.zeros(20))
    rng = np.random.default_rng(0)
    spent: list[float] = []
    for k in range(1, 2001):
        now_ns = k * TICK_NS
        if k % 10 == 1:
            source = Provenance(now_ns, now_ns)
            assert stream.offer(Chunk(rng.uniform(-90, 90, (16, 20)), source), now_ns).ok
        began = time.thread_time()
        stream.tick(now_ns)
        spent.append(time.thread_time() - began)
    assert np.median(spent) < 4e-3
