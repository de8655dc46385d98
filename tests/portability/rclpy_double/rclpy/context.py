"""rclpy.context. Of the ROS arguments it reads `-p` and `-r`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml
from rclpy_recording import changed, strict

from .names import Remap


@strict
class Context:
    def __init__(self) -> None:
        self._ok, self._parameters, self._at_end = False, dict[str, Any](), list[Callable[[], None]]()
        self._remaps: list[Remap] = []

    def init(
        self, args: list[str] | None = None, *, initialize_logging: bool = True, domain_id: int | None = None
    ) -> None:
        if self._ok:
            raise RuntimeError("Context.init() must only be called once")
        self._ok, self._parameters = True, {}
        words, ours = args or [], False
        for word, after in zip(words, [*words, ""][1:], strict=True):
            ours = word == "--ros-args" or (ours and word != "--")
            if ours and word in ("-p", "--param"):
                name, _, value = after.partition(":=")
                self._parameters[name] = yaml.safe_load(value)
            if ours and word in ("-r", "--remap"):
                self._remaps.append(Remap.parse(after))

    def ok(self) -> bool:
        return self._ok

    def shutdown(self) -> None:
        if not self._ok:
            raise RuntimeError("Context must be initialized before it can be shutdown")
        self.try_shutdown()

    def try_shutdown(self) -> None:
        if self._ok:
            self._ok = False
            for callback in self._at_end:
                callback()
            with changed:
                changed.notify_all()

    def on_shutdown(self, callback: Callable[[], None]) -> None:
        self._at_end.append(callback)
