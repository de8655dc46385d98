"""Temporal ensembling against a reference that is written out plainly, over random histories."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auras_ros.action import ActionStream, ContractError
from auras_ros.action.ensemble import MAX_MEMBERS
from tests.action.drive import run

MS = 1_000_000
STEP = 100 * MS
KINDS = ("absolute", "linear", "delta_origin", "velocity", "gripper", "delta_previous")


def level(make: SimpleNamespace, value: float, origin_ns: int, horizon: int = 8, **source: Any) -> Any:
    return make.chunk([value] * horizon, origin_ns, **source)


def ensemble(make: SimpleNamespace, rules: Any = None, decay: float = 0.5, **options: Any) -> ActionStream:
    return make.armed(rules, seam="ensemble", ensemble_decay=decay, **options)


def test_the_oldest_weighs_most(make: SimpleNamespace) -> None:
    """ACT: exp(-m·i), i = 0 for the oldest prediction of this time step."""
    stream = ensemble(make)
    stream.offer(level(make, 10, 0), 1)
    command = stream.tick(STEP)
    assert (command.values[0], command.source, command.age_ns) == (10, "chunk", STEP)
    stream.offer(level(make, 40, STEP), STEP + 1)
    stream.offer(level(make, 70, STEP + 1), STEP + 2)
    w = [1.0, math.exp(-0.5), math.exp(-1.0)]
    command = stream.tick(2 * STEP)
    assert command.values[0] == pytest.approx((10 * w[0] + 40 * w[1] + 70 * w[2]) / sum(w))
    assert (command.source, command.index, command.age_ns) == ("ensemble", 0, 2 * STEP)
    assert command.provenance is not None
    assert command.provenance.origin_mono_ns == STEP + 1


def test_a_chunk_that_is_over_says_nothing_more(make: SimpleNamespace) -> None:
    """Then the next oldest counts from 0, as it does where an old chunk has grown too old."""
    stream = ensemble(make)
    stream.offer(level(make, 10, 0, horizon=2), 1)
    stream.offer(level(make, 40, 1), 2)
    stream.offer(level(make, 70, 2), 3)
    later = (40 + 70 * math.exp(-0.5)) / (1 + math.exp(-0.5))
    assert run(stream, STEP, 2 * STEP)[1] == pytest.approx(later)
    aged = ensemble(make, max_chunk_age_ms=150)
    aged.offer(level(make, 10, 0), 1)
    aged.offer(level(make, 40, STEP), STEP)
    assert run(aged, 2 * STEP) == [40]
    assert run(aged, 3 * STEP) == [40]
    assert "older than 150 ms" in aged.reason


def test_what_a_chunk_held_before_its_time_is_never_asked(make: SimpleNamespace) -> None:
    """A late chunk may hold NaN where time has passed; when it is over it weighs nothing, and 0 times NaN is NaN."""
    stream = ensemble(make)
    run(stream, STEP)
    assert stream.offer(make.chunk([np.nan, np.nan, 10], 0), STEP + 1).ok
    assert stream.offer(level(make, 40, STEP), STEP + 2).ok
    assert run(stream, 2 * STEP, 3 * STEP)[1] == 40


def test_a_gripper_switches_with_the_newest(make: SimpleNamespace) -> None:
    stream = ensemble(make, make.contract(make.channel(kind="gripper")))
    stream.offer(level(make, 10, 0), 1)
    stream.offer(level(make, 40, 1), 2)
    assert run(stream, STEP) == [40]


def test_increments_go_where_the_mean_of_the_paths_goes(make: SimpleNamespace) -> None:
    """One chunk wants 1 a step from the start, the other 3 from the tick after: none is lost or made twice."""
    stream = ensemble(make, make.contract(make.channel(kind="delta_previous")), decay=0.0)
    stream.offer(level(make, 1, 0), 1)
    stream.offer(level(make, 3, 1), 2)
    # The paths: 2, 3, 4 and 3, 6, 9.
    assert run(stream, STEP, 2 * STEP, 3 * STEP) == [2.5, 2.0, 2.0]


@pytest.mark.parametrize("end", ["epoch", "session", "lost", "stop", "poison"])
def test_nothing_of_another_life_or_epoch_or_before_a_fault_enters(make: SimpleNamespace, end: str) -> None:
    stream = ensemble(make)
    stream.offer(level(make, 10, 0), 1)
    run(stream, STEP)
    source: dict[str, Any] = {}
    if end == "epoch":
        source["epoch"] = 1
    if end == "session":
        source["session"] = "another"
        assert not stream.offer(level(make, 90, STEP, **source), STEP).ok
        stream.hold(STEP)
        stream.arm(STEP)
    if end == "lost":
        stream.hold(STEP)
    if end == "stop":
        stream.stop(STEP)
        stream.disarm(STEP)
        stream.arm(STEP)
    if end == "poison":
        assert not stream.offer(level(make, math.nan, STEP), STEP).ok
    assert stream.offer(level(make, 40, STEP + 1, **source), STEP + 2).ok
    assert run(stream, 2 * STEP) == [40]


def test_a_refused_chunk_does_not_enter(make: SimpleNamespace) -> None:
    stream = ensemble(make)
    stream.offer(level(make, 10, 1), 2)
    assert not stream.offer(level(make, 40, 0), 2).ok
    assert run(stream, STEP) == [10]


@pytest.mark.parametrize("seam", ["switch", "ensemble"])
def test_an_origin_is_never_after_the_first_tick_that_uses_it(make: SimpleNamespace, seam: str) -> None:
    """A late tick at 190 ms, an origin more than a period after it, and the next tick back on the grid."""
    stream = make.armed(seam=seam)
    stream.tick(190 * MS)
    assert stream.offer(make.chunk([0, 1, 2, 3], 291 * MS), 292 * MS).ok
    assert run(stream, 295 * MS, 400 * MS) == [0, 1]


def test_memory_is_bounded_and_the_newest_stay(make: SimpleNamespace) -> None:
    stream = ensemble(make, decay=0.0)
    for k in range(MAX_MEMBERS + 50):
        assert stream.offer(level(make, float(k < 50), k), k).ok
    assert run(stream, STEP) == [0.0]
    assert len(stream._generator.plan._ensemble._members) == MAX_MEMBERS  # type: ignore[union-attr]


def test_the_horizon_is_the_mean_too(make: SimpleNamespace) -> None:
    stream = ensemble(make, decay=0.0)
    stream.offer(level(make, 10, 0, horizon=4), 1)
    stream.offer(level(make, 40, 1, horizon=4), 2)
    run(stream, STEP)
    ahead = stream.ahead(STEP + 1).checked()
    assert ahead is not None
    assert (ahead.index, ahead.values[:, 0].tolist()) == (1, [25.0, 25.0, 40.0])


@pytest.mark.parametrize("seam", ["blend", "switch", "ensemble"])
def test_only_its_own_seam_joins(make: SimpleNamespace, seam: str) -> None:
    stream = make.armed(seam=seam, blend_ms=100, ensemble_decay=math.log(3))
    stream.offer(level(make, 0, 0), 1)
    run(stream, STEP)
    stream.offer(level(make, 40, STEP), STEP + 1)
    assert run(stream, 2 * STEP) == [pytest.approx({"blend": 20, "switch": 40, "ensemble": 10}[seam])]


@pytest.mark.parametrize(
    ("options", "text"),
    [({"seam": "mean"}, "seam"), ({"ensemble_decay": -0.1}, "ensemble_decay"), ({"ensemble_decay": math.nan}, "decay")],
)
def test_options_are_checked_by_name(make: SimpleNamespace, options: Any, text: str) -> None:
    with pytest.raises(ContractError, match=text):
        make.stream(**options)


TICK, DT, MAX_AGE = 20, 60, 600  # ns


class Reference:
    """All chunks ever accepted, in order; each tick asks every one of them what it would say."""

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.chunks: list[tuple[Any, int, float]] = []  # chunk, first tick, increments executed at the origin
        self.executed = [0.0]  # before tick k

    def origin(self, chunk: Any) -> int:
        return math.ceil(chunk.provenance.origin_mono_ns / TICK)

    def offer(self, chunk: Any, count: int) -> None:
        self.chunks = [c for c in self.chunks if c[0].provenance.epoch == chunk.provenance.epoch]
        self.chunks.append((chunk, count, self.executed[min(self.origin(chunk), len(self.executed) - 1)]))

    def says(self, chunk: Any, first: int, base: float, column: int, count: int) -> float | None:
        elapsed = max(0, count - self.origin(chunk)) * TICK
        step = math.ceil(elapsed / DT)
        if step >= chunk.horizon or count * TICK - chunk.provenance.origin_mono_ns > MAX_AGE:
            return None
        values = chunk.actions[:, column]
        if KINDS[column] == "delta_previous":
            return base + float(values[: step + 1].sum())
        value = float(values[step])
        if KINDS[column] == "linear" and elapsed % DT:
            value = float(values[step - 1]) + elapsed % DT / DT * (value - float(values[step - 1]))
        return value + (float(chunk.reference[column]) if KINDS[column] == "delta_origin" else 0.0)

    def tick(self, count: int) -> list[float] | None:
        out = []
        for column, kind in enumerate(KINDS):
            said = [v for c in self.chunks if (v := self.says(*c, column, count)) is not None]
            if not said:
                self.executed.append(self.executed[-1])
                return None
            weights = [math.exp(-self.decay * i) for i in range(len(said))]
            mean = sum(w * v for w, v in zip(weights, said, strict=True)) / sum(weights)
            out.append(said[-1] if kind == "gripper" else mean)
        out[-1] -= self.executed[-1]
        self.executed.append(self.executed[-1] + out[-1])
        return out


OFFERS = st.lists(
    st.none() | st.tuples(st.integers(0, 200), st.integers(1, 9), st.integers(0, 9999), st.sampled_from([0] * 9 + [1])),
    min_size=10,
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(offers=OFFERS, decay=st.sampled_from([0.0, 0.01, 0.5, 5.0]))
def test_it_agrees_with_the_reference(make: SimpleNamespace, offers: Any, decay: float) -> None:
    """One offer or none between two ticks: (age, horizon, seed, whether the epoch rises)."""
    channels = [
        make.channel(kind, "absolute", interpolation="linear", lower=-1e6, upper=1e6)
        if kind == "linear"
        else make.channel(kind, kind, lower=-1e6, upper=1e6)
        for kind in KINDS
    ]
    rules = make.contract(*channels, dt_ms=DT * 1e-6)
    stream = make.stream(rules, TICK, max_chunk_age_ms=MAX_AGE * 1e-6, seam="ensemble", ensemble_decay=decay)
    model, epoch = Reference(decay), 0
    stream.tick(0)
    stream.arm(0)
    model.executed.append(0.0)
    for count, offer in enumerate(offers, start=1):
        now_ns = count * TICK - 1
        if offer is not None:
            age, horizon, seed, rises = offer
            rng = np.random.default_rng(seed)
            origin, epoch = max(0, now_ns - age), epoch + rises
            actions, reference = rng.uniform(-100, 100, (horizon, len(KINDS))), rng.uniform(-10, 10, len(KINDS))
            chunk = make.chunk(actions, origin, reference=reference, epoch=epoch, request=count)
            if stream.offer(chunk, now_ns).ok:
                model.offer(chunk, count)
        command, expected = stream.tick(count * TICK), model.tick(count)
        assert (command.provenance is not None) == (expected is not None)
        if expected is not None:
            assert command.values.tolist() == pytest.approx(expected, abs=1e-6)
