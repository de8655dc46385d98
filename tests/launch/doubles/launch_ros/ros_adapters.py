from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from launch import LaunchContext


def get_ros_node(context: LaunchContext) -> Any:
    """The rclpy node of `ros2 launch`, as far as it is asked for clients."""
    return context.ros_node if context.ros_node is not None else RosNode(context)


class RosNode:
    def __init__(self, context: LaunchContext) -> None:
        self._context = context

    def create_client(self, srv_type: Any, srv_name: str) -> Client:
        return Client(self._context, srv_name)


class Client:
    """The test answers the calls: a service that it does not have is not ready, and one that returns None is silent."""

    def __init__(self, context: LaunchContext, name: str) -> None:
        self._context = context
        self._name = name

    def service_is_ready(self) -> bool:
        return self._name in self._context.services

    def call_async(self, request: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._context.open_calls.append(future)
        serve = self._context.services.get(self._name)
        response = None if serve is None else serve(request)
        if response is not None:
            self.answer(future, response)
        return future

    def answer(self, future: Future[Any], response: Any) -> None:
        self._context.open_calls.remove(future)
        future.set_result(response)

    def remove_pending_request(self, future: Future[Any]) -> None:
        if future in self._context.open_calls:
            self._context.open_calls.remove(future)
