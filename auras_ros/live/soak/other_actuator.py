"""An actuator of our own beside the loop's, in a namespace of its own: it takes the chunks of the loop's agent, and a
robot that stands still is played for it. Nothing moves by its commands; what it may not say is read off them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from auras_ros.live.soak.harness import SoakHarness
from auras_ros.live.soak.judge import ReceivedAction
from auras_ros.live.soak.topics import EVERY, JOINTS, STATES
from auras_ros.live.soak.witness import asked
from auras_ros.nodes.common.messages import read_action
from auras_ros.nodes.common.qos import LATCHED
from auras_ros.nodes.common.texts import read_json
from auras_ros.ros import Future
from auras_ros.ros.msg import Float64MultiArray, JointState, String
from auras_ros.ros.srv import Trigger

NAMESPACE = "/beside"
STATES_S = 0.02
PLACE = dict.fromkeys(JOINTS, 256.0)
GRACE_S = 10.0


class OtherActuator:
    """`sent`: what it and those beside it in the namespace have commanded. `state`: its newest word. `speaking`: the
    joints that its robot tells of, each by a driver of its own."""

    def __init__(self, harness: SoakHarness, name: str, log: Path, parameters: dict[str, Any]) -> None:
        self.sent: list[ReceivedAction] = []
        self.state: dict[str, Any] = {}
        self.speaking: set[str] = set()
        arguments = ["-r", f"__ns:={NAMESPACE}", "-r", f"__node:={name}"]
        for key, value in {"agent": "/agent", **parameters}.items():
            arguments += ["-p", f"{key}:={json.dumps(value)}"]
        node = "auras_ros.nodes.actuator.node"
        child = [sys.executable, "-m", "auras_ros.nodes.common.child", str(os.getpid()), node]
        command = [*child, "--ros-args", *arguments]
        self._resources = ExitStack()
        enter = self._resources.enter_context
        kind, topic, qos = STATES
        states = kind, f"{NAMESPACE}/{topic}", qos
        self._drivers = {joint: enter(harness.publisher(states, listeners=0)) for joint in PLACE}
        enter(harness.timer(STATES_S, self._tell))
        enter(harness.subscription((Float64MultiArray, f"{NAMESPACE}/action", EVERY), self._on_action))
        enter(harness.subscription((String, f"{NAMESPACE}/{name}/state", LATCHED), self._on_state))
        self._clients = {
            word: enter(harness.client(Trigger, f"{NAMESPACE}/{name}/{word}")) for word in ("arm", "disarm", "stop")
        }
        with log.open("wb") as out:
            nothing = subprocess.DEVNULL
            self.process = subprocess.Popen(command, stdin=nothing, stdout=out, stderr=out, start_new_session=True)

    def speak(self) -> None:
        """Let every joint be told of."""
        self.speaking = set(PLACE)

    def _tell(self) -> None:
        for joint in self.speaking:
            self._drivers[joint].publish(JointState(name=[joint], position=[PLACE[joint]]))

    def _on_action(self, message: Float64MultiArray) -> None:
        values, label = read_action(message)
        self.sent.append(ReceivedAction(label.mono_ns, label.state, label.tick, label.age_ns, values))

    def _on_state(self, message: String) -> None:
        self.state = read_json(message.data, "soak")

    def call(self, word: str) -> Future | None:
        """Ask for "arm", "disarm" or "stop"; None where nobody answers."""
        return asked(self._clients[word], Trigger.Request())

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._resources.close()
