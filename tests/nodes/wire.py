"""What the tests of the processes share: a domain, children that are always reaped, and a node that
writes down what it hears."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from auras_ros.nodes.common.config import LIFECYCLE
from auras_ros.nodes.common.messages import ActionLabel, read_action
from auras_ros.ros import (
    DurabilityPolicy,
    Node,
    QoSProfile,
    ReliabilityPolicy,
    SingleThreadedExecutor,
    SubscriptionEventCallbacks,
    init,
    try_shutdown,
)
from auras_ros.ros.msg import DiagnosticArray, Float64MultiArray, MultiArrayDimension, String
from auras_ros.ros.srv import Trigger

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0  # a whole start of an agent, on a machine that is slow and busy
MS = 1_000_000
NAMES = ("agent_x", "agent_y")
RELIABLE = QoSProfile(depth=4000, reliability=ReliabilityPolicy.RELIABLE)
BEST_EFFORT = QoSProfile(depth=4000, reliability=ReliabilityPolicy.BEST_EFFORT)
LATCHED = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
SENTINEL = "sentinel"
# Reasons to hold that a machine brings about that stood still for a moment; it goes on by itself.
PAUSES = ("joint_states: no new position", "agent silent", "the chunk's horizon is used up")
# Before an actuator's main: it does not disarm itself when a busy machine keeps it for longer than its 300 ms.
PATIENT = """
import auras_ros.nodes.actuator.command_loop as drive
drive.LEASE_MS = 1500
"""
DOMAINS = range(80, 100)
_next_domain = itertools.cycle(DOMAINS)  # a killed process is remembered by its domain for a while


@contextmanager
def own_domain() -> Iterator[int]:
    """A ROS domain for a block and its children, used by nobody else and not by the block before."""
    for number in itertools.islice(_next_domain, len(DOMAINS)):
        path = Path(tempfile.gettempdir()) / f"auras_ros_domain_{number}.lock"
        with path.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            with pytest.MonkeyPatch.context() as environment:
                environment.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
                environment.setenv("ROS_DOMAIN_ID", str(number))
                yield number
            return
    pytest.fail(f"every ROS domain in {DOMAINS} is in use by another test run")


class Child:
    """One process and the file that its output goes to."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]  # rclpy is found by PYTHONPATH too
        env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
        with log.open("w") as out:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=ROOT
            )
        self.pid = self.process.pid

    def send(self, number: signal.Signals) -> int:
        """Returns the time just before, monotonic ns."""
        at_ns = time.monotonic_ns()
        self.process.send_signal(number)
        return at_ns

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)

    @property
    def output(self) -> str:
        return self._log.read_text()


