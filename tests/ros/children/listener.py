"""Says what it hears on a topic, a line each; says what it is told to, a line of standard input each."""

from __future__ import annotations

import sys
import threading

from auras_ros import ros
from auras_ros.ros.msg import String


def main(name: str, topic: str) -> None:
    ros.init(args=[])
    node = ros.Node(name)
    publisher = node.create_publisher(String, topic, 10)
    node.create_subscription(String, topic, lambda message: print(message.data, flush=True), 10)

    def say() -> None:
        for line in sys.stdin:
            publisher.publish(String(data=line.strip()))
        ros.try_shutdown()

    threading.Thread(target=say, daemon=True).start()
    print("ready", flush=True)
    try:
        ros.spin(node)
    except ros.ExternalShutdownException:
        return


main(*sys.argv[1:])
