"""An actuator of our own beside the loop's, in a namespace of its own: it takes the chunks of the loop's agent, and a
robot that stands still is played for it. Nothing moves by its commands; what it may not say is read off them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from auras_ros.live.soak.judge import ReceivedAction
from auras_ros.live.soak.topics import EVERY, JOINTS, LATCHED, STATES
from auras_ros.live.soak.witness import Witness, asked
from auras_ros.nodes.common.messages import read_action, read_json
from auras_ros.ros import Clock, ClockType, Future
from auras_ros.ros.msg import Float64MultiArray, JointState, String
from auras_ros.ros.srv import Trigger

NAMESPACE = "/beside"
STATES_S = 0.02
PLACE = dict.fromkeys(JOINTS, 256.0)
SERVICES = ("arm", "disarm", "stop")
GRACE_S = 10.0


class OtherActuator:
    """`sent`: what it and those beside it in the namespace have commanded. `state`: its newest word. `speaking`: the
    joints that its robot tells of, each by a driver of its own."""

    def __init__(self, witness: Witness, name: str, log: Path, parameters: dict[str, Any]) -> None:
        self._witness = witness
        self.sent: list[ReceivedAction] = []
        self.state: dict[str, Any] = {}
        self.speaking: set[str] = set()
        arguments = ["-r", f"__ns:={NAMESPACE}", "-r", f"__node:={name}"]
        for key, value in {"agent": "/agent", **parameters}.items():
            arguments += ["-p", f"{key}:={json.dumps(value)}"]
        node = "auras_ros.nodes.actuator.node"
        child = [sys.executable, "-m", "auras_ros.nodes.common.child", str(os.getpid()), node]
        command = [*child, "--ros-args", *arguments]
        self._clients = {word: witness.create_client(Trigger, f"{NAMESPACE}/{name}/{word}") for word in SERVICES}
        kind, topic, qos = STATES
        self._drivers = {joint: witness.create_publisher(kind, f"{NAMESPACE}/{topic}", qos) for joint in PLACE}
        self._timer = witness.create_timer(STATES_S, self._tell, clock=Clock(clock_type=ClockType.STEADY_TIME))
        self._subscriptions = [
            witness.create_subscription(Float64MultiArray, f"{NAMESPACE}/action", self._on_action, EVERY),
            witness.create_subscription(String, f"{NAMESPACE}/{name}/state", self._on_state, LATCHED),
        ]
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
        self._witness.destroy_timer(self._timer)
        for publisher in self._drivers.values():
            self._witness.destroy_publisher(publisher)
        for client in self._clients.values():
            self._witness.destroy_client(client)
        for subscription in self._subscriptions:
            self._witness.destroy_subscription(subscription)
