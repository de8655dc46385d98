"""A frame that is late: the heartbeat says so within a second, and the actuator holds. One that ends goes on as it was;
one that does not, though the machine lets it, ends the process. Also where the frame keeps the interpreter, so that no
Python thread of the process runs any more."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from auras_ros.nodes.common.heartbeat import BEAT_NS, HUNG_NS, HangDetector, Late, frame_limit_ns
from auras_ros.nodes.common.watchdog_process import AT_LAST, STEP_S, UNWATCHED, WATCHED, OwnTime, Silence, stopped
from tests.nodes.stand_ins import Robot
from tests.nodes.wire import MS, Child, Children, Watch, undisturbed

LIMIT_S = 1.0  # within which a late frame is found, unless the policy is slow: then the agent names its limit
HOLD_MS = 150  # the actuator's own watch over the heartbeat
BUSY_MS = 500  # room for a machine that has other work; one that never holds is driven for far longer
# A frame goes wrong once the test has said so; and it ends, where it does, at another word.
TOLD = """
import signal, threading
told, again = threading.Event(), threading.Event()
signal.signal(signal.SIGUSR1, lambda *_: told.set())
signal.signal(signal.SIGUSR2, lambda *_: again.set())
"""
SOON = """
import auras_ros.nodes.common.heartbeat as heart
heart.HUNG_NS, heart.HUNG_LIMITS = 10**9, 1
"""
HANGS = (
    TOLD
    + SOON
    + """
import time
from auras_ros.pipeline.whole import RequestWorker
run = RequestWorker.run
def hang(self):
    if told.is_set():
        print('hung at', time.monotonic_ns(), flush=True)
        threading.Event().wait()
    run(self)
RequestWorker.run = hang
"""
)
IS_LATE = (
    TOLD
    + """
import time
from auras_ros.pipeline.whole import RequestWorker
run = RequestWorker.run
def be_late(self):
    if told.is_set():
        told.clear()
        print('hung at', time.monotonic_ns(), flush=True)
        again.wait()
    run(self)
RequestWorker.run = be_late
"""
)


def hangs(watch: Watch, agent: Child) -> int:
    """It is driven, and then a frame hangs. Returns since when, monotonic ns."""
    watch.arm()
    watch.armed()
    agent.send(signal.SIGUSR1)
    watch.until(lambda: re.search(r"hung at \d+\n", agent.output), "the frame hangs")
    return int(agent.output.partition("hung at ")[2].split()[0])


def held_for_silence(watch: Watch, hung_ns: int, limit_s: float = LIMIT_S) -> None:
    """The actuator held in time. Why, it says of the first reason alone, and on a busy machine there are others: no
    new chunk came before the frame hung, or nothing of the robot."""
    held = watch.first("holding", hung_ns)
    assert (held.label.mono_ns - hung_ns) / MS <= limit_s * 1000 + HOLD_MS + BUSY_MS
    said = watch.state_where(lambda state: state["state"] == "holding", "held")
    assert undisturbed(said), said


def silent_while_late(watch: Watch) -> None:
    """No beat came after the one that said so, until the frame or the process ended."""
    assert len([beat for beat in watch.beats if beat["state"].startswith("late: ")]) == 1


def named_late(watch: Watch, agent: Child) -> float:
    """A beat and the log say which frame is late. Returns the limit, s."""
    watch.until(lambda: any(beat["state"].startswith("late: frame of 'quick") for beat in watch.beats), "a last beat")
    words = "has been running for more than "
    watch.until(lambda: words in agent.output, "the log says it too")
    return float(agent.output.partition(words)[2].split()[0])


def test_a_hung_worker_is_found_within_a_second_and_the_process_ends(
    actuator: Callable[..., Child], children: Children, watch: Watch, robot: Robot, checkpoint: str
) -> None:
    actuator(agent_timeout_ms=100.0, max_chunk_age_ms=60000.0)
    settings = {"checkpoint": checkpoint, "plan": "frame_period_ms=300", "camera_age_limit_ms": 2000.0}
    agent = children.node("agent", settings, code=HANGS)
    watch.hear_agent()
    hung_ns = hangs(watch, agent)
    held_for_silence(watch, hung_ns, named_late(watch, agent))
    watch.until(lambda: "does not end" in watch.beats[-1]["state"], "the last beat says why it ends")
    silent_while_late(watch)
    assert agent.wait() == 1, agent.output
    assert "hung: frame of 'quick,frame_period_ms=300.0' does not end" in agent.output


def test_after_a_late_frame_the_same_session_drives_on_without_being_armed_again(
    actuator: Callable[..., Child], children: Children, watch: Watch, robot: Robot, checkpoint: str
) -> None:
    """Guards against a busy machine that needs a person afterwards."""
    actuator(agent_timeout_ms=100.0, max_chunk_age_ms=60000.0)
    agent = children.node("agent", {"checkpoint": checkpoint, "camera_age_limit_ms": 5000.0}, code=IS_LATE)
    watch.hear_agent()
    hung_ns = hangs(watch, agent)
    session = watch.beats[-1]["session"]
    held_for_silence(watch, hung_ns, named_late(watch, agent))
    agent.send(signal.SIGUSR2)
    watch.armed("it drives on")
    silent_while_late(watch)
    assert watch.beats[-1]["session"] == session
    watch.until(lambda: "the late frame has ended: the same session goes on" in agent.output, "the log says so")
    assert agent.process.poll() is None

    (guard,) = guards(agent.pid)
    agent.send(signal.SIGKILL)
    agent.wait()
    watch.until(lambda: gone(guard), "the guard ends with its process, however that ends")


HANGS_IN_NATIVE_CODE = (
    SOON
    + """