class Children:
    """Starts processes and leaves none behind, whatever the test did to them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.started = folder, list[Child]()

    def __call__(self, *command: str) -> Child:
        child = Child(command, self._folder / f"child{len(self.started)}.log")
        self.started.append(child)
        return child

    def node(self, name: str, parameters: dict[str, Any], *ros_arguments: str, code: str = "") -> Child:
        """auras_ros.nodes.NAME.node with parameters; `code` runs before its main, to plant a fault. A
        lifecycle node configures and activates itself, unless the parameters say otherwise."""
        parameters = {"autostart": True, **parameters} if name in LIFECYCLE else parameters
        words = [word for key, value in parameters.items() for word in ("-p", f"{key}:={json.dumps(value)}")]
        module = f"auras_ros.nodes.{name}.node"
        end = "m.program()" if name in LIFECYCLE else "sys.exit(m.main())"
        run = ["-c", f"import sys\nimport {module} as m\n{code}\n{end}"] if code else ["-m", module]
        return self(sys.executable, *run, "--ros-args", *words, *ros_arguments)

    def fake_agent(self, session: str, *words: str) -> Child:
        return self(sys.executable, "-m", "tests.nodes.children.fake_agent", session, *words)

    def reap(self) -> None:
        for child in self.started:
            if child.process.poll() is None:
                child.process.kill()
            child.process.wait()


@dataclass(frozen=True)
class Heard:
    """An action, and how it was labelled."""

    values: NDArray[np.float64]
    label: ActionLabel


class Watch:
    """A node that writes down all that the processes say, and calls their services. Everything it does is done in
    `until`. An empty `actuator`: its state is not listened to."""

    def __init__(self, namespace: str = "", actuator: str = "actuator") -> None:
        init(args=[])
        self.node = Node("watch", namespace=namespace or None)
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.node)
        self.actions: list[Heard] = []
        self.states: list[dict[str, Any]] = []
        self.beats: list[dict[str, Any]] = []
        self.chunks: list[dict[str, Any]] = []
        self.provenance: list[DiagnosticArray] = []
        self._actuator = actuator
        self._clients: dict[str, Any] = {}
        subscribe = self.node.create_subscription
        subscribe(Float64MultiArray, "action", self._on_action, RELIABLE)
        if actuator:
            subscribe(String, f"{actuator}/state", lambda m: self.states.append(json.loads(m.data)), RELIABLE)

    def _on_action(self, message: Float64MultiArray) -> None:
        self.actions.append(Heard(*read_action(message)))

    def hear_agent(self, name: str = "agent") -> None:
        """Write down what an agent says too. Only for agents that mean well."""

        def on_chunk(message: Float64MultiArray) -> None:
            self.chunks.append(json.loads(message.layout.dim[2].label))

        subscribe = self.node.create_subscription
        subscribe(String, f"{name}/heartbeat", lambda m: self.beats.append(json.loads(m.data)), BEST_EFFORT)
        subscribe(Float64MultiArray, f"{name}/chunk", on_chunk, RELIABLE)
        subscribe(DiagnosticArray, "provenance", self.provenance.append, RELIABLE)

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Spin until the condition holds; the test fails with `what` when it never does."""
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end_s, f"not within {PATIENCE_S} s: {what}; last state {self.states[-1:]}"
            self._executor.spin_once(timeout_sec=0.02)

    def since(self, at_ns: int) -> list[Heard]:
        """The actions that were published from that time on. A state may be heard before the actions before it."""
        newest = itertools.takewhile(lambda heard: heard.label.mono_ns >= at_ns, reversed(self.actions))
        return list(newest)[::-1]

    def armed(self, what: str = "an armed actuator") -> None:
        """Until an action of a chunk is heard that is newer than this call: those of a dead one may still arrive."""
        self.first("armed", time.monotonic_ns(), what)

    def drives_on(self) -> None:
        """What was done took the robot from nobody. Chunks come, so that a pause of the machine's ends by itself."""
        assert undisturbed(self.states[-1]), self.states[-1]
        self.armed()

    def first(self, state: str, after_ns: int, what: str = "") -> Heard:
        """The first action of that state that was published after a time."""
        found: list[Heard] = []

        def heard() -> bool:
            found[:] = [heard for heard in self.since(after_ns) if heard.label.state == state]
            return bool(found)

        self.until(heard, what or f"an action of state {state}")
        return found[0]

    def state_where(self, condition: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """The first state message from now on for which the condition holds."""
        count = len(self.states)
        found: list[dict[str, Any]] = []

        def said() -> bool:
            found[:] = [state for state in self.states[count:] if condition(state)]
            return bool(found)

        self.until(said, what)
        return found[0]

    def call(self, service: str) -> tuple[bool, str]:
        """Call a Trigger service by its topic name; (success, message)."""
        if service not in self._clients:
            self._clients[service] = self.node.create_client(Trigger, service)
        client = self._clients[service]
        self.until(client.service_is_ready, f"service {service}")
        future = client.call_async(Trigger.Request())
        self.until(future.done, f"an answer of {service}")
        return bool(future.result().success), str(future.result().message)

    def arm(self) -> None:
        """Arm as soon as the actuator sees robot and agent."""
        answer: list[tuple[bool, str]] = []

        def done() -> bool:
            answer[:] = [self.call(f"{self._actuator}/arm")]
            return answer[0][0]

        self.until(done, "the actuator arms")

    def count(self, reason: str) -> int:
        """Chunks that the actuator refused for a reason, as last said."""
        return int(self.states[-1]["counters"]["refused"].get(reason, 0)) if self.states else 0

    def sentinel(self) -> list[Heard]:
        """Publish on `action` and wait for it; returns what was heard before it. Its publisher lives no longer than
        that: the actuator takes anybody else's for a conflict."""
        label = ActionLabel(SENTINEL, SENTINEL, None, None, None, 0, time.monotonic_ns())
        message = Float64MultiArray(data=[0.0, 0.0])
        message.layout.dim = [_dim(",".join(NAMES), 2), _dim(json.dumps(vars(label)), 1)]
        publisher = self.node.create_publisher(Float64MultiArray, "action", 10)
        self.until(lambda: publisher.get_subscription_count() > 0, "somebody to hear the sentinel")
        publisher.publish(message)
        self.first(SENTINEL, label.mono_ns)
        self.node.destroy_publisher(publisher)
        return [heard for heard in self.actions if heard.label.state != SENTINEL]

    def listen(self, topic: str, qos: QoSProfile, events: SubscriptionEventCallbacks) -> None:
        """One more subscription to a multi-array topic, for its events."""
        self.node.create_subscription(Float64MultiArray, topic, lambda _: None, qos, event_callbacks=events)

    def close(self) -> None:
        self._executor.shutdown()
        self.node.destroy_node()
        try_shutdown()


def undisturbed(state: dict[str, Any]) -> bool:
    """Whether it is armed, or holds for nothing but a pause of the machine's."""
    return state["state"] == "armed" or (state["state"] == "holding" and state["reason"].startswith(PAUSES))


def _dim(label: str, size: int) -> Any:
    return MultiArrayDimension(label=label, size=size, stride=size)
