"""What follows a node's life cycle with it: managed entities, and the publisher that is silent until active."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from . import lifecycle_machine as machine
from .pubsub import Publisher


class TransitionCallbackReturn(Enum):
    """What a life-cycle callback answers; the values are lifecycle_msgs' TRANSITION_CALLBACK_*."""

    SUCCESS = 97
    FAILURE = 98
    ERROR = 99

    def to_label(self) -> str:
        """The label of the transition that follows."""
        return {97: machine.SUCCESS, 98: machine.FAILURE, 99: machine.ERROR}[self.value]


class LifecycleState(NamedTuple):
    """The state in which a transition began."""

    label: str
    state_id: int


class ManagedEntity:
    """Something whose callbacks a life-cycle node calls before its own default succeeds."""

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Succeeds, as the other ones do, where a subclass does not override it."""
        return TransitionCallbackReturn.SUCCESS

    on_cleanup = on_shutdown = on_activate = on_deactivate = on_error = on_configure


class LifecyclePublisher(ManagedEntity, Publisher):
    """A publisher that sends while its node is active and drops everything else without a word."""

    is_activated = False

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.is_activated = True
        return TransitionCallbackReturn.SUCCESS

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.is_activated = False
        return TransitionCallbackReturn.SUCCESS

    def publish(self, msg: Any) -> None:
        if self.is_activated:
            super().publish(msg)
