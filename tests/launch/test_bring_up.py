"""agent.launch.py against a real lifecycle node on the real wire, killed and started again.

Guards: what the doubles take for granted. A process that was killed is known to DDS for 10 s and more: a request that
goes to its service alone is never answered, and the new process would stay unconfigured. `launch` is a double here;
the life cycle's services, its events and the graph are not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from auras_ros.ros import BACKEND, Context, Node, SignalHandlerOptions, SingleThreadedExecutor, init, try_shutdown
from auras_ros.ros.msg import TransitionEvent
from auras_ros.ros.srv import ChangeState
from tests.launch.test_launch_files import ROOT, launched, ours

pytestmark = pytest.mark.skipif(BACKEND == "rclpy", reason="with ROS 2 there is the real launch: `ros2 launch`")
DOUBLES = Path(__file__).with_name("doubles")
PATIENCE_S = 40.0
STEP_S = 0.1  # of the launch file's own clock at once: a pause of the test's must not be taken for a late answer
NAME = "/robot1/agent"


@pytest.fixture(autouse=True)
def _doubles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(DOUBLES))
    yield
    for name in filter(ours, list(sys.modules)):
        del sys.modules[name]


class Launch:
    """`ros2 launch` with its node: it hands on the agent's transitions, and sends the requests, once each."""

    def __init__(self, node: Node, executor: SingleThreadedExecutor) -> None:
        self.context = launched("agent.launch.py", namespace="robot1")
        (self.action,) = (each for each in self.context.started if each.name == "agent")
        assert self.action.node_name == NAME
        self.context.ros_node = node
        self._executor, self.states = executor, list[str]()
        self._client = node.create_client(ChangeState, f"{NAME}/change_state")
        node.create_subscription(TransitionEvent, f"{NAME}/transition_event", self._on_transition, 10)
        self.asked: list[int] = []
        self._sent = 0

    def _on_transition(self, message: TransitionEvent) -> None:
        from launch_ros.events.lifecycle import StateTransition

        labels = {"start_state": message.start_state.label, "goal_state": message.goal_state.label}
        self.states.append(message.goal_state.label)
        event = StateTransition(action=self.action, transition=message.transition.label, **labels)
        self.context.emit_event_sync(event)

    def process_started(self) -> None:
        from launch.events.process import ProcessStarted

        self.context.emit_event_sync(ProcessStarted(action=self.action))

    def until(self, condition: Callable[[], Any], what: str) -> None:
        from launch_ros.events.lifecycle import ChangeState as Event

        end_s, before_s = time.monotonic() + PATIENCE_S, time.monotonic()
        while not condition():
            assert time.monotonic() < end_s, f"not within {PATIENCE_S} s: {what}; {self.states=} {self.asked=}"
            self._executor.spin_once(timeout_sec=0.02)
            now_s = time.monotonic()
            self.context.advance(min(now_s - before_s, STEP_S))
            before_s = now_s
            requests = [each for each in self.context.events if isinstance(each, Event)]
            for each in requests[self._sent :]:
                request = ChangeState.Request()
                request.transition.id = each.transition_id
                self.asked.append(each.transition_id)
                assert self._client.service_is_ready()
                self._client.call_async(request)
            self._sent = len(requests)


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


def agent() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.launch.children.lifecycle_agent", "--ros-args"]
    names = ["-r", "__node:=agent", "-r", "__ns:=/robot1"]
    return subprocess.Popen([*command, *names], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})


def test_an_agent_that_is_killed_is_active_again_though_its_dead_life_is_still_known(launch: Launch) -> None:
    for life in (1, 2, 3):
        process = agent()
        try:
            launch.process_started()
            launch.until(lambda: launch.states[-1:] == ["active"], f"active in life {life}")
            assert launch.asked == [1, 3] * life, "each asked for once a life"
        finally:
            process.kill()
            process.wait()
        launch.states.clear()
