"""The Chrome trace of an executor in virtual time: what ran, when, and nothing that did not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from auras_ros.clock import VirtualClock
from auras_ros.device import Spans
from auras_ros.measure.recording import Recording, chrome_trace
from auras_ros.pipeline.live import Frame
from auras_ros.pipeline.modes import Executor, make_executor
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission, NoiseTape, Worker
from auras_ros.pipeline.run_context import RunContext
from tests.device.null_device import NullDevice
from tests.pipeline.recording import COPIES_NS, RecordingNoise, RecordingPolicy, latched

MS = 1_000_000
DURATIONS_MS = {**COPIES_NS, "perception": 3, "generation": 10}
FRAMES = 6


class Run:
    """Frames of an executor one after another, 1 ms apart, each with a newer observation. watched: with a recording."""

    def __init__(self, plan: str, frames: int = FRAMES, watched: bool = True, warm: bool = False) -> None:
        self.clock, self.spans = VirtualClock(), Spans(1000)
        self.recording = Recording(self.clock)
        self.emissions: list[Emission] = []
        device = NullDevice(self.clock, {name: ms * MS for name, ms in DURATIONS_MS.items()}, self.spans)
        noise: NoiseTape = RecordingNoise(4, [0])
        noise = self.recording.noise(noise) if watched else noise
        self.executor: Executor = make_executor(
            RunContext(RecordingPolicy(4), Plan.parse(plan), noise, latched(99, [0]), self.clock, device)
        )
        self.watched = watched
        if warm:
            self._warm_up()
        for stamp in range(frames):
            for worker in self.executor.workers:
                self.frame(worker, stamp)

    def _warm_up(self) -> None:
        """What it left is cleared; its frames are not observed, as `Live` does not run them."""
        self.executor.warm_up()
        assert not self.recording.frames()
        self.left_by_warm_up = [*self.spans.rows()], self.recording.requests()
        self.recording.clear()
        self.spans.clear()
        self.started_ns = self.clock.now_ns()

    def frame(self, worker: Worker, stamp: int) -> None:
        seen = latched(stamp + 1, [0])
        if not worker.wants(seen, self.clock.now_ns()):
            return
        number, began_ns = self.executor.frames, self.clock.now_ns()
        worker.begin(seen, began_ns)
        worker.run()
        ran_ns = self.clock.now_ns()
        emission = worker.end(ran_ns)
        if emission is not None:
            self.emissions.append(replace(emission, actions=emission.actions.clone()))
        if self.watched:
            counted = number if self.executor.frames > number else None
            self.recording.ended(Frame(worker.name, counted, began_ns, ran_ns, self.clock.now_ns(), emission))
        self.clock.advance(MS)

    def trace(self) -> dict[str, Any]:
        made = chrome_trace(self.spans.rows(), self.recording, {"plan": str(self.executor.plan)})
        read: dict[str, Any] = json.loads(json.dumps(made, allow_nan=False))
        return read

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.trace()["traceEvents"] if event["ph"] == kind]


def test_stages_are_complete_events_on_their_lane() -> None:
    run = Run("quick,mode=auras,pp_generation=2")
    rows = {event["tid"]: event["args"]["name"] for event in run.events("M") if event["name"] == "thread_name"}
    stages = [(rows[event["tid"]], event["name"], event["ts"], event["dur"]) for event in run.events("X")]
    assert stages[:6] == [
        ("frame copies", "copy in", 0.0, 0.0),
        ("frame copies", "copy noise", 0.0, 0.0),
        ("generation", "boundary", 0.0, 0.0),
        ("perception", "perception", 0.0, 3000.0),
        ("generation", "fetch", 3000.0, 0.0),
        ("generation", "generation", 3000.0, 10000.0),
    ]
    assert stages[6][2] == 14000.0  # the second frame
    names = [stage for _, stage, *_ in stages]
    assert [names.count(each) for each in ("copy in", "perception", "fetch", "generation")] == [FRAMES] * 4
    assert names.count("copy out") == len(run.emissions) > 0


def test_frames_are_marks_with_their_number() -> None:
    marks = Run("quick,mode=auras,pp_generation=2").events("i")
    assert [mark["args"]["frame"] for mark in marks] == list(range(FRAMES))
    assert [mark["ts"] for mark in marks] == [14000.0 * frame for frame in range(FRAMES)]


def test_a_request_is_open_from_its_admission_to_its_chunk() -> None:
    """Two stages: admitted at a frame's start, emitted at the end of the next one; the last is on its way still."""
    run = Run("quick,mode=auras,pp_generation=2")
    begins, ends = ({event["id"]: event["ts"] for event in run.events(kind)} for kind in "be")
    assert begins == {request: 14000.0 * request for request in range(FRAMES)}
    assert ends == {request: 14000.0 * request + 27000.0 for request in range(FRAMES - 1)}
    inside = [(event["id"], event["name"], event["ts"]) for event in run.events("n")]
    assert inside[:2] == [(0, "stage 1", 3000.0), (0, "stage 2", 17000.0)]


