"""A request for a transition that is illegal in the current lifecycle state gets an answer, with either backend.

rclpy raises an exception out of the service's callback, which would end the agent's process because of a wrong request.
Which transitions are legal is decided by rclpy's state machine, which changes nothing when it raises.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from auras_ros.ros import LifecycleNode
from auras_ros.ros.srv import ChangeState


def answer_illegal_transitions(node: LifecycleNode) -> None:
    """Let `~/change_state` answer `success: false` and log the reason. Called once, when the node is built."""
    for service in node.services:
        if service.srv_type is ChangeState:
            service.callback = partial(_answer, service.callback, node)


def _answer(change_state: Callable[[Any, Any], Any], node: LifecycleNode, request: Any, response: Any) -> Any:
    try:
        return change_state(request, response)
    except RuntimeError as error:  # rclpy's RCLError, which is not public
        wanted = request.transition.label or request.transition.id
        node.get_logger().error(f"change_state: transition {wanted!r} refused: {error}")
        response.success = False
        return response
