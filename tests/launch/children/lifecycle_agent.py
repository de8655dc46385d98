"""A lifecycle node in the agent's place: it takes every transition, and is there at once.

DEAF_TO: how many requests for a transition it answers and does not follow, as if they were lost.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from auras_ros import ros
from auras_ros.ros.srv import ChangeState


def make_deaf(node: Any, requests: int) -> None:
    remaining = [None] * requests

    def deafened(callback: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def answer(request: Any, response: Any) -> Any:
            if remaining:
                remaining.pop()
                response.success = False
                return response
            return callback(request, response)

        return answer

    for service in node.services:
        if service.srv_type is ChangeState:
            service.callback = deafened(service.callback)


if __name__ == "__main__":
    ros.init(args=sys.argv)
    agent = ros.LifecycleNode("lifecycle_agent")
    make_deaf(agent, int(os.environ.get("DEAF_TO", "0")))
    ros.spin(agent)
