"""A loop that is acted: a real harness and judge, and around them a witness, processes and an executor that do as
they are told. Whatever a fault does to it, it keeps its promises, but for those that are named in `breaks`."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from auras_ros.live.chunk_times import ChunkTimes
from auras_ros.live.soak.harness import SoakHarness
from auras_ros.live.soak.judge import CommandLimits, Judge, ReceivedAction
from auras_ros.live.soak.log_listener import DiagnosticEntry
from auras_ros.nodes.actuator.other_publishers import DISCOVERY_NS
from auras_ros.nodes.common.supervisor import SupervisorError

MS = 1_000_000
LEASE_NS = 300 * MS
BOUNDS = CommandLimits.of([(0.0, 1.0, None)] * 2, 100.0, 1600.0)
LIVES = ("agent", "actuator", "sim_bridge")
TASKS = ("agent: frames", "agent: observation", "agent: prompt", "agent: qos", "actuator: qos")
PLACE, ELSEWHERE, NEAR_THEM = 0.5, 0.0, 0.3  # of the robot, of the next one, and where that one is dragged to
NAMES = {"bad_data", "too_large", "bad_encoding", "bad_step", "bad_size", "future"}


class Acted:
    """Agent and actuator in one. Each turn is a millisecond or so: a command, and a chunk of what is seen just now, as
    long as nothing stands in the way."""

    def __init__(self, breaks: set[str]) -> None:
        self.breaks, self.judge = breaks, Judge(BOUNDS)
        self.tick, self.armed, self.on = 0, True, dict.fromkeys(LIVES, True)
        self.bad, self.over = 0, False  # bad messages heard; whether they have ended
        self.conflict: list[str] = []
        self.chunks: deque[ChunkTimes] = deque(maxlen=100)
        self.lines: list[tuple[int, str, str]] = []
        self.counts: dict[tuple[str, str], int] = {}
        self.messages = dict.fromkeys(TASKS, "")
        self.prompt, self.clock_s = "", 1000
        self.noisy, self.armed_ns = "/prompt", 0  # what is heard beside the faults' own topics
        self.back_ns = 0  # when a killed process is started again
        self.frozen_ns = 0  # since when the actuator does not run
        self.skipped, self.stalls, self.presses = 0, 0, 0
        self.long_stops = 0  # of the actuator: so many are longer than its lease
        self.state: dict[str, Any] = {}
        self.timers: list[Any] = []
        self.stopped, self.unreadable, self.reason = False, 0, ""
        self.down: set[int] = set()  # buttons that are pressed; 0: the witness's
        self.present = {0}
        self.parts: set[str] = set()  # joints that drivers of their own tell of
        self.rivals = self.ours = 0  # chunks of another session; publishers made here
        self.place, self.told = PLACE, list[Any]()  # where the robot is, and who listens to that
        self.arms_itself = False  # by a parameter
        self.follows = "a"  # the agent's life that the actuator follows
        self.heartbeat = {"session": "a", "lifecycle": "active", "state": "running"}

    # -- the executor's -----------------------------------------------------------------------------------

    def spin_once(self, at_most_s: float) -> bool:
        time.sleep(0.001)
        for timer in list(self.timers):
            timer()
        now_ns = time.monotonic_ns()
        if not self.on["actuator"] and 0 < self.back_ns < now_ns:
            self.on["actuator"], self.tick, self.back_ns = True, 0, 0
            self.armed = self.arms_itself and "arms" in self.breaks
        if not self.on["sim_bridge"] and 0 < self.back_ns < now_ns:
            self.on["sim_bridge"], self.back_ns, self.place = True, 0, ELSEWHERE
            self.armed = "place" in self.breaks
        elif self.place == ELSEWHERE and self.tick % 10 == 0 and "drag" in self.breaks:
            self.place = NEAR_THEM
        if not self.on["agent"] and 0 < self.back_ns < now_ns:
            self.on["agent"], self.back_ns = True, 0
            self.heartbeat["session"] += "b"
            self.follows = self.heartbeat["session"] if "unasked" in self.breaks else self.follows
        if self.on["sim_bridge"]:
            for told in self.told:
                told(SimpleNamespace(position=[self.place] * 2))
        lost = not self.on["actuator"]
        self.heartbeat["state"] = "actuator lost" if lost and "silent agent" not in self.breaks else "running"
        stuck = ("images" in self.breaks and self.bad) or ("after" in self.breaks and self.over)
        in_parts = len(self.parts) > 1 and "parts" not in self.breaks
        sees = self.on["agent"] and (self.on["sim_bridge"] or in_parts)
        if sees and not lost and not stuck:
            on_its_way_ns = 500 * MS if "queue" in self.breaks else 0
            times_ns = (*[now_ns] * 4, now_ns + on_its_way_ns)
            self.chunks.append(ChunkTimes(1, *times_ns, prompt=self.prompt))
        if lost and "ghosts" in self.breaks:
            self._command(now_ns, "holding")
        if not lost:
            self.tick += 1
            state = "stopped" if self.stopped else "armed" if self.armed else "disarmed"
            self.state = {"state": state, "mono_ns": now_ns, "tick": self.tick,
                          "session": self.follows, "conflict": self.conflict, "skipped_ticks": 0,
                          "reason": self.reason, "unreadable": self.unreadable, "stalls": self.stalls,
                          "emergency_stop": bool(self.down),
                          "counters": {"refused": {"other_session": self.rivals}}}  # fmt: skip
            if self.stopped:
                self._command(now_ns, "stopped")
            elif self.armed:
                drives = sees and self.follows == self.heartbeat["session"] and "drive" not in self.breaks
                self._command(now_ns, "armed" if drives or "blind agent" in self.breaks else "holding")
        return True

    def _command(self, now_ns: int, state: str, request: int = 1) -> None:
        place = PLACE + 0.01 * (self.tick % 2) * (state == "stopped" and "still" in self.breaks)
        self.judge.action(ReceivedAction(now_ns, state, self.tick, None, np.array([place, place]), request))

    # -- the witness's ------------------------------------------------------------------------------------

    @property
    def driving(self) -> bool:
        return bool(self.judge.sent) and self.judge.sent[-1].state == "armed"

    @property
    def logs(self) -> Any:
        return self

    def line_ns(self, node: str, words: str, since_ns: int) -> int | None:
        return next((at for at, who, text in self.lines if at > since_ns and who == node and words in text), None)

    def status(self, task: str) -> DiagnosticEntry:
        values = {key: str(count) for (name, key), count in self.counts.items() if name == task}
        return DiagnosticEntry(time.monotonic_ns(), self.messages[task], values | {"p50_ms": "20.0"})

    def count(self, task: str, key: str) -> int:
        return self.counts.get((task, key), 0)

    def press(self, pressed: bool, who: int = 0) -> None:
        """Latched, also while its process is stopped: the word waits."""
        self.presses += pressed
        self.stopped = self.stopped or (pressed and "press" not in self.breaks)
        if pressed:
            self.down.add(who)
        elif "release" in self.breaks:  # one takes back what all have said
            self.down.clear()
        elif "latch" in self.breaks:
            self.stopped, self.down = False, set()
        elif "stays" not in self.breaks:
            self.down.discard(who)

    def call(self, service: str) -> Any:
        conflict = self.conflict and "beside others" not in self.breaks
        if service == "actuator/arm" and (self.down or conflict):
            return _answer(success=False)
        if service == "actuator/release_stop":
            self.down &= set() if "freely" in self.breaks else self.present
            return _answer(success=not self.down)
        self.stopped = service == "actuator/stop"
        self.armed, self.armed_ns = service == "actuator/arm", time.monotonic_ns()
        self.follows = self.heartbeat["session"] if self.armed else self.follows
        return _answer(success=True)

    def change(self, label: str) -> Any:
        if label == "deactivate" and "deactivated" not in self.breaks:
            self.disarm()
        return _answer(success=True)

    def set_parameter(self, name: str, value: Any) -> Any:
        if name != "use_sim_time":
            return _answer(results=[SimpleNamespace(successful="taken" in self.breaks)])
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
        if topic in ("action", "/action") or "conflict" in self.breaks:
            self.conflict = ["/soak on action"]
            if time.monotonic_ns() - self.armed_ns < DISCOVERY_NS:
                self.disarm()
        self.ours += 1
        who = self.ours
        self.present.add(who)

        def publish(message: Any) -> None:
            if topic == "emergency_stop":
                self.press(message.data, who)
            else:
                self.hear(topic, message)

        return SimpleNamespace(publish=publish, get_subscription_count=lambda: 3, who=who)

    def destroy_publisher(self, publisher: Any) -> None:
        self.bad, self.over = 0, True
        self.present.discard(publisher.who)
        if "gone" in self.breaks:
            self.down.discard(publisher.who)
        if "conflict" not in self.breaks:
            self.conflict = []

    def create_subscription(self, kind: Any, topic: str, callback: Any, profile: Any) -> Any:
        self._mismatch(topic)
        if topic == "joint_states":
            self.told.append(callback)
        elif topic.startswith("camera"):
            callback(SimpleNamespace())
        return callback

    def destroy_subscription(self, subscription: Any) -> None:
        if subscription in self.told:
            self.told.remove(subscription)

    def get_topic_names_and_types(self) -> list[tuple[str, list[str]]]:
        return [(self.noisy, ["std_msgs/msg/String"])]

    def get_subscriptions_info_by_topic(self, topic: str) -> list[Any]:
        return [SimpleNamespace(node_name=name) for name in ("agent", "actuator", "soak")]

    # -- what is done to it -------------------------------------------------------------------------------

    def send_signal(self, name: str, number: int) -> None:
        stops = {9: False, 19: False, 18: True}
        if number == 19 and name == "agent":
            self._count("agent: frames", "missed_ticks")
        if number == 18 and self.long_stops:
            self.long_stops, self.stalls = self.long_stops - 1, self.stalls + 1
        if name == "actuator" and number == 18 and time.monotonic_ns() - self.frozen_ns > LEASE_NS:
            self.armed = self.armed and "stall" in self.breaks
        self.frozen_ns = time.monotonic_ns()
        if number == 9:
            self.armed = self.armed and name != "actuator"
            self.stopped = self.stopped and name != "actuator"
            self.back_ns = 0 if "respawn" in self.breaks else time.monotonic_ns() + 30 * MS
        self.on[name] = stops[number]

    def hear(self, topic: str, message: Any) -> None:
        self.bad += 1
        if "misses" in self.breaks and self.bad == 1:
            return
        if isinstance(message, bytes):
            for node in ("agent",) if "name" in self.breaks else ("agent", "actuator"):
                self._say(node, f"ignored a payload of 16 bytes on {topic}: (1 so far)")
        elif topic == "agent/chunk":
            self.rivals += "count" not in self.breaks
            if "follow" in self.breaks:
                self.tick += 1
                self._command(time.monotonic_ns(), "armed", json.loads(message.layout.dim[2].label)["request"])
        elif topic == "joint_states":
            self.parts |= set(message.name) if len(message.name) == 1 else set()
            if message.header.stamp.sec:
                for name in ("future", "backwards"):
                    self._count("agent: observation", f"fault {name}")
                    self._say("agent", f"state: {name}: what is wrong with it")
            elif "gripper" in message.name:
                self.unreadable += "count" not in self.breaks
                self._say("actuator", "refused: joint_states: 'gripper' is named twice")
            elif (
                self.on["sim_bridge"]
                and "place" not in self.breaks
                and len(message.position)
                and np.isfinite(message.position).all()
            ):
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

        return {name: process(name) for name in LIVES}

    def override(self, node: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._acted.arms_itself = bool(parameters.get("arm_on_start"))
        return {}

    def poll(self) -> list[str]:
        if "settings" in self._acted.breaks:
            raise SupervisorError("agent cannot start with these settings")
        return []


class Other:
    """Another actuator: what it and those beside it say, all hear."""

    all: ClassVar[list[Other]] = []

    def __init__(self, harness: SoakHarness, name: str, log: Path, parameters: dict[str, Any]) -> None:
        acted: Any = harness.witness
        self._acted, self._given = acted, parameters
        self.sent: list[ReceivedAction] = []
        self.state: dict[str, Any] = {}
        self.speaking: set[str] = set()
        self._armed, self._told, self._runs, self._tick = False, False, True, 0
        self.process = SimpleNamespace(send_signal=self._signal)
        Other.all.append(self)
        acted.timers.append(self._turn)

    def _signal(self, number: int) -> None:
        self._armed = self._armed and "two" in self._acted.breaks
        self._runs = number == signal.SIGCONT

    def speak(self) -> None:
        self.speaking = {"agent_x", "agent_y"}
        if self._given.get("arm_on_start") and "itself" in self._acted.breaks:
            self._armed = True

    def _turn(self) -> None:
        if not self._runs or "start" in self._acted.breaks:
            return
        now_ns = time.monotonic_ns()
        self._tick += 1
        self.state = {"state": "armed" if self._armed else "disarmed", "mono_ns": now_ns}
        if self._armed:
            state = "armed" if len(self.speaking) == 2 or "deaf" in self._acted.breaks else "holding"
            for each in Other.all:
                each.sent.append(ReceivedAction(now_ns, state, self._tick, None, np.array([PLACE, PLACE])))

    def call(self, word: str) -> Any:
        self._armed = word == "arm" and (len(self.speaking) == 2 or "blind" in self._acted.breaks)
        return _answer(success=self._armed or word != "arm")

    def close(self) -> None:
        self._acted.timers.remove(self._turn)
        Other.all.remove(self)


def _answer(**fields: Any) -> Any:
    return SimpleNamespace(done=lambda: True, result=lambda: SimpleNamespace(**fields))


def stage(*breaks: str) -> SoakHarness:
    """A harness that is driven."""
    acted: Any = Acted(set(breaks))
    processes: Any = Processes(acted)
    harness = SoakHarness(acted, acted, processes, random.Random(0), lambda: False)
    harness.pause(0.05)
    return harness
