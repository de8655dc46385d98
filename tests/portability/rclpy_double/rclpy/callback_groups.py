"""rclpy.callback_groups."""

from __future__ import annotations


class CallbackGroup:
    pass


class MutuallyExclusiveCallbackGroup(CallbackGroup):
    pass


class ReentrantCallbackGroup(CallbackGroup):
    pass
