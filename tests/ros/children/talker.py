"""A node that logs at once, before anybody listens, and again whenever it is told to."""

from __future__ import annotations

import contextlib

from auras_ros import ros
from auras_ros.ros.msg import String


def main() -> None:
    ros.init(args=[])
    node = ros.Node("talker", namespace="/test")
    node.get_logger().warning("said before anybody listened")
    node.get_logger().debug("below the level")
    node.create_subscription(String, "say", lambda message: node.get_logger().error(message.data), 10)
    print("ready", flush=True)
    with contextlib.suppress(KeyboardInterrupt, ros.ExternalShutdownException):
        ros.spin(node)
    ros.try_shutdown()


main()
