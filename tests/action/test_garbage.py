"""100,000 ticks beside an agent that says anything: nothing beyond limits or rates is ever published."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from auras_ros.action import ActionStream, Chunk, ContractError, Provenance

TICK_NS = 10_000_000
TICKS = 100_000


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


def prod(rng: np.random.Generator, stream: ActionStream, now_ns: int) -> bool:
    """Now and then the operator does something as well. Returns whether the stream was armed anew."""
    draw = rng.random()
    if draw < 0.002:
        stream.stop(now_ns)
    elif draw < 0.006:
        stream.disarm(now_ns)
    elif draw < 0.010:
        stream.agent_lost(now_ns)
    elif draw < 0.06:
        current = rng.uniform(-110, 110, len(stream.contract.channels)) if draw < 0.03 else None
        verdict = stream.arm(now_ns, current)
        return verdict.ok and verdict.detail == "armed"
    return False


def test_nothing_beyond_limits_in_a_hundred_thousand_ticks(make: SimpleNamespace) -> None:
    rates: list[Any] = [None, 500.0, 2000.0, 100.0, None, 300.0, None, 50.0]
    kinds = ["absolute", "absolute", "delta_origin", "velocity", "velocity", "delta_previous", "gripper", "gripper"]
    extras: list[dict[str, Any]] = [{}] * 8
    extras[1] = {"hold": "value", "hold_value": 20.0, "interpolation": "linear"}
    channels = [
        make.channel(f"{kind}{i}", kind, max_rate=rate, **extra)
        for i, (kind, rate, extra) in enumerate(zip(kinds, rates, extras, strict=True))
    ]
    stream = ActionStream(make.contract(*channels, dt_ms=50), TICK_NS, 30, 40, 400)
    steps = np.array([np.inf if rate is None else rate * TICK_NS * 1e-9 for rate in rates]) + 1e-9
    increments = np.array([kind == "delta_previous" for kind in kinds])
    stopping = np.array([kind == "velocity" for kind in kinds])
    rng = np.random.default_rng(1)
    last: Any = None
    now_ns, published = 0, 0
    for _ in range(TICKS):
        now_ns += TICK_NS * (1 if rng.random() < 0.98 else int(rng.integers(1, 30)))
        if rng.random() < 0.2:
            chunk = garbage(rng, now_ns, len(channels))
            if chunk is not None:
                stream.offer(chunk, now_ns)
        if prod(rng, stream, now_ns):
            last = None  # perhaps at a measured position: the rate starts anew from there
        command = stream.tick(now_ns)
        if not command.publish:
            last = None
            continue
        published += 1
        assert np.isfinite(command.values).all()
        assert (np.abs(command.values) <= 100.0).all()
        assert (np.abs(command.values[increments]) <= steps[increments]).all()
        if last is not None:
            free = increments | (stopping & (command.state.value == "disarmed"))
            assert (np.abs(command.values - last)[~free] <= steps[~free]).all()
        last = command.values
    counters = stream.counters()
    assert published > TICKS / 3
    assert counters["accepted"] > 1000
    assert min(counters["refused"].get(name, 0) for name in ("non_finite", "over_limit", "shape", "past")) > 100


def test_a_tick_costs_little(make: SimpleNamespace) -> None:
    """Well under 100 us for 20 channels where nothing disturbs; the bound leaves room for a busy machine."""
    rules = make.contract(*(make.channel(f"c{i}", max_rate=2000.0) for i in range(20)))
    stream = ActionStream(rules, TICK_NS, 50, 100, 1000)
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
    assert np.median(spent) < 500e-6
