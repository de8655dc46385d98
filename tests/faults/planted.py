"""Faults that are planted in the agent's process and wait for a signal, and what the others make of them.

Each function brings its fault about n times and returns the times that it saw, ms, by what they were measured to.
"""

from __future__ import annotations

import re
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from auras_ros.live.soak.garbage import HUGE_PROMPT
from auras_ros.live.soak.log_listener import LogListener
from auras_ros.ros.image import compressed_message
from auras_ros.ros.msg import CompressedImage, String
from tests.nodes.agent_child import Running, published_ns, running
from tests.nodes.stand_ins import Loop, Robot
from tests.nodes.wire import BEST_EFFORT, LATCHED, MS, Child, Children, Watch, own_domain

QUIET_S = 1.1  # a node says the same thing at most once a second
ON_SIGNAL = """
import signal, threading, time
planted = threading.Event()
signal.signal(signal.SIGUSR1, lambda *_: planted.clear() if planted.is_set() else planted.set())
"""
HANGS = (
    ON_SIGNAL
    + """
from auras_ros.pipeline.whole import RequestWorker
run = RequestWorker.run
def hang(self):
    if planted.is_set():
        print('hung at', time.monotonic_ns(), flush=True)
        threading.Event().wait()
    run(self)
RequestWorker.run = hang
"""
)
SLOW = (
    ON_SIGNAL
    + """
from auras_ros.pipeline.auras import PipelineWorker
from auras_ros.pipeline.whole import RequestWorker
for kind in (RequestWorker, PipelineWorker):
    def slow(self, run=kind.run):
        if planted.is_set():
            time.sleep(0.5)
        run(self)
    kind.run = slow
"""
)
TAKES = """
import time
from auras_ros.nodes.common import bounded_subscription
bounded = bounded_subscription.bounded
def timed(topic, *arguments):
    take = bounded(topic, *arguments)
    def timed_take(payload):
        began_ns = time.monotonic_ns()
        take(payload)
        if topic == '/prompt':
            print('refused', time.monotonic_ns() - began_ns, flush=True)
    return timed_take
bounded_subscription.bounded = timed
"""
AGE = {"max_age_ms": 800.0, "fallback_plan": "quick,mode=auras"}
Times = dict[str, list[float]]


def frame_hung(checkpoint: str, folder: Path, n: int) -> Times:
    """From the frame that does not end. found: the agent says in its heartbeat that it is late; hold: the label of the
    actuator's command; ended: the process, with status 1. Each time another agent is started, and armed."""
    times: Times = defaultdict(list)
    with _driven(checkpoint, folder) as (watch, children):
        settings = {"checkpoint": checkpoint, "plan": "frame_period_ms=300", "camera_age_limit_ms": 2000.0}
        for _ in range(n):
            ended = watch.beats[-1]["session"] if watch.beats else None  # its last heartbeat would let the actuator arm
            agent = children.node("agent", settings, code=HANGS)
            watch.until(lambda ended=ended: _is_active(watch, ended), "another agent is active")
            watch.arm()
            watch.armed()
            agent.send(signal.SIGUSR1)
            hung_ns = _printed_ns(watch, agent, "hung at")
            watch.until(lambda: watch.beats[-1]["state"].startswith("late: "), "the agent says that a frame is late")
            found_ns = time.monotonic_ns()
            hold = watch.first("holding", hung_ns)
            assert agent.wait() == 1, agent.output
            for what, at_ns in (
                ("found", found_ns),
                ("hold", hold.label.mono_ns),
                ("ended", time.monotonic_ns()),
            ):
                times[what].append((at_ns - hung_ns) / MS)
    return times


def _is_active(watch: Watch, ended: str | None) -> bool:
    """Whether an agent of another session than the one that ended is active."""
    newest = watch.beats[-1] if watch.beats else {"session": ended}
    return newest["session"] != ended and newest["lifecycle"] == "active"


@contextmanager
def _driven(checkpoint: str, folder: Path) -> Iterator[tuple[Watch, Children]]:
    """A robot, and an actuator whose watchdog has the shipped time-out."""
    with own_domain():
        watch, children = Watch(), Children(folder)
        robot = Robot(watch.node)
        try:
            watch.hear_agent()
            children.node("actuator", {"checkpoint": checkpoint, "agent_timeout_ms": 100.0, "max_chunk_age_ms": 6e4})
            yield watch, children
        finally:
            children.reap()
            robot.close()
            watch.close()


def _printed_ns(watch: Watch, child: Child, words: str, count: int = 1) -> int:
    """The count-th number that the child has printed after these words."""
    found: list[str] = []

    def printed() -> bool:
        found[:] = re.findall(rf"{words} (\d+)", child.output)
        return len(found) >= count

    watch.until(printed, f"'{words}' {count} times")
    return int(found[count - 1])


@contextmanager
def _agent(checkpoint: str, folder: Path, **given: Any) -> Iterator[Running]:
    """`running`, whose failures bring what the agent said: nobody else would show it."""
    with running(checkpoint, folder, **given) as agent:
        try:
            yield agent
        except AssertionError as error:
            raise AssertionError(f"{error}\n{agent.child.output[-3000:]}") from error


