"""The end of a process: asked to stop, the actuator's last word is a hold; broken, no process looks alive."""

from __future__ import annotations

import signal
from collections.abc import Callable

import numpy as np
import pytest

from tests.nodes.stand_ins import FakeAgent, Robot, ramp
from tests.nodes.wire import Child, Children, Watch

TICK_BREAKS = """
from auras_ros.action import ActionStream
def tick(self, now_ns): raise RuntimeError('the tick broke')
ActionStream.tick = tick
"""
FRAME_BREAKS = """
from auras_ros.observation import Assembler
def latch(self, now_ns): raise RuntimeError('the frame broke')
Assembler.latch = latch
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_hold_is_the_actuators_last_word(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot, number: signal.Signals
) -> None:
    child = actuator(code=f"import signal\nsignal.signal({int(number)}, signal.SIG_DFL)")  # not nohup's
    fake.live()
    fake.drive(ramp())
    watch.arm()
    watch.armed()
    child.send(number)
    assert child.wait() == 0, child.output
    heard = watch.sentinel()  # published after the process had ended
    assert (heard[-1].label.state, heard[-1].label.source) == ("disarmed", "hold")
    assert heard[-2].label.state in ("armed", "holding")  # a busy machine may have it held before
    np.testing.assert_array_equal(heard[-1].values, heard[-2].values)
    assert "Traceback" not in child.output


def test_under_nohup_a_closed_terminal_ends_nothing(actuator: Callable[..., Child], watch: Watch) -> None:
    child = actuator(code="import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)")
    watch.until(lambda: watch.states, "an actuator")
    child.send(signal.SIGHUP)
    tick = watch.states[-1]["tick"]
    watch.state_where(lambda state: state["tick"] > tick + 30, "thirty ticks")
    child.send(signal.SIGTERM)
    assert child.wait() == 0, child.output


def test_signals_that_come_all_at_once_end_it_in_order_too(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """From a terminal and from who started it; one may come while the handler of another runs."""
    child = actuator()
    fake.live()
    fake.drive(ramp())
    watch.arm()
    watch.armed()
    for _ in range(100):
        child.send(signal.SIGTERM)
        child.send(signal.SIGINT)
    assert child.wait() in (0, -signal.SIGTERM, -signal.SIGINT), (
        child.output
    )  # the interpreter's own end has no handler
    assert (watch.sentinel()[-1].label.state, watch.sentinel()[-1].label.source) == ("disarmed", "hold")


def test_a_tick_thread_that_breaks_ends_the_process(actuator: Callable[..., Child]) -> None:
    """Else its executor would go on saying that it lives, and the agent would believe it."""
    child = actuator(code=TICK_BREAKS)
    assert child.wait() == 1
    assert "the tick broke" in child.output


def test_an_inference_thread_that_breaks_ends_the_process(children: Children, checkpoint: str) -> None:
    child = children.node("agent", {"checkpoint": checkpoint}, code=FRAME_BREAKS)
    assert child.wait() == 1
    assert "the frame broke" in child.output


def test_an_agent_that_is_asked_to_stop_does(children: Children, watch: Watch, robot: Robot, checkpoint: str) -> None:
    """By SIGINT here; the supervisor's SIGTERM is in test_closed_loop."""
    child = children.node("agent", {"checkpoint": checkpoint})
    robot.play_actuator()
    watch.hear_agent()
    watch.until(lambda: watch.chunks, "a chunk")
    child.send(signal.SIGINT)
    assert child.wait() == 0, child.output
    assert "Traceback" not in child.output