import torch
from auras_ros.pipeline.whole import RequestWorker
run, much = RequestWorker.run, torch.rand(500, 500)
def hang(self):
    while self._ledger.frames > 5:
        much @ much
    run(self)
RequestWorker.run = hang
"""
)


def test_a_worker_that_hangs_in_native_code_ends_the_process_with_the_same_status(
    children: Children, robot: Robot, checkpoint: str
) -> None:
    """Guards against the interpreter's end under a thread that comes back from torch: SIGABRT in place of 1."""
    robot.play_actuator()
    settings = {"checkpoint": checkpoint, "plan": "frame_period_ms=300", "camera_age_limit_ms": 2000.0}
    agent = children.node("agent", settings, code=HANGS_IN_NATIVE_CODE)
    assert agent.wait() == 1, agent.output
    assert "does not end" in agent.output


KEEPS_THE_INTERPRETER = (
    TOLD
    + """
import ctypes, time
from auras_ros.nodes.common import heartbeat
from auras_ros.pipeline.whole import RequestWorker
heartbeat.GUARD_S = 1.5
run = RequestWorker.run
def the_frame_that_hangs(self):
    if told.is_set():
        print('hung at', time.monotonic_ns(), flush=True)
        ctypes.PyDLL(None).sleep(1000)
    run(self)
RequestWorker.run = the_frame_that_hangs
"""
)
LOADS_WITHOUT_GIVING_WAY = """
import ctypes
import auras_ros.nodes.agent.loading as load
from auras_ros.nodes.common import heartbeat
heartbeat.GUARD_S = 1.5
load_pipeline = load.load_pipeline
def slow(*words):
    ctypes.PyDLL(None).sleep(4)
    return load_pipeline(*words)
load.load_pipeline = slow
"""


def test_a_frame_that_keeps_the_interpreter_ends_the_process(
    actuator: Callable[..., Child], children: Children, watch: Watch, robot: Robot, checkpoint: str
) -> None:
    actuator(agent_timeout_ms=100.0, max_chunk_age_ms=60000.0)
    settings = {"checkpoint": checkpoint, "plan": "frame_period_ms=300", "camera_age_limit_ms": 2000.0}
    agent = children.node("agent", settings, code=KEEPS_THE_INTERPRETER)
    held_for_silence(watch, hangs(watch, agent))
    assert agent.wait() == -signal.SIGABRT, agent.output
    assert "the_frame_that_hangs" in agent.output, "the traceback says where"
    watch.until(lambda: f"process {agent.pid} hung" in agent.output, "the guard says what it did")


