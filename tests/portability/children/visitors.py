"""A process whose nodes come and go; tests/portability/test_departed.py starts it.

For each line on its standard input it makes a node with a publisher, a subscription and a service, prints "here", waits
for another line, destroys the node and prints "gone". It ends with its input.
"""

from __future__ import annotations

import sys

from auras_ros import ros
from auras_ros.ros.msg import String
from auras_ros.ros.srv import Trigger


def main() -> None:
    ros.init(args=[])
    for _ in sys.stdin:
        node = ros.Node("visitor")
        node.create_publisher(String, "visited", 10)
        node.create_subscription(String, "visited", lambda message: None, 10)
        node.create_service(Trigger, "visit", lambda request, response: response)
        print("here", flush=True)
        sys.stdin.readline()
        node.destroy_node()
        print("gone", flush=True)


if __name__ == "__main__":
    main()
