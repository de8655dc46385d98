"""One window: what counts in it, how long it lasts, and how old a chunk is meanwhile."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from auras_ros.measure.window import Length, Meter


class Time:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def emit(meter: Meter, time: Time, worker: str, at_ms: int, frame: int | None = None, read_ms: int = 0) -> None:
    """As a worker of that name would, at that moment: each chunk of a frame of its own unless a frame is given."""
    time.now = at_ms * 1_000_000
    read = SimpleNamespace(mono_ns=read_ms * 1_000_000)
    chunk = SimpleNamespace(frame=at_ms if frame is None else frame, contexts=[read])
    thread = threading.Thread(target=meter.emit, args=(chunk,), name=worker)
    thread.start()
    thread.join()


def test_a_workers_rate_is_that_between_its_first_chunk_and_its_last() -> None:
    """The start of the thread does not count, nor what comes after the window; workers add up."""
    time = Time()
    meter = Meter(2, Length(chunks=2, seconds=0.0), time)
    for worker, at_ms in [("a", 1000), ("b", 1001), ("a", 1010), ("b", 1021), ("a", 1020), ("a", 1030)]:
        emit(meter, time, worker, at_ms)
        assert not meter.over.is_set()
    emit(meter, time, "b", 1041)
    assert meter.over.is_set()
    emit(meter, time, "a", 1042)
    assert meter.rate() == pytest.approx(3 / 0.030 + 2 / 0.040)


def test_a_batch_that_was_made_before_the_window_does_not_count() -> None:
    """Chunks of a batch come within a moment of one another: the first four were made before the clock ran."""
    time = Time()
    meter = Meter(1, Length(chunks=3, seconds=0.0), time)
    for at_ms, frame in [(1000, 7), (1001, 7), (1002, 7), (1003, 7), (1100, 8), (1101, 8), (1102, 8), (1103, 8)]:
        emit(meter, time, "frame", at_ms, frame)
    assert meter.rate() == pytest.approx(3 / 0.102)  # over with the third of the second batch


def test_a_chunk_ages_until_the_next_one_comes() -> None:
    """Averaged over time; an older context behind a later chunk of another worker makes nothing fresher."""
    time = Time()
    meter = Meter(1, Length(chunks=9, seconds=0.0), time)
    assert meter.staleness_ms() is None
    for at_ms, read_ms in [(1000, 900), (1100, 1050), (1200, 1000), (1400, 1300)]:
        emit(meter, time, "a", at_ms, read_ms=read_ms)
    aged = 100 * 150 + 100 * 100 + 200 * 250  # interval x age in its middle
    assert meter.staleness_ms() == pytest.approx(aged / 400)


def test_what_was_perceived_before_the_window_ages_nothing() -> None:
    """The first chunks of `dec` may answer the window before: as old as the pause, which no robot makes."""
    time = Time()
    time.now = 5_000_000_000
    meter = Meter(1, Length(chunks=9, seconds=0.0), time)
    for at_ms, read_ms in [(5100, 900), (5200, 900)]:
        emit(meter, time, "a", at_ms, read_ms=read_ms)
    assert meter.staleness_ms() is None
    for at_ms, read_ms in [(5300, 5250), (5400, 5350)]:
        emit(meter, time, "a", at_ms, read_ms=read_ms)
    assert meter.staleness_ms() == pytest.approx(100)


def test_a_window_lasts_as_long_as_it_should() -> None:
    time = Time()
    meter = Meter(1, Length(chunks=1, seconds=0.05), time)
    for at_ms in (100, 110, 149):
        emit(meter, time, "a", at_ms)
        assert not meter.over.is_set()
    emit(meter, time, "a", 150)
    assert meter.over.is_set()


def test_a_window_without_two_chunks_of_every_worker_is_none() -> None:
    """The others' alone would be too few: a worker that the window's limit cut had its share of the cores."""
    time = Time()
    meter = Meter(2, Length(), time)
    emit(meter, time, "a", 5)
    assert meter.rate() == 0
    emit(meter, time, "b", 6)
    emit(meter, time, "b", 16)
    assert meter.rate() == 0
    emit(meter, time, "a", 25)
    assert meter.rate() == pytest.approx(150)
