"""A life-cycle node whose callbacks answer what its parameter `answers` says, by their names (JSON)."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from auras_ros import ros
from auras_ros.ros.msg import String

Return = ros.TransitionCallbackReturn


class Managed(ros.LifecycleNode):
    def __init__(self) -> None:
        super().__init__("managed", namespace="/test")
        self.declare_parameter("answers", "{}")
        self.always = self.create_publisher(String, "managed/always", 10)
        self.create_timer(0.01, self.beat)
        self.count = 0

    def beat(self) -> None:
        self.count += 1
        self.always.publish(String(data=str(self.count)))

    def answer(self, name: str, state: Any) -> Any:
        what = json.loads(self.get_parameter("answers").value).get(name, "SUCCESS")
        if what == "raise":
            raise RuntimeError(f"{name} was told to raise")
        if what == "nonsense":
            return None
        return Return[what] if what != "SUCCESS" else getattr(super(), name)(state)

    def on_configure(self, state: Any) -> Any:
        return self.answer("on_configure", state)

    def on_cleanup(self, state: Any) -> Any:
        return self.answer("on_cleanup", state)

    def on_activate(self, state: Any) -> Any:
        return self.answer("on_activate", state)

    def on_deactivate(self, state: Any) -> Any:
        return self.answer("on_deactivate", state)

    def on_shutdown(self, state: Any) -> Any:
        return self.answer("on_shutdown", state)

    def on_error(self, state: Any) -> Any:
        return self.answer("on_error", state)


def main() -> None:
    ros.init(args=[])
    node = Managed()
    print("ready", flush=True)
    with contextlib.suppress(KeyboardInterrupt, ros.ExternalShutdownException):
        ros.spin(node)
    ros.try_shutdown()


main()