def guards(pid: int) -> list[int]:
    """The children of a process."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def test_neither_a_long_load_nor_a_process_that_was_stopped_for_longer_than_a_hang_is_one(
    children: Children, watch: Watch, robot: Robot, checkpoint: str
) -> None:
    """Guards against a watch that counts the time in which nobody could have spoken; a load may keep the interpreter
    for twice what a hang may last and more."""
    robot.play_actuator()
    watch.hear_agent()
    settings = {"checkpoint": checkpoint, "camera_age_limit_ms": 2000.0}
    agent = children.node("agent", settings, code=LOADS_WITHOUT_GIVING_WAY)
    watch.until(lambda: watch.chunks, "chunks")
    session = watch.chunks[-1]["session"]
    (guard,) = guards(agent.pid)
    until_ns = agent.send(signal.SIGSTOP) + 4000 * MS
    watch.until(lambda: time.monotonic_ns() > until_ns, "twice what a hang may last and more")
    resumed_ns = agent.send(signal.SIGCONT)
    watch.until(lambda: watch.chunks[-1]["origin_mono_ns"] > resumed_ns + 1000 * MS, "new chunks, long after")
    assert watch.chunks[-1]["session"] == session
    agent.send(signal.SIGTERM)
    assert agent.wait() == 0, agent.output
    watch.until(lambda: gone(guard), "the guard ends with it")


def gone(pid: int) -> bool:
    """Whether there is no such process, or only what is left of it until somebody asks."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_without_a_guard_the_agent_says_so_and_goes_on(
    children: Children, watch: Watch, robot: Robot, checkpoint: str
) -> None:
    robot.play_actuator()
    watch.hear_agent()
    agent = children.node("agent", {"checkpoint": checkpoint})
    watch.until(lambda: watch.chunks, "chunks")
    (guard,) = guards(agent.pid)
    os.kill(guard, signal.SIGKILL)
    watch.until(lambda: "no guard process: " in agent.output, "it says so")
    killed_ns = time.monotonic_ns()
    watch.until(lambda: watch.chunks[-1]["origin_mono_ns"] > killed_ns, "new chunks")
    assert agent.output.count("no guard process: ") == 1


def silent_after(*steps: tuple[bytes, bool]) -> bool:
    """Whether a guard with a limit of a second would end its process after these steps: (heard, stopped)."""
    silence = Silence(1.0)
    return [silence.too_long(*step) for step in steps][-1]


NOTHING = (b"", False)
LONG = [NOTHING] * round(1.0 / STEP_S + 1)


def test_silence_counts_only_where_it_is_a_fault() -> None:
    assert silent_after((WATCHED * 5, False), *LONG)
    assert not silent_after((WATCHED, False), *LONG[:-2])
    assert not silent_after(*LONG), "nothing was said yet"
    assert not silent_after((WATCHED * 5 + UNWATCHED, False), *LONG)
    assert silent_after((UNWATCHED + WATCHED, False), *LONG)
    assert not silent_after((WATCHED, False), *LONG[:-2], (WATCHED, False), *LONG[:-2])
    assert not silent_after((WATCHED, False), *LONG[:-2], (b"", True), *LONG[:-2]), "stopped: it could not speak"


