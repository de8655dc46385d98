"""Each fault on a loop that is acted: silent where every promise is kept, and each promise that is broken is said."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from auras_ros.live.soak import harness as harness_module
from auras_ros.live.soak import run as run_module
from auras_ros.live.soak.faults import (
    InjectedFault,
    buttons,
    faults,
    loaded,
    messages,
    others,
    peers,
    presses,
    processes,
    rivals,
)
from auras_ros.live.soak.faults.loaded import busy
from auras_ros.live.soak.harness import SoakHarness, Times
from auras_ros.live.soak.noise import payload
from auras_ros.live.soak.own_layer import OwnLayer
from auras_ros.live.soak.run import LoadResult, SoakRun, SoakSettings
from auras_ros.observation import ObservationError, decode_raw
from auras_ros.ros import (
    Context,
    Node,
    SignalHandlerOptions,
    SingleThreadedExecutor,
    init,
    msg,
    try_shutdown,
)
from auras_ros.ros.bounded import read_message
from auras_ros.ros.cdr_reader import PayloadError
from auras_ros.ros.identity import IDENTIFIES_PUBLISHERS
from auras_ros.ros.msg import Float64MultiArray
from auras_ros.ros.srv import Trigger
from tests.live.soak import stage as stage_module
from tests.live.soak.stage import ELSEWHERE, stage

real_time = time

PLAYED = {name: fault.play for name, fault in faults(1600.0, 100.0).items()} | {"noise": messages.noise}
ACTED = [
    "overrun", "actuator_killed", "second_publisher", "qos_mismatch", "clock_set_back", "noise", "image_corrupt",
    "image_wrong", "prompt_huge", "prompt_garbage", "robot_moved", "stamp_ahead", "joint_states_of_others",
    "log_unread", "load", "second_button", "button_gone", "joint_states_in_parts", "arm_on_start_used",
    "second_actuator", "log_full", "second_agent", "second_camera", "simulator_killed", "actuator_respawned",
    "joint_states_stamped", "log_closed", "bad_parameter", "camera_repeats", "publishers_at_arming",
    "agent_killed", "agent_stopped", "agent_deactivated", "camera_stalled", "actuator_stopped", "garbage",
    "agent_killed_under_load",
]  # fmt: skip
BROKEN = [
    ("overrun", "count", "overrun: not counted"),
    ("overrun", "queue", "overrun: queue"),
    ("actuator_killed", "ghosts", "action of a dead actuator"),
    ("actuator_killed", "silent agent", "actuator_killed: not said"),
    ("actuator_killed", "respawn", "not recovered"),
    ("second_publisher", "conflict", "conflict stays"),
    ("publishers_at_arming", "conflict", "conflict stays"),
    ("publishers_at_arming", "beside others", "armed beside others"),
    ("qos_mismatch", "words", "qos_mismatch: not named"),
    ("clock_set_back", "clock", "use_sim_time refused"),
    ("clock_set_back", "forward", "clock_set_back: forward"),
    ("noise", "conflict", "conflict stays"),
    ("noise", "drive", "disturbed"),
    ("noise", "after", "good ones not used"),
    ("image_wrong", "images", "good ones not used"),
    ("image_corrupt", "count", "not counted"),
    ("image_corrupt", "after", "good ones not used"),
    ("prompt_huge", "prompt", "prompt taken"),
    ("prompt_garbage", "count", "not counted"),
    ("stop_pressed", "press", "not stopped"),
    ("stop_pressed", "still", "moved in a hold"),
    ("robot_moved", "place", "robot_moved: driven on"),
    ("stamp_ahead", "images", "good ones not used"),
    ("joint_states_of_others", "count", "not counted"),
    ("log_unread", "drive", "disturbed"),
    ("load", "drive", "did not go on"),
    ("second_button", "release", "armed while pressed"),
    # Without identities a released button stays pressed until a person calls release_stop.
    *([("second_button", "stays", "stays pressed")] if IDENTIFIES_PUBLISHERS else []),
    ("button_gone", "gone", "armed while pressed"),
    *([("button_gone", "freely", "released while pressed")] if IDENTIFIES_PUBLISHERS else []),
    ("joint_states_in_parts", "blind", "armed half blind"),
    ("joint_states_in_parts", "parts", "good ones not used"),
    ("arm_on_start_used", "itself", "armed by itself"),
    ("second_actuator", "two", "two drive"),
    ("log_full", "start", "not started"),
    ("second_agent", "follow", "second_agent: followed"),
    ("second_agent", "drive", "disturbed"),
    ("second_camera", "after", "good ones not used"),
    ("simulator_killed", "place", "simulator_killed: driven on"),
    ("simulator_killed", "drag", "simulator_killed: dragged"),
    ("actuator_respawned", "arms", "action of a dead actuator"),
    ("joint_states_stamped", "count", "not counted"),
    ("bad_parameter", "taken", "bad_parameter: taken"),
    ("camera_repeats", "drive", "did not go on"),
    ("log_closed", "drive", "disturbed"),
    ("agent_killed", "unasked", "driven unasked"),
    ("agent_deactivated", "deactivated", "not disarmed"),
    ("actuator_stopped", "stall", "action after a stall"),
    ("agent_killed_under_load", "unasked", "driven unasked"),
]


class Virtual:
    """A time that only sleep, and a little each look at it, takes on: no machine is too slow for it."""

    time_ns = staticmethod(time.time_ns)

    def __init__(self) -> None:
        self._now_ns = 10**12

    def monotonic_ns(self) -> int:
        self._now_ns += 1000
        return self._now_ns

    def monotonic(self) -> float:
        return self.monotonic_ns() / 1e9

    def sleep(self, seconds: float) -> None:
        self._now_ns += round(seconds * 1e9)


def run_by(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here tells the time by this, as by the module `time`."""
    here = sys.modules[__name__]
    for module in (messages, presses, processes, rivals, run_module, harness_module, stage_module, here):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(harness_module, "MonotonicClock", lambda: SimpleNamespace(now_ns=clock.monotonic_ns))


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here needs the time of a real loop."""
    run_by(Virtual(), monkeypatch)
    for module in (harness_module, messages, peers):
        monkeypatch.setattr(module, "PATIENCE_S", 0.2)
    for module, name, value in (
        (messages, "QUIET_S", 0.0),
        (messages, "UNREAD_S", (0.1, 0.2)),
        (loaded, "LOADED_S", (0.1, 0.2)),
        (loaded, "LOOPS", 1),
        (run_module, "POLL_S", 0.05),
        (messages, "NOISE_S", 0.05),
        (presses, "MANY_JOINTS", 10),
        (presses, "MANY_DIMENSIONS", 10),
        (buttons, "HEARD_NS", 10_000_000),
        (others, "OtherActuator", stage_module.Other),
        (others, "START_S", 0.2),
        (others, "BY_ITSELF_S", 0.05),
        (others, "WHOLE_NS", 5_000_000),
        (others, "NO_YES_S", 0.02),
        (others, "KNOWN_S", 0.05),
        (others, "TOGETHER_S", (0.05, 0.06)),
        (rivals, "CHUNKS_S", (0.1, 0.2)),
        (rivals, "IMAGES_S", (0.1, 0.2)),
        (messages, "IMAGES_S", (0.1, 0.2)),
        (processes, "NAMED_MS", 300.0),
        (processes, "AWAKE_S", 0.1),
        (processes, "SAID_S", 0.2),
        (processes, "ARMS_BY_ITSELF_S", 0.1),
        (processes, "SILENT_NS", 5_000_000),
        (processes, "FAR_PX", 0.2),
        (processes, "SLOW_S", 0.1),
        (processes, "SLOW_STOP_S", 0.01),
        (processes, "RECOVERY_S", 0.5),
        (harness_module, "RECOVERY_S", 0.5),
        (harness_module, "UNDISTURBED_MS", 400.0),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.mark.parametrize("kind", ACTED)
def test_a_loop_that_keeps_its_promises_is_not_blamed(kind: str) -> None:
    harness = stage()
    begin_ns, end_ns = PLAYED[kind](harness)
    assert harness.judge.violations == []
    assert end_ns is not None
    assert 0 <= end_ns - begin_ns < 1e9


@pytest.mark.parametrize(("kind", "breaks", "violation"), BROKEN)
def test_a_promise_that_is_broken_is_said(kind: str, breaks: str, violation: str) -> None:
    harness = stage(breaks)
    PLAYED[kind](harness)
    assert violation in harness.judge.kinds, harness.judge.violations


def test_a_stop_that_does_not_stay_is_seen_before_it_is_armed_again() -> None:
    harness = stage("latch")
    run = SoakRun(harness, faults(1600.0, 100.0), SoakSettings(60.0), lambda _: None)
    run._one("stop_pressed", presses.stop_pressed)
    assert list(harness.judge.kinds) == ["not latched"]


def test_a_simulator_that_comes_back_where_its_robot_was_may_be_driven_on() -> None:
    """However far the newest command is: it was on its way there."""
    harness = stage("place")
    acted: Any = harness.witness
    acted.place = ELSEWHERE
    PLAYED["simulator_killed"](harness)
    assert harness.judge.violations == []


class SilentLayer:
    """In place of the process that writes to real topics."""

    def announcing(self, entities: Sequence[int]) -> AbstractContextManager[None]:
        return nullcontext()

    def asking(self, service: str, request_type: str, rate_hz: float) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.mark.parametrize("case", presses.cases(), ids=lambda case: case.name)
def test_a_press_is_latched_in_every_case_and_a_lost_one_is_said(case: presses.StopPressCase) -> None:
    harness = stage()
    harness.own_layer = cast("OwnLayer", SilentLayer())
    begin_ns, end_ns = presses.press(harness, case)
    assert harness.judge.violations == []
    assert end_ns is not None
    assert 0 <= end_ns - begin_ns < 1e9
    harness = stage("press")
    harness.own_layer = cast("OwnLayer", SilentLayer())
    assert presses.press(harness, case)[1] is None
    assert "not stopped" in harness.judge.kinds


def test_noise_is_to_be_named_by_everybody_who_hears_it() -> None:
    begin_ns, end_ns = PLAYED["noise"](stage("name"))
    assert begin_ns > 0
    assert end_ns is None


def test_a_moved_robot_is_found_though_the_first_message_is_lost() -> None:
    """Best effort: whoever hears it may know the publisher a little later than it is known here."""
    harness = stage("misses")
    PLAYED["robot_moved"](harness)
    assert harness.judge.violations == []


def test_noise_on_the_commands_waits_until_a_publisher_there_disarms_no_more() -> None:
    harness = stage()
    acted: Any = harness.witness
    acted.noisy = "/action"
    assert harness.drive()
    PLAYED["noise"](harness)
    assert harness.judge.violations == []


@pytest.mark.parametrize("answers", [True, False])
def test_a_late_node_is_to_find_commands_and_services(
    ros_domain_id: int, answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is real, and so are those whom it looks for, and the time."""
    run_by(real_time, monkeypatch)
    monkeypatch.setattr(harness_module, "PATIENCE_S", 20.0 if answers else 0.5)
    context, harness = Context(), stage()
    init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node, executor = Node("actuator", context=context), SingleThreadedExecutor(context=context)
        executor.add_node(node)
        publisher = node.create_publisher(Float64MultiArray, "action", 1)
        if answers:
            node.create_service(Trigger, "~/arm", lambda request, response: response)
        harness.witness.timers.append(lambda: publisher.publish(Float64MultiArray()))  # type: ignore[attr-defined]
        begin_ns, found_ns = rivals.late_node(harness)
        executor.shutdown()
        node.destroy_node()
    finally:
        try_shutdown(context=context)
    assert (found_ns is not None) == answers
    assert begin_ns > 0


