"""agent.launch.py against a real lifecycle node on the real wire, with either backend, killed and started again.

Guards: what the doubles take for granted. A process that was killed is known to DDS for 10 s and more (20 s with Fast
DDS): a request that goes to its service alone is never answered, and the new process would stay unconfigured. A request
that is lost must be sent again. `launch` is a double here; the life cycle's services, its events and the graph are not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from auras_ros.ros import Context, Node, SignalHandlerOptions, SingleThreadedExecutor, init, try_shutdown
from auras_ros.ros.msg import TransitionEvent
from tests.launch.test_launch_files import DOUBLES, ROOT, is_doubled, launched

PATIENCE_S = 60.0
STEP_S = 0.1  # of the launch file's own clock at once: a pause of the test's must not be taken for a late answer
NAME = "/robot1/agent"


@pytest.fixture(autouse=True)
def _doubles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for folder in DOUBLES:
        monkeypatch.syspath_prepend(str(folder))
    yield
    for name in filter(is_doubled, list(sys.modules)):
        del sys.modules[name]


class Launch:
    """`ros2 launch` with its node: it hands on the agent's transitions; the requests are the launch file's own."""

    def __init__(self, node: Node, executor: SingleThreadedExecutor) -> None:
        self.context = launched("agent.launch.py", namespace="robot1")
        (self.action,) = (each for each in self.context.started if each.name == "agent")
        assert self.action.node_name == NAME
        self.context.ros_node = node
        self._executor = executor
        self.states: list[str] = []
        node.create_subscription(TransitionEvent, f"{NAME}/transition_event", self._on_transition, 10)

    def _on_transition(self, message: TransitionEvent) -> None:
        from launch_ros.events.lifecycle import StateTransition

        labels = {"start_state": message.start_state.label, "goal_state": message.goal_state.label}
        self.states.append(message.goal_state.label)
        event = StateTransition(action=self.action, transition=message.transition.label, **labels)
        self.context.emit_event_sync(event)

    def process_started(self) -> None:
        from launch.events.process import ProcessStarted

        self.states.clear()
        self.context.emit_event_sync(ProcessStarted(action=self.action))

    def process_ended(self) -> None:
        from launch.events.process import ProcessExited

        self.context.emit_event_sync(ProcessExited(action=self.action, returncode=-9))

    def until(self, condition: Callable[[], Any], what: str) -> None:
        end_s = time.monotonic() + PATIENCE_S
        before_s = time.monotonic()
        while not condition():
            assert time.monotonic() < end_s, f"not within {PATIENCE_S} s: {what}; {self.states=}"
            self._executor.spin_once(timeout_sec=0.02)
            now_s = time.monotonic()
            self.context.advance(min(now_s - before_s, STEP_S))
            before_s = now_s

    def is_up(self) -> bool:
        return self.states[-1:] == ["active"]


@pytest.fixture
def launch(ros_domain_id: int) -> Iterator[Launch]:
    context = Context()
    init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = Node("launch_ros", context=context)
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(node)
        yield Launch(node, executor)
    finally:
        try_shutdown(context=context)


@contextmanager
def agent(deaf_to: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.launch.children.lifecycle_agent", "--ros-args"]
    names = ["-r", "__node:=agent", "-r", "__ns:=/robot1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "DEAF_TO": str(deaf_to)}
    process = subprocess.Popen([*command, *names], cwd=ROOT, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


UP = ["configuring", "inactive", "activating", "active"]


def test_an_agent_that_is_killed_is_active_again_though_its_dead_life_is_still_known(launch: Launch) -> None:
    for life in (1, 2, 3):
        with agent():
            launch.process_started()
            launch.until(launch.is_up, f"active in life {life}")
            assert launch.states == UP, "each transition once a life"
            launch.until(lambda: not launch.context.timers, "asked no more")
        launch.process_ended()


def test_requests_that_are_lost_are_sent_again(launch: Launch) -> None:
    """Guards: an agent that stayed unconfigured on a busy machine until a person came."""
    with agent(deaf_to=2):
        launch.process_started()
        launch.until(launch.is_up, "active")
        assert launch.states == UP


def test_an_agent_that_is_silent_for_long_is_brought_up_when_it_answers(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_up: Any = sys.modules["auras_ros.nodes.common.bring_up"]
    monkeypatch.setattr(bring_up, "REPORT_AFTER_S", 3.0)
    monkeypatch.setattr(bring_up, "SLOW_POLL_S", 1.0)
    with agent() as process:
        services = launch.context.ros_node
        launch.until(lambda: services.count_publishers(f"{NAME}/transition_event"), "there")
        process.send_signal(signal.SIGSTOP)
        launch.process_started()
        launch.until(lambda: launch.context.logged, "a word")
        (line,) = launch.context.logged
        assert line.startswith(f"{NAME} is not inactive after 3 s; it answers no question for its state")
        assert launch.states == []
        process.send_signal(signal.SIGCONT)
        launch.until(launch.is_up, "active")
        assert launch.states == UP
