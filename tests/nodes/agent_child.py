"""An agent as a process of its own, with its robot, an actuator's sign of life, and all that it says written down."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from auras_ros.ros.msg import DiagnosticArray, Transition
from auras_ros.ros.srv import ChangeState
from tests.nodes.stand_ins import Robot
from tests.nodes.wire import RELIABLE, Child, Children, Watch, own_domain

QUIET_BEATS = 25


class Running:
    """The process and what is heard of it. `diagnostics`: task -> (level, message, values), the newest each."""

    def __init__(self, child: Child, watch: Watch, robot: Robot) -> None:
        self.child, self.watch, self.robot = child, watch, robot
        self.diagnostics: dict[str, tuple[int, str, dict[str, str]]] = {}
        watch.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, RELIABLE)
        self._change_state = watch.node.create_client(ChangeState, "agent/change_state")

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            node, _, task = status.name.partition(": ")
            if node == "agent":
                values = {pair.key: pair.value for pair in status.values}
                self.diagnostics[task] = (ord(status.level), status.message, values)

    def transition(self, label: str) -> bool:
        """Ask for a transition; whether it succeeded."""
        self.watch.until(self._change_state.service_is_ready, "the change_state service")
        future = self._change_state.call_async(ChangeState.Request(transition=Transition(label=label)))
        self.watch.until(future.done, f"an answer to {label}")
        return bool(future.result().success)

    def reaches(self, lifecycle: str) -> dict[str, Any]:
        """The first heartbeat from now on that says this state."""
        beats, count = self.watch.beats, len(self.watch.beats)
        self.watch.until(lambda: any(b["lifecycle"] == lifecycle for b in beats[count:]), f"lifecycle {lifecycle}")
        return next(beat for beat in beats[count:] if beat["lifecycle"] == lifecycle)

    def diagnosed(self, task: str, level: int, words: str) -> dict[str, str]:
        """Until the task says so (a regular expression); returns its values."""

        def said() -> bool:
            known = self.diagnostics.get(task)
            return known is not None and known[0] == level and bool(re.search(words, known[1]))

        self.watch.until(said, f"diagnostics {task}: level {level}, {words!r}; heard {self.diagnostics.get(task)}")
        return self.diagnostics[task][2]

    def chunk(self, what: str) -> dict[str, Any]:
        """The first chunk of an observation that begins now."""
        now_ns = time.time_ns()
        chunks = self.watch.chunks
        self.watch.until(lambda: chunks and chunks[-1]["origin_stamp_ns"] > now_ns, what)
        return next(chunk for chunk in chunks if chunk["origin_stamp_ns"] > now_ns)

    def says(self, state: str) -> None:
        """Until the heartbeat says that state and no frame has ended for half a second (one may be under way)."""
        count = len(self.watch.beats)

        def quiet() -> bool:
            beats = self.watch.beats[count:][-QUIET_BEATS:]
            said = {(beat["state"], beat["frame"]) for beat in beats}
            return len(beats) == QUIET_BEATS and said == {(state, beats[-1]["frame"])}

        self.watch.until(quiet, f"'{state}' and no frame")

    def logs(self, *words: str) -> None:
        self.watch.until(lambda: all(word in self.child.output for word in words), f"{words} in the log")


def published_ns(agent: Running) -> list[int]:
    """When the agent published each chunk, by its own words."""
    values = [{pair.key: pair.value for pair in array.status[0].values} for array in agent.watch.provenance]
    return [int(fields["published_ns"]) for fields in values]


@contextmanager
def running(checkpoint: str, folder: Path, *, code: str = "", **parameters: Any) -> Iterator[Running]:
    with own_domain():
        watch, children = Watch(actuator=""), Children(folder)
        robot = Robot(watch.node)
        try:
            robot.play_actuator()
            watch.hear_agent()
            given = {"checkpoint": checkpoint, "sync_tolerance_ms": 100.0, **parameters}
            yield Running(children.node("agent", given, code=code), watch, robot)
        finally:
            children.reap()
            robot.close()
            watch.close()
