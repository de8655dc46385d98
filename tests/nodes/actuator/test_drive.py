"""What the tick thread still says after a stall or a jump: nothing, but for rates, which a controller goes on with.

The drive is played tick by tick in virtual time; nothing of ROS runs.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auras_ros.action import Chunk, Command, Contract, Provenance, SafetyState
from auras_ros.action.contract import FloatArray
from auras_ros.nodes.actuator.command_loop import CommandLoop
from auras_ros.nodes.actuator.settings import ActuatorSettings
from auras_ros.nodes.common.messages import host_id
from tests.nodes.controllers import channel
from tests.suspending_clock import SuspendingClock

MS = 1_000_000
STALL_MS = 400  # longer than the lease
ARM = channel("a", max_rate=None)
WHEEL = channel("wheel", "velocity", max_rate=None)
DIGEST = "ab" * 32  # of the checkpoint
HAND = channel("hand", "gripper", hold="value", hold_value=3.0)


class Stage:
    """A drive, its clock, what it sent [channels], and what it told its trajectories to end at."""

    def __init__(self, *channels: dict[str, Any], agent_timeout_ms: float = 1e9) -> None:
        self.clock, self.sent, self.ended = SuspendingClock(10**9), list[FloatArray](), list[FloatArray | None]()
        self.contract = Contract.from_dict({"dt_ms": 100.0, "channels": list(channels)})
        outputs: Any = SimpleNamespace(send=self._send, end=self.ended.append)
        settings = ActuatorSettings(blend_ms=0.0, agent_timeout_ms=agent_timeout_ms, place_tolerance=0.0)
        self.drive = CommandLoop(settings, self.contract, outputs, self.clock, DIGEST)
        heartbeat = {"session": "s", "lifecycle": "active", "checkpoint": DIGEST}
        self.beat = lambda: self.drive.agent.on_heartbeat(heartbeat, None, self.clock.now_ns())
        self.beat()
        self._period_ns = settings.period_ns

    def _send(self, command: Command, *_: Any) -> None:
        self.sent.append(command.values)

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.clock.advance(self._period_ns)
            self.drive._tick(self.clock.now_ns())

    def drives(self, *steps: list[float], ticks: int) -> None:
        """Arm, give a chunk of these steps [horizon, channels], and tick."""
        self.tick()
        assert self.drive.arm([0.0] * len(self.contract.names)).ok
        self.chunk(*steps)
        self.tick(ticks)
        assert self.drive.stream.state is SafetyState.ARMED

    def chunk(self, *steps: list[float]) -> None:
        """One of these steps [horizon, channels], which is taken."""
        origin_ns = self.clock.now_ns()
        provenance = Provenance(origin_stamp_ns=origin_ns, origin_mono_ns=origin_ns, session="s", host=host_id())
        verdict = self.drive.stream.offer(Chunk(np.array(steps), provenance), origin_ns)
        assert verdict.ok, verdict

    def happens(self, what: str) -> None:
        if what == "jump":
            self.drive.robot_moved("a is elsewhere")
        else:
            getattr(self.clock, what)(STALL_MS * MS)

    def after(self) -> list[list[float]]:
        """What is sent from now on; it comes to its end."""
        count = len(self.sent)
        self.tick(100)
        assert self.drive.stream.silent
        return [values.tolist() for values in self.sent[count:]]


HAPPENS = pytest.mark.parametrize("what", ["jump", "advance", "suspend"])


@HAPPENS
@pytest.mark.parametrize("place", [ARM, channel("a", hold="zero"), channel("a", max_acceleration=2.0), HAND])
def test_where_rates_run_they_come_to_rest_and_set_points_stay_where_they_were_sent(
    what: str, place: dict[str, Any]
) -> None:
    """Whatever the set points' hold policies say, and however they moved: a controller without a time-out would go on
    with the rate."""
    stage = Stage(place, channel("wheel", "velocity", max_rate=25.0), channel("d", "delta_previous", hold="zero"))
    stage.drives(*[[0.5 + 0.1 * step, 1.0, 0.01] for step in range(16)], ticks=21)
    at, rate, step = stage.sent[-1]  # a tick at which a policy step begins: the increment is due
    assert (rate, step != 0.0) == (1.0, True)
    stage.happens(what)
    after = stage.after()
    assert [values[0] for values in after] == [at] * 4
    assert [values[1] for values in after] == pytest.approx([0.75, 0.5, 0.25, 0.0])
    assert {values[2] for values in after} == {0.0}
    assert stage.drive.stream.state is SafetyState.DISARMED


@HAPPENS
@pytest.mark.parametrize("place", [ARM, HAND])
def test_where_no_rate_runs_nothing_more_is_said(what: str, place: dict[str, Any]) -> None:
    stage = Stage(place, WHEEL)
    stage.drives(*[[0.1 * step, 0.0] for step in range(16)], ticks=25)
    sent = stage.sent[-1]
    stage.happens(what)
    assert stage.after() == []
    assert stage.drive.stream.state is SafetyState.DISARMED
    assert stage.drive.stalls == (what != "jump")
    (ended,) = stage.ended
    assert ended is (sent if what == "jump" else None)


@HAPPENS
def test_a_stop_stays_latched_and_its_rates_come_to_rest(what: str) -> None:
    stage = Stage(channel("a", hold="zero", max_rate=1.0), channel("wheel", "velocity", max_rate=25.0))
    stage.drives(*[[1.0, 1.0]] * 16, ticks=100)
    stage.drive.stop("pressed")
    stage.tick()
    at = stage.sent[-1][0]
    stage.happens(what)
    after = stage.after()
    assert [values[0] for values in after] == [at] * 3
    assert after[-1][1] == 0.0
    assert (stage.drive.stream.state, stage.drive.reason) == (SafetyState.STOPPED, "pressed")


def test_who_disarms_or_presses_on_the_way_moves_no_set_point() -> None:
    stage = Stage(channel("a", hold="zero"), channel("wheel", "velocity", max_rate=25.0))
    stage.drives(*[[0.5, 1.0]] * 16, ticks=25)
    at = stage.sent[-1][0]
    stage.happens("jump")
    stage.tick()
    stage.drive.disarm()
    stage.tick()
    stage.drive.stop("pressed")
    assert [values[0] for values in stage.after()] == [at] * 2


def stalls_within_its_tick(stage: Stage, what: str) -> None:
    """From the stream's answer to the next line the process stands still, once."""
    inner = stage.drive.stream.tick

    def tick(now_ns: int) -> Command:
        command = inner(now_ns)
        stage.happens(what)
        stage.drive.stream.tick = inner  # type: ignore[method-assign]
        return command

    stage.drive.stream.tick = tick  # type: ignore[method-assign]


