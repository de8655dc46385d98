"""rclpy.executors. Work comes from the test, through `deliver`, and from timers that are due."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from rclpy_recording import changed, refuse, strict

from .context import Context
from .node import Node
from .task import Future
from .utilities import get_default_context

work: deque[tuple[Node, Callable[[], None]]] = deque()  # what the nodes' entities have received


class ShutdownException(Exception):  # noqa: N818
    pass


class ExternalShutdownException(Exception):  # noqa: N818
    pass


class TimeoutException(Exception):  # noqa: N818
    pass


@strict
class SingleThreadedExecutor:
    def __init__(self, *, context: Context | None = None) -> None:
        self.__context, self.__nodes = context or get_default_context(), list[Node]()
        self.__is_shutdown = False

    @property
    def context(self) -> Context:
        return self.__context

    def add_node(self, node: Node) -> bool:
        if self.__is_shutdown:
            raise ShutdownException
        new = node not in self.__nodes
        if new:
            self.__nodes.append(node)
        return new

    def remove_node(self, node: Node) -> None:
        if node in self.__nodes:
            self.__nodes.remove(node)

    def get_nodes(self) -> list[Node]:
        return list(self.__nodes)

    def wake(self) -> None:
        with changed:
            changed.notify_all()

    def shutdown(self, timeout_sec: float | None = None) -> bool:
        self.__is_shutdown = True
        self.__nodes.clear()
        return True

    def spin(self) -> None:
        while self.__context.ok() and not self.__is_shutdown:
            self.spin_once()

    def spin_once(self, timeout_sec: float | None = None) -> None:
        end = time.monotonic() + (timeout_sec if timeout_sec is not None and timeout_sec >= 0 else float("inf"))
        while True:
            if self.__is_shutdown:
                raise ShutdownException
            if not self.__context.ok():
                raise ExternalShutdownException
            ready = self.__ready()
            if ready is not None:
                ready()
                return
            with changed:
                if time.monotonic() >= end:
                    return
                changed.wait(min(0.005, max(0.0, end - time.monotonic())))

    def spin_until_future_complete(self, future: Future, timeout_sec: float | None = None) -> None:
        end = time.monotonic() + (timeout_sec if timeout_sec is not None and timeout_sec >= 0 else float("inf"))
        while not future.done() and time.monotonic() < end:
            self.spin_once(timeout_sec=0.01)

    def create_task(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
        refuse("rclpy.executors.SingleThreadedExecutor.create_task: this double runs no tasks")

    def __ready(self) -> Callable[[], None] | None:
        with changed:
            for item in list(work):
                if item[0] in self.__nodes:
                    work.remove(item)
                    return item[1]
        for node in self.__nodes:
            for timer in node.timers:
                if timer.is_ready():
                    timer.reset()
                    return timer.callback
        return None
