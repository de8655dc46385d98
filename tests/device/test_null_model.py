"""The null device against an independent model: a simulation that goes through time tick by tick.

The model knows jobs in queues and starts, at every tick, whatever can start; it computes no maximum and no end in
advance. Random programs launch on several lanes, after any earlier marks, wait, and let time pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from auras_ros.clock import VirtualClock
from tests.device.null_device import NullDevice, NullMark

LANES = 3
DURATIONS_NS = {"a": 0, "b": 1, "c": 3, "d": 7}


@dataclass
class Job:
    lane: int
    duration: int
    released: int
    after: list[int]
    start: int | None = None
    end: int | None = None


def simulate(jobs: list[Job]) -> None:
    """Start each job at the first tick that finds its lane idle, itself at the head and released, its marks passed."""
    for job in jobs:
        job.start = job.end = None
    queues = [[job for job in jobs if job.lane == lane] for lane in range(LANES)]
    running: list[Job | None] = [None] * LANES
    tick = 0
    while any(queues) or any(running):
        moved = True
        while moved:
            moved = False
            for lane in range(LANES):
                now = running[lane]
                if now is not None and now.start is not None and tick - now.start >= now.duration:
                    now.end, running[lane], moved = tick, None, True
                if running[lane] is None and queues[lane]:
                    head = queues[lane][0]
                    if head.released <= tick and all(jobs[number].end is not None for number in head.after):
                        head.start, running[lane], moved = tick, queues[lane].pop(0), True
        tick += 1


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("launch"),
            st.integers(0, LANES - 1),
            st.sampled_from("abcd"),
            st.lists(st.integers(0, 30), max_size=3),
        ),
        st.tuples(st.just("wait"), st.integers(0, 30)),
        st.tuples(st.just("pass"), st.integers(0, 12)),
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_lanes_keep_the_schedule_of_the_model(steps: list[Any]) -> None:
    clock = VirtualClock()
    device = NullDevice(clock, DURATIONS_NS)
    lanes = [device.lane(str(number)) for number in range(LANES)]
    stages = [{name: device.capture(name, lambda: None, lane) for name in DURATIONS_NS} for lane in lanes]
    jobs: list[Job] = []
    marks: list[NullMark] = []
    now = 0
    for step in steps:
        if step[0] == "launch":
            after = [number for number in step[3] if number < len(jobs)]
            jobs.append(Job(step[1], DURATIONS_NS[step[2]], now, after))
            mark = lanes[step[1]].launch(stages[step[1]][step[2]], [marks[number] for number in after])
            assert isinstance(mark, NullMark)
            marks.append(mark)
        elif step[0] == "pass":
            clock.advance(step[1])
            now += step[1]
        elif step[1] < len(jobs):
            simulate(jobs)
            marks[step[1]].wait()
            end = jobs[step[1]].end
            assert end is not None
            now = max(now, end)
        assert clock.now_ns() == now
    simulate(jobs)
    assert [mark.ends_ns for mark in marks] == [job.end for job in jobs]
    assert [mark.done() for mark in marks] == [job.end is not None and job.end <= now for job in jobs]
