"""The frame meter: which frames are under way, and how long the newest took; and ledgers that follow one another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.pipeline.meter import KEPT, FrameMeter
from auras_ros.pipeline.request import Ledger, ObservationOrigin

MS = 1_000_000


def test_a_frame_is_under_way_from_its_beginning_to_its_end() -> None:
    meter = FrameMeter(["perceive", "generate"])
    assert (meter.under_way(), meter.times()) == ({}, None)
    meter.began("generate", 5)
    assert meter.under_way() == {"generate": 5}
    meter.ended("generate", 9)
    assert meter.under_way() == {}
    meter.ended("generate", 20)  # a second end of one frame is none
    assert meter.frames == 1


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=KEPT + 50))
def test_times_are_those_of_the_newest_frames(durations_ns: list[int]) -> None:
    meter = FrameMeter(["frame"])
    for i, duration_ns in enumerate(durations_ns):
        meter.began("frame", i)
        meter.ended("frame", i + duration_ns)
    times, newest_ms = meter.times(), np.array(durations_ns[-KEPT:]) / 1e6
    assert times is not None
    assert (times.n, meter.frames) == (len(newest_ms), len(durations_ns))
    assert (times.p50_ms, times.p99_ms) == pytest.approx(tuple(np.percentile(newest_ms, [50, 99])))


def test_a_ledger_that_follows_another_goes_on_after_it() -> None:
    first, second = Ledger(), Ledger()
    first.reset()
    assert [first.admit(ObservationOrigin(at, at), at, 1) for at in (10, 20)] == [0, 1]
    second.follow(first)
    assert second.epoch == 2
    older = ObservationOrigin(15, 15)
    assert second.admit(older, 30, 2) == 2  # what it sees first is new to it, whatever the other has seen
    first.follow(second)
    assert (first.epoch, first.admit(ObservationOrigin(1, 1), 40, 3)) == (3, 3)
