"""The ring of spans: the latest stay, the rest is counted, several lanes write at once."""

from __future__ import annotations

import threading
import tracemalloc
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.device import Span, Spans


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 4), st.integers(0, 9))),
)
def test_the_latest_stay_and_the_rest_is_counted(capacity: int, written: list[tuple[str, str, int, int]]) -> None:
    spans, kept = Spans(capacity), deque[Span](maxlen=capacity)
    for lane, stage, start, length in written:
        spans.add(lane, stage, start, start + length)
        kept.append(Span(lane, stage, start, start + length))
    assert spans.rows() == sorted(kept, key=lambda span: span.start_ns)
    assert len(spans.rows()) == len(kept)
    assert spans.dropped == len(written) - len(kept)


def test_rows_come_by_start_whoever_wrote_first() -> None:
    spans = Spans(4)
    spans.add("late", "b", 20, 30)
    spans.add("early", "a", 10, 25)
    assert [row.lane for row in spans.rows()] == ["early", "late"]


def test_times_keep_every_nanosecond() -> None:
    spans = Spans(1)
    spans.add("lane", "stage", 2**62 + 1, 2**62 + 3)
    assert spans.rows() == [Span("lane", "stage", 2**62 + 1, 2**62 + 3)]


def test_clear_forgets_the_rows_and_the_count() -> None:
    spans = Spans(2)
    for start in range(5):
        spans.add("lane", "stage", start, start)
    spans.clear()
    assert (spans.rows(), spans.dropped) == ([], 0)
    spans.add("lane", "again", 7, 8)
    assert spans.rows() == [Span("lane", "again", 7, 8)]


def test_a_span_that_ends_before_it_starts_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"stage 'step' on lane 'one' ends at 4, before its start at 5 ns"):
        Spans(1).add("one", "step", 5, 4)


def test_a_ring_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        Spans(0)


def test_lanes_write_at_once() -> None:
    spans, go = Spans(4000), threading.Barrier(4, timeout=60)

    def write(lane: str) -> None:
        go.wait()
        for start in range(1000):
            spans.add(lane, f"{lane}{start % 3}", start, start + 1)

    writers = [threading.Thread(target=write, args=(lane,)) for lane in "abcd"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(spans.rows()) == sorted(
        Span(lane, f"{lane}{start % 3}", start, start + 1) for lane in "abcd" for start in range(1000)
    )
    assert spans.dropped == 0


def test_a_full_ring_takes_no_more_memory() -> None:
    spans = Spans(100)
    tracemalloc.start()
    try:
        for start in range(1000, 1150):  # small numbers are shared
            spans.add("lane", "stage", start, start)
        before, _ = tracemalloc.get_traced_memory()
        for start in range(2000, 7000):
            spans.add("lane", "stage", start, start)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1000