@pytest.mark.parametrize("what", ["advance", "suspend"])
def test_a_command_that_was_made_before_a_stall_is_not_sent_after_it(what: str) -> None:
    stage = Stage(ARM)
    stage.drives(*[[0.1 * step] for step in range(16)], ticks=25)
    stalls_within_its_tick(stage, what)
    assert stage.after() == []
    assert stage.drive.stalls == 1
    assert "stood still for 0.4 s" in stage.drive.reason
    assert stage.ended == [None]


@pytest.mark.parametrize("what", ["advance", "suspend"])
@pytest.mark.parametrize("ticks", [30, 29])  # 29: the chunk's next step is the command that is not sent
def test_what_was_not_sent_is_nowhere_to_stay(what: str, ticks: int) -> None:
    stage = Stage(ARM, WHEEL)
    stage.drives(*[[0.1 * step, 1.0] for step in range(16)], ticks=ticks)
    at = stage.sent[-1][0]
    stalls_within_its_tick(stage, what)
    assert stage.after() == [[at, 0.0]]
    assert stage.drive.stalls == 1


@pytest.mark.parametrize("what", ["advance", "suspend"])
def test_a_final_command_that_a_stall_held_up_is_made_up_for_where_a_rate_runs(what: str) -> None:
    """Else the rate before it would stay with the controller for good."""
    stage = Stage(ARM, WHEEL)
    stage.drives(*[[0.5, 1.0]] * 16, ticks=25)
    stage.drive.disarm()
    stalls_within_its_tick(stage, what)
    assert stage.after() == [[0.5, 0.0]]
    arm = Stage(ARM)
    arm.drives(*[[0.5]] * 16, ticks=25)
    arm.drive.disarm()
    stalls_within_its_tick(arm, what)
    assert arm.after() == []


def test_the_first_command_after_arming_is_the_measured_position() -> None:
    """A chunk that came between arming and the first tick has to wait for one, whatever its rate limit allows."""
    stage = Stage(ARM, HAND)
    stage.tick()
    assert stage.drive.arm([0.4, 0.0]).ok
    stage.chunk(*[[2.5, 1.0]] * 16)
    stage.tick(2)
    assert [values.tolist() for values in stage.sent] == [[0.4, 0.0], [2.5, pytest.approx(0.04)]]


