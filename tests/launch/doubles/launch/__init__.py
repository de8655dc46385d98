"""Does what ROS 2's `launch` does with a description, as far as ours goes; that one is in no package index.

Names, keywords and the order of events are those of the public source of ros2/launch and ros2/launch_ros (Jazzy). A
keyword or a type that these would refuse is refused here too. Nothing starts: a test says what a process does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class LaunchContext:
    """The arguments, the handlers, the timers and the graph, all in the test's hands."""

    def __init__(self, **configurations: str) -> None:
        self.launch_configurations = configurations
        self.handlers: list[Any] = []
        self.events: list[Any] = []
        self.timers: list[tuple[float, list[Any]]] = []
        self.started: list[Any] = []
        self.logged: list[str] = []
        self.services: dict[str, Callable[[Any], Any]] = {}  # name: what answers a request
        self.open_calls: list[Any] = []  # futures that no service has answered
        self.ros_node: Any = None  # or a real node, which then calls real services
        self.now_s = 0.0
        self.is_shutdown = False

    def visit(self, entities: list[Any] | None) -> None:
        """Execute actions in order, each with what it returns."""
        for each in entities or []:
            self.visit(each.execute(self))

    def register_event_handler(self, handler: Any) -> None:
        self.handlers.insert(0, handler)

    def emit_event_sync(self, event: Any) -> None:
        self.events.append(event)
        for handler in [each for each in self.handlers if each.matches(event)]:
            self.visit(handler.handle(event, self))

    def advance(self, seconds: float) -> None:
        """Let time pass: what is due is executed in its order."""
        end_s = self.now_s + seconds
        while due := [each for each in self.timers if each[0] <= end_s]:
            first = min(due, key=lambda each: each[0])
            self.timers.remove(first)
            self.now_s = first[0]
            self.visit(first[1])
        self.now_s = end_s


def checked(owner: str, given: dict[str, Any], known: dict[str, Callable[[Any], bool]]) -> dict[str, Any]:
    """`given` if every keyword is known and of its type, else TypeError."""
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"{owner}: unexpected keyword argument {name!r}")
        if not known[name](value):
            raise TypeError(f"{owner}: {name}={value!r} is not of its type")
    return given