# -- beside a load -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "rearmed", "by_stall"),
    [("this process stood still for 0.4 s: somebody else may drive", 0, 1), ("agent is unconfigured", 1, 0)],
)
def test_beside_a_load_what_needs_a_person_is_counted(reason: str, rearmed: int, by_stall: int) -> None:
    harness = stage()
    acted = harness.witness

    def counted() -> LoadResult:
        run = SoakRun(harness, {}, SoakSettings(0.3, load=1), lambda _: None)
        run.beside_load()
        assert run.result.load is not None
        return run.result.load

    load = counted()
    assert load.driven == load.samples > 0
    assert (load.rearmed, load.by_stall) == (0, 0)
    acted.armed, acted.reason = False, reason  # type: ignore[attr-defined]
    harness.pause(0.02)
    load = counted()
    assert (load.rearmed, load.by_stall) == (rearmed, by_stall)
    assert load.reasons == [reason]


def test_a_loop_that_is_never_driven_beside_a_load_is_said() -> None:
    harness = stage("drive")
    SoakRun(harness, {}, SoakSettings(0.1, load=1), lambda _: None).beside_load()
    assert "not driven" in harness.judge.kinds


def test_each_busy_loop_has_a_session_of_its_own() -> None:
    """Where cores are shared among sessions, all loops of one would weigh as one process."""
    with busy(2) as loops:
        made = [os.getsid(each.pid) for each in loops]
    assert len(set(made)) == 2
    assert os.getsid(0) not in made


