"""A managed node with a subscription of every kind that the nodes use, services and simulated time, to be attacked.

It tells on `counts` what it received and ignored, by topic and service, whenever `report` is called.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from auras_ros import ros
from auras_ros.ros import msg
from auras_ros.ros.srv import SetBool, Trigger

KINDS = ("Bool", "CompressedImage", "DiagnosticArray", "Float64MultiArray", "Image", "JointState", "JointTrajectory",
         "ParameterEvent", "String", "TwistStamped")  # fmt: skip


class Victim(ros.LifecycleNode):
    def __init__(self) -> None:
        super().__init__("victim", namespace="/test")
        self.declare_parameter("text", "")
        self.received: dict[str, int] = {}
        for kind in KINDS:
            self.create_subscription(getattr(msg, kind), f"victim/{kind}", self.counter(kind), 1000)
        self.create_service(SetBool, "~/set", self.set_bool)
        self.create_service(Trigger, "~/report", self.report)

    def counter(self, kind: str) -> Any:
        def count(_: Any) -> None:
            self.received[kind] = self.received.get(kind, 0) + 1

        return count

    def set_bool(self, request: Any, response: Any) -> Any:
        response.success = request.data
        return response

    def report(self, request: Any, response: Any) -> Any:
        ignored: dict[str, int] = {s.topic_name: s.ignored_count for s in self.subscriptions}
        ignored |= {s.srv_name: s.ignored_count for s in self.services}
        ignored["clock"] = self._time_source.ignored_count
        now_ns = self.get_clock().now().nanoseconds
        response.message = json.dumps({"received": self.received, "ignored": ignored, "now_ns": now_ns})
        return response


def main() -> None:
    ros.init(args=["victim", "--ros-args", "-p", "use_sim_time:=true"])
    node = Victim()
    print("ready", flush=True)
    with contextlib.suppress(KeyboardInterrupt, ros.ExternalShutdownException):
        ros.spin(node)
    ros.try_shutdown()


main()