def test_the_counter_says_how_many_are_in_flight() -> None:
    counts = [event["args"]["requests"] for event in Run("quick,mode=auras,pp_generation=3").events("C")]
    assert counts == [1, 2, 3, 2, 3, 2, 3, 2, 3, 2]


def test_perception_of_its_own_is_no_frame() -> None:
    """dec: only generation counts frames; both workers have a lane."""
    run = Run("quick,mode=dec")
    assert {mark["args"]["worker"] for mark in run.events("i")} == {"generate"}
    lanes = [event["args"]["name"] for event in run.events("M") if event["name"] == "thread_name"]
    assert lanes == ["frames", "perceive copies", "perceive", "generate", "generate copies"]
    assert len(run.events("X")) == 6 * FRAMES


@pytest.mark.parametrize("plan", ["", ",mode=dec", ",mode=par,concurrency=2", ",mode=auras,pp_generation=2"])
def test_watching_changes_nothing(plan: str) -> None:
    """The same executor with and without a recording: the same chunks, frame by frame and to the nanosecond."""
    watched, alone = Run(f"quick{plan}"), Run(f"quick{plan}", watched=False)
    assert watched.recording.requests()
    assert not alone.recording.requests()
    assert watched.executor.frames == alone.executor.frames
    assert watched.clock.now_ns() == alone.clock.now_ns()
    assert len(watched.emissions) >= FRAMES - 1
    for one, other in zip(watched.emissions, alone.emissions, strict=True):
        assert torch.equal(one.actions, other.actions)
        assert [seen.mono_ns for seen in one.contexts] == [seen.mono_ns for seen in other.contexts]
        for name in ("request", "frame", "epoch", "stage_ns", "latched_ns", "perceived_ns", "generated_ns"):
            assert getattr(one, name) == getattr(other, name), name


@pytest.mark.parametrize("plan", ["quick,mode=auras,pp_generation=2", "quick,mode=par,concurrency=2"])
def test_warm_up_leaves_no_trace(plan: str) -> None:
    """Rule 10: it did leave spans and requests; once they are cleared the trace is that of a cold start."""
    warm, cold = Run(plan, warm=True), Run(plan)
    assert all(warm.left_by_warm_up)
    assert all(span.start_ns >= warm.started_ns for span in warm.spans.rows())
    assert [frame.number for frame in warm.recording.frames()] == list(range(FRAMES))
    assert [request.number for request in warm.recording.requests()] == list(range(FRAMES))
    assert warm.trace() == cold.trace()


def test_events_come_in_the_order_of_time_and_say_what_they_are_of() -> None:
    trace = Run("quick,mode=par,concurrency=2").trace()
    times = [event["ts"] for event in trace["traceEvents"] if event["ph"] != "M"]
    assert times == sorted(times)
    assert trace["otherData"] == {"plan": "quick,mode=par,concurrency=2"}
    assert trace["displayTimeUnit"] == "ms"


def test_an_emission_of_a_request_that_was_never_admitted_is_a_fault() -> None:
    run, other = Run("quick"), Recording(VirtualClock())
    worker = run.executor.workers[0]
    worker.begin(latched(99, [0]), run.clock.now_ns())
    worker.run()
    emission = worker.end(run.clock.now_ns())
    assert emission is not None
    with pytest.raises(KeyError):
        other.ended(Frame(worker.name, 0, 0, 0, 0, emission))