# -- what is published ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "changes"), messages.CORRUPT + messages.WRONG)
def test_each_bad_image_is_refused_for_what_it_is_named_after(words: str, changes: dict[str, object]) -> None:
    pixels = bytes(messages.SIDE * messages.SIDE * 3)
    good = {"height": messages.SIDE, "width": messages.SIDE, "encoding": "rgb8", "step": messages.SIDE * 3}
    given = {**good, "data": pixels, **changes}
    with pytest.raises(ObservationError) as refused:
        decode_raw(**given, expected=(messages.SIDE, messages.SIDE))  # type: ignore[arg-type]
    assert words.split()[-1] == refused.value.fault.name.value
    assert words in str(refused.value)


def test_a_press_beside_a_stall_that_disarmed_is_latched_and_pressed_once_more() -> None:
    harness, case = stage(), next(each for each in presses.cases() if each.frozen)
    acted: Any = harness.witness
    acted.long_stops = 1
    begin_ns, end_ns = presses.press(harness, case)
    assert harness.judge.violations == []
    assert end_ns is not None
    assert begin_ns <= end_ns
    assert acted.presses == 2
    assert harness.presses_again == 1


@pytest.mark.parametrize(
    ("ms", "said"),
    [(49.0, []), (51.0, ["stop_pressed: slow"]), (None, ["stop_pressed: no hold"]), (151.0, ["late", "slow"])],
)
def test_each_case_is_pressed_so_often_and_its_slowest_percent_judged(
    ms: float | None, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one of the three presses of a case that takes `ms` is its slowest percent. Where the process does not run,
    fifty milliseconds are not promised."""
    harness, each = stage(), [presses.StopPressCase("frozen", 0.02, presses.idle, frozen=True), presses.cases()[0]]
    kinds = {"stop_pressed": faults(1600.0, 100.0)["stop_pressed"]}
    run, played = SoakRun(harness, kinds, SoakSettings(60.0, presses=3), lambda _: None), list[str]()

    def press(_: SoakHarness, case: presses.StopPressCase) -> Times:
        played.append(case.name)
        taken = 60.0 if case.frozen else ms if len(played) == 5 else 10.0
        return 0, None if taken is None else int(taken * 1e6)

    monkeypatch.setattr(run_module, "press", press)
    monkeypatch.setattr(run_module, "cases", lambda: each)
    run.presses()
    assert played == ["frozen"] * 3 + [each[1].name] * 3
    assert [outcome.case for outcome in run.result.outcomes] == played
    assert run.result.presses_wanted == 6
    assert len(harness.judge.kinds) == len(said), harness.judge.kinds
    assert all(any(word in kind for kind in harness.judge.kinds) for word in said)


def test_presses_that_can_never_be_timed_are_said() -> None:
    """One that lasts longer than it should, because who presses stood still, is no short press."""
    harness, case = stage(), presses.StopPressCase("held", 0.0, presses.idle)
    pause = harness.pause
    harness.pause = lambda seconds: pause(seconds + 0.02)  # type: ignore[method-assign]
    with pytest.raises(presses.NotTimedError):
        presses.press(harness, case)
    assert harness.presses_again == 1 + presses.AGAIN
    assert list(harness.judge.kinds) == ["not timed"]


@pytest.mark.parametrize("kind", ["String", "Float64MultiArray", "Image", "CompressedImage", "JointState"])
def test_noise_is_no_message_of_any_type_that_is_heard(kind: str) -> None:
    """Of a Bool neither: the emergency stop itself looks at its byte."""
    rng = random.Random(3)
    for _ in range(200):
        data = payload(rng)
        with pytest.raises(PayloadError):
            read_message(data + bytes(-len(data) % 4), getattr(msg, kind))


def test_each_pair_of_topic_and_policy_is_one_of_its_own() -> None:
    keys = [(each.node, each.key) for each in peers.mismatches()]
    assert len(set(keys)) == len(keys) > 10


def test_a_loop_that_is_not_driven_for_a_while_is_not_steady() -> None:
    harness = stage()
    assert harness.steady()
    assert harness.judge.violations == []
    harness = stage("drive")
    assert not harness.steady()
    assert "not steady" in harness.judge.kinds


def test_after_an_agent_that_ended_unasked_the_soak_arms_again_and_goes_on() -> None:
    harness = stage()
    acted = harness.witness
    acted.armed, acted.follows = False, "a"  # type: ignore[attr-defined]
    acted.heartbeat = {**acted.heartbeat, "session": "b"}
    harness.pause(0.4)
    assert harness.steady()
    assert acted.armed  # type: ignore[attr-defined]
    assert harness.judge.violations == []


def test_a_process_that_cannot_be_started_again_ends_the_soak_with_what_there_is() -> None:
    harness = stage()
    breaks = harness.witness.breaks  # type: ignore[attr-defined]

    def last(harness: SoakHarness) -> Times:
        breaks.add("settings")
        now_ns = harness.now_ns()
        harness.pause(5.0)
        return now_ns, None

    run = SoakRun(harness, {"last": InjectedFault(last, "nothing")}, SoakSettings(60.0), lambda _: None)
    run.play()
    (violation,) = harness.judge.violations
    assert violation.startswith("process ended: agent cannot start with these settings (last, ")
    assert 0 < run.result.seconds < 30.0
    assert run.result.outcomes == []


def test_each_is_drawn_once_before_any_comes_again() -> None:
    harness = stage()
    drawn = [harness.draw("letters", "abcd") for _ in range(8)]
    assert sorted(drawn[:4]) == sorted(drawn[4:]) == list("abcd")