def test_the_first_command_after_arming_that_a_stall_held_up_leaves_nothing_behind() -> None:
    stage = Stage(ARM, WHEEL)
    stage.tick()
    assert stage.drive.arm([0.4, 0.0]).ok
    stalls_within_its_tick(stage, "advance")
    assert stage.after() == []
    assert stage.sent == []


@HAPPENS
def test_rates_alone_come_to_rest(what: str) -> None:
    stage = Stage(WHEEL)
    stage.drives(*[[1.0]] * 16, ticks=25)
    stage.happens(what)
    assert stage.after() == [[0.0]]


def test_a_stall_is_longer_than_the_lease() -> None:
    stage = Stage(ARM)
    stage.drives(*[[0.5]] * 16, ticks=25)
    stage.clock.suspend(280 * MS)
    stage.tick()
    assert stage.drive.stream.state is SafetyState.ARMED
    assert stage.drive.stalls == 0


def test_a_chunk_of_an_agent_that_is_still_silent_moves_nothing() -> None:
    """A frame that ends late publishes its chunk before the next heartbeat: not one step of it may be executed."""
    stage = Stage(ARM, agent_timeout_ms=100.0)
    stage.drives(*[[0.1 * step] for step in range(16)], ticks=5)
    stage.tick(20)
    assert stage.drive.stream.state is SafetyState.HOLDING
    held = stage.sent[-1].tolist()
    stage.chunk(*[[2.5]] * 16)
    stage.tick(3)
    assert [values.tolist() for values in stage.sent[-3:]] == [held] * 3
    stage.beat()
    stage.chunk(*[[2.5]] * 16)
    stage.tick(3)
    assert stage.drive.stream.state is SafetyState.ARMED


def test_a_jump_that_is_found_while_a_command_is_sent_waits_for_it_and_has_the_last_word() -> None:
    """Else the point of a hold at the old place would follow it on the trajectory topic."""
    stage = Stage(ARM)
    stage.drives(*[[0.5]] * 16, ticks=5)
    order, begun = list[str](), threading.Event()

    def send(*_: Any) -> None:
        begun.set()
        time.sleep(0.05)  # gives the interpreter away, as publishing does
        order.append("sent")

    outputs: Any = stage.drive._outputs
    outputs.send, outputs.end = send, lambda values: order.append("ended")
    outputs.working, outputs.close = lambda: True, lambda: None
    stage.drive._settings = replace(stage.drive._settings, realtime_priority=0)
    stage.drive.start()
    assert begun.wait(10.0)
    stage.drive.robot_moved("a is elsewhere")
    assert order[-1] == "ended"
    count = len(order)
    time.sleep(0.1)
    assert len(order) == count
    stage.drive.halt()


def test_arming_again_and_again_while_it_holds_moves_no_set_point() -> None:
    """A sagging arm would creep down by its error with each call, whatever its rate."""
    stage = Stage(channel("a", max_rate=1.0))
    stage.drives(*[[1.0]] * 16, ticks=25)
    stage.drive.stream.hold(stage.clock.now_ns())
    stage.tick()
    (at,) = stage.sent[-1]
    for _ in range(5):
        assert stage.drive.arm([at - 0.05]).ok
        stage.tick()
    assert [values.tolist() for values in stage.sent[-5:]] == [[at]] * 5


def test_while_the_agent_pauses_nothing_of_a_chunk_is_executed_and_a_new_one_ends_it() -> None:
    """The chunk that it holds has many steps left, and one more comes that was on its way."""
    stage = Stage(ARM)
    stage.drives(*[[0.1 * step] for step in range(16)], ticks=21)
    at = stage.sent[-1].tolist()
    heartbeat = {"session": "s", "lifecycle": "active", "pause": "'way' says 'yes'", "checkpoint": DIGEST}
    stage.drive.agent.on_heartbeat(heartbeat, "s", stage.clock.now_ns())
    stage.tick()
    assert (stage.drive.stream.state, stage.drive.reason) == (
        SafetyState.HOLDING,
        "the agent pauses: 'way' says 'yes'",
    )
    stage.chunk(*[[2.5]] * 16)
    stage.tick(5)
    assert [values.tolist() for values in stage.sent[-6:]] == [at] * 6
    stage.beat()
    stage.tick()
    assert stage.drive.stream.state is SafetyState.HOLDING
    stage.chunk(*[[at[0]]] * 16)
    stage.tick()
    assert stage.drive.stream.state is SafetyState.ARMED
