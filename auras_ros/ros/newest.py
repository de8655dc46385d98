"""Subscriptions of which only the newest message counts, though their reader keeps several.

A reader of images has to keep some (`image.IMAGES`), but a node that was busy must not act on those that waited: they
are taken and dropped before the callback.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .backend import BACKEND


class NewestMessage:
    """A subscription's callback that passes only the newest of the messages that wait to `callback(message)`.

    `subscription` is set once it was made; until then every message is passed on.
    """

    def __init__(self, callback: Callable[[Any], object]) -> None:
        self._callback = callback
        self.subscription: Any = None

    def __call__(self, message: Any) -> None:
        if self.subscription is not None:
            message = _newest(self.subscription, message)
        self._callback(message)


def _newest(subscription: Any, message: Any) -> Any:
    """The newest message that waits in this subscription; `message` if none does. A payload that cannot be read ends
    the search: what waits behind it comes with the next callback."""
    for _ in range(subscription.qos_profile.depth):  # no longer: a publisher may be faster than this loop
        waiting = None
        with suppress(ValueError, RuntimeError):  # ours, rclpy's
            waiting = _take(subscription)
        if waiting is None:
            break
        message = waiting
    return message


def _take(subscription: Any) -> Any:
    """The next message that waits, None if there is none. Raises ValueError or RuntimeError for one that cannot be
    read."""
    if BACKEND == "dds":
        return subscription.take()
    with subscription.handle:
        taken = subscription.handle.take_message(subscription.msg_type, subscription.raw)
    return None if taken is None else taken[0]
