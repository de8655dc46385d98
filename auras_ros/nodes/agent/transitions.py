"""A transition that the life cycle's state does not have is answered, whoever asks for it and on either backend.

rclpy raises out of the service's callback there, which ends the process of an agent that somebody asked a wrong thing.
Nothing here knows which transitions there are: rclpy's own state machine decides, and has changed nothing where it
raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from auras_ros.ros import LifecycleNode
from auras_ros.ros.srv import ChangeState

Callback = Callable[[Any, Any], Any]


def answer_illegal_transitions(node: LifecycleNode) -> None:
    """Have `~/change_state` say `success: false`, and the log why. Once, when the node is built."""
    for service in node.services:
        if service.srv_type is ChangeState:
            service.callback = _answering(service.callback, node)


def _answering(change_state: Callback, node: LifecycleNode) -> Callback:
    def answer(request: Any, response: Any) -> Any:
        try:
            return change_state(request, response)
        except RuntimeError as error:  # rclpy's RCLError is one; its name is not public
            wanted = request.transition.label or request.transition.id
            node.get_logger().error(f"change_state: transition {wanted!r} refused: {error}")
            response.success = False
            return response

    return answer