def max_age(checkpoint: str, folder: Path, n: int) -> Times:
    """From just before every frame takes half a second longer. fallback: the diagnostic names the fallback plan;
    last chunk: of the fallback, which is late too; halted: the diagnostic says that no chunk is published any more.
    A reset leads back each time."""
    times: Times = defaultdict(list)
    with _agent(checkpoint, folder, code=SLOW, **AGE) as agent:
        watch, said = agent.watch, LogListener(agent.watch.node)

        def plan_says(words: str) -> int:
            watch.until(lambda: words in said.status("agent: plan").message, words)
            return said.status("agent: plan").heard_ns

        for _ in range(n):
            agent.chunk("chunks of the first plan")
            plan_says("first plan")
            slow_ns = agent.child.send(signal.SIGUSR1)
            fallback_ns = plan_says("fallback plan")
            halted_ns = plan_says("no chunk is published")
            agent.says("overloaded")
            for what, at_ns in (("fallback", fallback_ns), ("last chunk", max(published_ns(agent))),
                                ("halted", halted_ns)):  # fmt: skip
                times[what].append((at_ns - slow_ns) / MS)
            agent.child.send(signal.SIGUSR1)
            assert watch.call("agent/reset")[0]
    return times


def image_compressed(checkpoint: str, folder: Path, n: int) -> Times:
    """Cut off, empty, bomb and foreign, among good ones. refused: the agent names it; used: the first chunk of a good
    image that was made after the last bad one."""
    from tests.nodes.agent.test_inputs import huge_png

    good = cv2.imencode(".png", np.full((96, 96, 3), 90, np.uint8))[1].tobytes()
    bad = [(good[:-20], "bad_data"), (b"", "bad_data"), (huge_png(), "too_large"), (b"GIF89a", "bad_encoding")]
    times: Times = defaultdict(list)
    with _agent(checkpoint, folder, compressed=True) as agent:
        watch, said = agent.watch, LogListener(agent.watch.node)
        topic = watch.node.create_publisher(CompressedImage, "camera/top/image_raw/compressed", BEST_EFFORT)

        def send(data: bytes) -> None:
            text, stamp_ns = "rgb8; png compressed bgr8", time.time_ns()
            topic.publish(compressed_message(data, format=text, stamp_ns=stamp_ns, frame_id="top"))

        camera = Loop(0.05, lambda: send(good))
        try:
            for number in range(n):
                data, name = bad[number % len(bad)]
                agent.chunk("chunks of good images")
                _pause(watch, QUIET_S)
                times["refused"].append(_refused_ms(agent, said, partial(send, data), f": {name}: ", again=True))
                last_ns = time.monotonic_ns()
                times["used"].append((_used_ns(watch, last_ns) - last_ns) / MS)
        finally:
            camera.close()
    return times


def _used_ns(watch: Watch, since_ns: int) -> int:
    """When the first chunk of an observation that was made since then was published."""
    found: list[int] = []

    def used() -> bool:
        told = [{pair.key: pair.value for pair in each.status[0].values} for each in watch.provenance]
        found[:] = [int(each["published_ns"]) for each in told if int(each["origin_mono_ns"]) > since_ns][:1]
        return bool(found)

    watch.until(used, "a chunk of a new observation")
    return found[0]


def prompt_huge(checkpoint: str, folder: Path, n: int) -> Times:
    """10 MB, in the agent's process. refused: from having the payload to having counted it. said: from just before
    publishing to hearing of it, with 10 MB on their way between."""
    times: Times = defaultdict(list)
    with _agent(checkpoint, folder, code=TAKES) as agent:
        watch, said = agent.watch, LogListener(agent.watch.node)
        topic = watch.node.create_publisher(String, "prompt", LATCHED)
        agent.chunk("chunks")
        for number in range(n):
            _pause(watch, QUIET_S)
            message = String(data=HUGE_PROMPT)
            times["said"].append(_refused_ms(agent, said, partial(topic.publish, message), "refused: prompt"))
            times["refused"].append(_printed_ns(watch, agent.child, "refused", number + 1) / MS)
        assert agent.chunk("chunks after it")["prompt"] == ""
    return times


def overrun(checkpoint: str, folder: Path, n: int) -> Times:
    """Every frame takes half a second on a grid of 100 ms, with an image each 50 ms. waited: how old the observation of
    each frame is when it begins; with a queue it would grow and grow."""
    with _agent(checkpoint, folder, code=SLOW, plan="frame_period_ms=100") as agent:
        agent.chunk("chunks")
        agent.child.send(signal.SIGUSR1)
        agent.chunk("a chunk of a slow frame")
        begin, count = len(agent.watch.provenance), 3 * n
        agent.watch.until(lambda: len(agent.watch.provenance) >= begin + count, f"{count} slow frames")
        told = [{pair.key: pair.value for pair in each.status[0].values} for each in agent.watch.provenance[begin:]]
        assert int(agent.diagnosed("frames", 0, "frames are running")["missed_ticks"]) >= count
        return {"waited": [(int(each["latched_ns"]) - int(each["origin_mono_ns"])) / MS for each in told]}


def _refused_ms(
    agent: Running, said: LogListener, publish: Callable[[], None], words: str, *, again: bool = False
) -> float:
    """From just before publishing to the agent's line that says so. again: each 50 ms until then, since depth 1 and
    best effort keep the newest message alone."""
    began_ns = last_ns = time.monotonic_ns()
    publish()

    def told() -> bool:
        nonlocal last_ns
        if again and time.monotonic_ns() - last_ns > 50 * MS:
            last_ns = time.monotonic_ns()
            publish()
        return said.line_ns("agent", words, began_ns) is not None

    agent.watch.until(told, f"the agent says '{words}'")
    heard_ns = said.line_ns("agent", words, began_ns)
    assert heard_ns is not None
    return (heard_ns - began_ns) / MS


def _pause(watch: Watch, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    watch.until(lambda: time.monotonic() > until_s, f"{seconds} s")