def test_a_stopped_process_is_told_from_one_that_sleeps(children: Children) -> None:
    child = children("sleep", "1000")
    assert not stopped(child.pid)
    child.send(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    assert stopped(child.pid)


def test_silence_while_the_process_waits_for_a_processor_does_not_count_but_for_ever() -> None:
    silence = Silence(1.0)
    assert not silence.too_long(WATCHED, False)
    waiting = round(AT_LAST / STEP_S)
    assert not any(silence.too_long(b"", False, 0.0) for _ in range(waiting - 1))
    assert any(silence.too_long(b"", False, 0.0) for _ in range(3))


def test_time_in_which_a_process_waited_for_a_processor_is_not_its_own(children: Children) -> None:
    """Six busy loops on one core: each has a sixth of it. One that sleeps has all of the time."""
    core = min(os.sched_getaffinity(0))
    loop = f"import os\nos.sched_setaffinity(0, [{core}])\nprint('up', flush=True)\nwhile True: pass"
    busy = [children(sys.executable, "-c", loop) for _ in range(6)]
    asleep = children(sys.executable, "-c", "import time\nprint('up', flush=True)\ntime.sleep(1000)")
    end_s = time.monotonic() + 20.0
    while not all("up" in child.output for child in [*busy, asleep]):
        assert time.monotonic() < end_s
    owns = [OwnTime(child.pid) for child in (busy[0], asleep)]
    for own in owns:
        own.of(0)
    began_ns = time.monotonic_ns()
    while (passed_ns := time.monotonic_ns() - began_ns) < 1500 * MS:
        time.sleep(0.05)
    waits, sleeps = (own.of(passed_ns) for own in owns)
    assert waits < passed_ns * 0.6
    assert sleeps > passed_ns * 0.9


class AllOwn(OwnTime):
    """A machine that is never busy."""

    def of(self, passed_ns: int) -> int:
        return passed_ns


class NoneOwn(OwnTime):
    """A machine on which the process waits all the time."""

    def of(self, passed_ns: int) -> int:
        return 0


def watched(beats: list[tuple[int, int | None]], limit_ns: int, own: type[OwnTime] = AllOwn) -> Late | None:
    """The word after these beats: (time passed since the one before, when the frame under way began), ns."""
    watch, now_ns, found = HangDetector(lambda: own(0)), 0, None
    for passed_ns, began_ns in beats:
        now_ns += passed_ns
        found = watch.look({} if began_ns is None else {"frame": began_ns}, limit_ns, now_ns)
    return found


def look(beats: list[tuple[int, int | None]], limit_ns: int) -> str:
    """The worker whose frame is late."""
    found = watched(beats, limit_ns)
    return found.worker if found else ""


def test_a_late_frame_is_hung_by_the_processes_own_time_alone() -> None:
    """Guards against an agent that ends itself because its machine is busy."""
    beat: list[tuple[int, int | None]] = [(BEAT_NS, 5)]
    late, hung = round(1000 * MS / BEAT_NS) + 3, round(HUNG_NS / BEAT_NS)
    assert watched(beat * late, 1000 * MS) == Late("frame", False)
    assert watched(beat * (late + hung), 1000 * MS) == Late("frame", True)
    assert watched(beat * (late + hung), 1000 * MS, NoneOwn) == Late("frame", False)
    assert watched(beat * (late + 6 * hung), 1000 * MS, NoneOwn) == Late("frame", True), "whatever the machine does"
    assert watched([*beat * (late + hung - 9), (BEAT_NS, 6), *[(BEAT_NS, 6)] * late], 1000 * MS) == Late("frame", False)


def test_the_same_frame_for_too_long_is_found() -> None:
    beats: list[tuple[int, int | None]] = [(BEAT_NS, 5)] * 52
    assert look(beats, 1000 * MS) == "frame"
    assert look(beats[:-2], 1000 * MS) == ""
    assert look([*beats[:30], (BEAT_NS, None), *beats[:30]], 1000 * MS) == ""
    assert look([*beats[:30], *[(BEAT_NS, 6)] * 30], 1000 * MS) == ""


@given(pause_ns=st.integers(0, 10**12))
def test_a_process_that_was_stopped_as_a_whole_is_not_hung(pause_ns: int) -> None:
    assert look([(BEAT_NS, 5), (pause_ns, 5), (BEAT_NS, 5)], 1000 * MS) == ""


def test_a_process_that_is_stopped_again_and_again_within_a_frame_is_not_hung() -> None:
    broken_up: list[tuple[int, int | None]] = [(BEAT_NS, 5), (150 * MS, 5)] * 15
    assert look(broken_up, frame_limit_ns(10 * MS)) == ""


def test_on_a_machine_on_which_beats_come_late_a_hung_frame_is_found_later_but_found() -> None:
    beats: list[tuple[int, int | None]] = [(3 * BEAT_NS, 5)] * 24
    assert look(beats, frame_limit_ns(10 * MS)) == "frame"  # within 1.5 s
    assert look(beats[:16], frame_limit_ns(10 * MS)) == ""


def test_the_limit_is_below_a_second_unless_the_policy_is_slow() -> None:
    assert frame_limit_ns(10 * MS) + 4 * BEAT_NS <= 1000 * MS
    assert frame_limit_ns(1000 * MS) == 5000 * MS
