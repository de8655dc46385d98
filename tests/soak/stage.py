"""A loop that is acted: a real scene and a real judge, and around them a witness, processes and an executor that do as
they are told. Whatever a fault does to it, it keeps its promises, but for those that are named in `breaks`."""

from __future__ import annotations

import random
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np

from auras_ros.nodes.supervisor import SupervisorError
from auras_ros.soak.judge import Bounds, Judge, Sent
from auras_ros.soak.said import Status
from auras_ros.soak.scene import Scene
from auras_ros.soak.witness import Made

MS = 1_000_000
BOUNDS = Bounds.of([(0.0, 1.0, None)], 100.0, 1600.0)
TASKS = ("agent: frames", "agent: observation", "agent: prompt", "agent: qos", "actuator: qos")
NAMES = {"bad_data", "too_large", "bad_encoding", "bad_step", "bad_size", "future"}


class Acted:
    """Agent and actuator in one. Each turn is a millisecond or so: a command, and a chunk of what is seen just now, as
    long as nothing stands in the way."""

    def __init__(self, breaks: set[str]) -> None:
        self.breaks, self.judge = breaks, Judge(BOUNDS)
        self.tick, self.armed, self.on = 0, True, {"agent": True, "actuator": True}
        self.bad, self.over = 0, False  # bad messages heard; whether they have ended
        self.conflict: list[str] = []
        self.chunks: deque[Made] = deque(maxlen=100)
        self.lines: list[tuple[int, str, str]] = []
        self.counts: dict[tuple[str, str], int] = {}
        self.messages = dict.fromkeys(TASKS, "")
        self.prompt, self.clock_s = "", 1000
        self.back_ns = 0  # when a killed actuator is started again
        self.skipped, self.stalls, self.presses = 0, 0, 0
        self.long_stops = 0  # of the actuator: so many are longer than its lease
        self.state: dict[str, Any] = {}
        self.timers: list[Any] = []
        self.stopped, self.unreadable, self.reason = False, 0, ""
        self.follows = "a"  # the agent's life that the actuator follows
        self.beat = {"session": "a", "lifecycle": "active", "state": "running"}

    # -- the executor's -----------------------------------------------------------------------------------

    def spin_once(self, timeout_sec: float) -> None:
        time.sleep(0.001)
        for timer in self.timers:
            timer()
        now_ns = time.monotonic_ns()
        if not self.on["actuator"] and 0 < self.back_ns < now_ns:
            self.on["actuator"], self.tick, self.back_ns = True, 0, 0
        lost = not self.on["actuator"]
        self.beat["state"] = "actuator lost" if lost and "silent agent" not in self.breaks else "running"
        stuck = ("images" in self.breaks and self.bad) or ("after" in self.breaks and self.over)
        if self.on["agent"] and not lost and not stuck:
            on_its_way_ns = 500 * MS if "queue" in self.breaks else 0
            self.chunks.append(Made(now_ns, now_ns, now_ns + on_its_way_ns, self.prompt))
        if lost and "ghosts" in self.breaks:
            self._command(now_ns, "holding")
        if not lost:
            self.tick += 1
            state = "stopped" if self.stopped else "armed" if self.armed else "disarmed"
            self.state = {"state": state, "mono_ns": now_ns, "tick": self.tick,
                          "session": self.follows, "conflict": self.conflict, "skipped_ticks": 0,
                          "reason": self.reason, "unreadable": self.unreadable, "stalls": self.stalls}  # fmt: skip
            if self.stopped:
                self._command(now_ns, "stopped")
            elif self.armed:
                self._command(now_ns, "armed" if self.on["agent"] and "drive" not in self.breaks else "holding")

    def _command(self, now_ns: int, state: str) -> None:
        self.judge.action(Sent(now_ns, state, self.tick, None, np.array([0.5])))

    # -- the witness's ------------------------------------------------------------------------------------

    @property
    def driving(self) -> bool:
        return bool(self.judge.sent) and self.judge.sent[-1].state == "armed"

    @property
    def published_ns(self) -> list[int]:
        return [each.published_ns for each in self.chunks]

    @property
    def said(self) -> Any:
        return self

    def line_ns(self, node: str, words: str, since_ns: int) -> int | None:
        return next((at for at, who, text in self.lines if at > since_ns and who == node and words in text), None)

    def status(self, task: str) -> Status:
        values = {key: str(count) for (name, key), count in self.counts.items() if name == task}
        return Status(time.monotonic_ns(), self.messages[task], values | {"p50_ms": "20.0"})

    def count(self, task: str, key: str) -> int:
        return self.counts.get((task, key), 0)

    def press(self, pressed: bool) -> None:
        """Latched, also while its process is stopped: the word waits."""
        self.presses += pressed
        self.stopped = self.stopped or (pressed and "press" not in self.breaks)

    def call(self, service: str) -> Any:
        self.armed = service == "actuator/arm"
        self.stopped = self.stopped and service != "actuator/disarm"
        self.follows = self.beat["session"] if self.armed else self.follows
        return _answer(success=True)

    def simulated_time(self, on: bool) -> Any:
        self.disarm()
        return _answer(results=[SimpleNamespace(successful="clock" not in self.breaks)])

    def disarm(self) -> None:
        if self.armed:
            self.armed = False
            self.tick += 1
            self._command(time.monotonic_ns(), "disarmed")

    def create_timer(self, period_s: float, callback: Any, clock: Any = None) -> Any:
        self.timers.append(callback)
        return callback

    def destroy_timer(self, timer: Any) -> None:
        self.timers.remove(timer)

    def create_publisher(self, kind: Any, topic: str, profile: Any) -> Any:
        self._mismatch(topic)
        if topic == "action" or "conflict" in self.breaks:
            self.conflict = ["/soak on action"]
        return SimpleNamespace(publish=lambda message: self.hear(topic, message), get_subscription_count=lambda: 3)

    def destroy_publisher(self, publisher: Any) -> None:
        self.bad, self.over = 0, True
        if "conflict" not in self.breaks:
            self.conflict = []

    def create_subscription(self, kind: Any, topic: str, callback: Any, profile: Any) -> None:
        self._mismatch(topic)

    def destroy_subscription(self, subscription: None) -> None:
        return None

    def get_topic_names_and_types(self) -> list[tuple[str, list[str]]]:
        return [("/prompt", ["std_msgs/msg/String"])]

    def get_subscriptions_info_by_topic(self, topic: str) -> list[Any]:
        return [SimpleNamespace(node_name=name) for name in ("agent", "actuator", "soak")]

    # -- what is done to it -------------------------------------------------------------------------------

    def send_signal(self, name: str, number: int) -> None:
        stops = {9: False, 19: False, 18: True}
        if number == 19 and name == "agent":
            self._count("agent: frames", "missed_ticks")
        if number == 18 and self.long_stops:
            self.long_stops, self.stalls = self.long_stops - 1, self.stalls + 1
        if number == 9:
            self.armed = False
            self.back_ns = 0 if "respawn" in self.breaks else time.monotonic_ns() + 30 * MS
        self.on[name] = stops[number]

    def hear(self, topic: str, message: Any) -> None:
        self.bad += 1
        if isinstance(message, bytes):
            for node in ("agent",) if "name" in self.breaks else ("agent", "actuator"):
                self._say(node, f"ignored a payload of 16 bytes on {topic}: (1 so far)")
        elif topic == "joint_states":
            if "gripper" in message.name:
                self.unreadable += "count" not in self.breaks
                self._say("actuator", "refused: joint_states: 'gripper' is named twice")
            elif "place" not in self.breaks and len(message.position) and np.isfinite(message.position).all():
                self.disarm()
        elif topic == "prompt":
            self._count("agent: prompt", "refused")
            self._say("agent", "refused: prompt: longer than 4096 bytes")
            self.prompt = "taken" if "prompt" in self.breaks else self.prompt
        elif topic.startswith("camera"):
            for name in NAMES:  # whichever it was
                self._count("agent: observation", f"fault {name}")
                for field in ("", "encoding", "step", "height x width", "width"):
                    self._say("agent", f"{field}: {name}: what is wrong with it")
        elif topic == "/clock":
            leap_s, self.clock_s = message.clock.sec - self.clock_s, message.clock.sec
            if leap_s < 0 or (leap_s > 1000 and "forward" in self.breaks):
                self.disarm()

    def _say(self, node: str, text: str) -> None:
        self.lines.append((time.monotonic_ns(), node, text))

    def _count(self, task: str, key: str) -> None:
        if "count" not in self.breaks:
            self.counts[task, key] = self.counts.get((task, key), 0) + 1

    def _mismatch(self, topic: str) -> None:
        """Each is told of every policy: which it was is the nodes' to find out."""
        label = topic.replace("agent/", "~/")
        for node in ("agent", "actuator"):
            for policy in ("RELIABILITY", "DURABILITY", "DEADLINE", "LIVELINESS"):
                self.counts[f"{node}: qos", f"{label} incompatible {policy}"] = 1
                if "words" not in self.breaks:
                    self.messages[f"{node}: qos"] += f"; {label}: incompatible {policy}"


class Processes:
    """A supervisor whose processes are acted, too."""

    def __init__(self, acted: Acted) -> None:
        self._acted = acted

    @property
    def processes(self) -> dict[str, Any]:
        def process(name: str) -> Any:
            return SimpleNamespace(pid=1, send_signal=lambda number: self._acted.send_signal(name, number))

        return {name: process(name) for name in ("agent", "actuator")}

    def poll(self) -> list[str]:
        if "settings" in self._acted.breaks:
            raise SupervisorError("agent cannot start with these settings")
        return []


def _answer(**fields: Any) -> Any:
    return SimpleNamespace(done=lambda: True, result=lambda: SimpleNamespace(**fields))


def stage(*breaks: str) -> Scene:
    """A scene that is driven."""
    acted: Any = Acted(set(breaks))
    processes: Any = Processes(acted)
    scene = Scene(acted, acted, processes, random.Random(0), lambda: False)
    scene.pause(0.05)
    return scene
