"""Safety states: disarmed, armed, holding, stopped, and all transitions between them.

disarmed: nothing is published. armed: a valid chunk is being executed. holding: armed, but nothing is valid;
it ends by itself when a valid chunk of the same session comes. stopped: latched until disarmed. The first
reason for a state is kept until the state is left, so that the log shows the cause. This module never
computes a command.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum

from .verdict import ChunkRefusal, Rejected

MAX_EVENTS = 256


class SafetyState(str, Enum):
    """See the module's docstring."""

    DISARMED = "disarmed"
    ARMED = "armed"
    HOLDING = "holding"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Event:
    """A transition: the state entered, its reason, the state left, and the time (of the stream's clock)."""

    state: SafetyState
    previous: SafetyState
    reason: str
    at_ns: int


class Safety:
    """The state, its first reason, and the transitions not yet collected (at most MAX_EVENTS, the newest)."""

    def __init__(self) -> None:
        self.state = SafetyState.DISARMED
        self.reason = "not armed yet"
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)

    @property
    def live(self) -> bool:
        """Whether chunks may be executed: armed or holding."""
        return self.state in (SafetyState.ARMED, SafetyState.HOLDING)

    def refuse(self) -> Rejected | None:
        """Why no chunk is taken in this state; None if chunks are taken."""
        if self.live:
            return None
        if self.state is SafetyState.STOPPED:
            return Rejected(ChunkRefusal.STOPPED, f"stopped: {self.reason}")
        return Rejected(ChunkRefusal.DISARMED, "not armed")

    def arm(self, at_ns: int, reason: str) -> None:
        """From disarmed or holding to holding, until a valid chunk comes; other states are kept."""
        if self.state in (SafetyState.DISARMED, SafetyState.HOLDING):
            self._enter(SafetyState.HOLDING, reason, at_ns)

    def resume(self, at_ns: int, reason: str) -> None:
        """From holding to armed; other states are kept."""
        if self.state is SafetyState.HOLDING:
            self._enter(SafetyState.ARMED, reason, at_ns)

    def hold(self, at_ns: int, reason: str) -> None:
        """From armed to holding; other states are kept, with their first reason."""
        if self.state is SafetyState.ARMED:
            self._enter(SafetyState.HOLDING, reason, at_ns)

    def stop(self, at_ns: int, reason: str) -> None:
        """From any state to stopped, latched."""
        if self.state is not SafetyState.STOPPED:
            self._enter(SafetyState.STOPPED, reason, at_ns)

    def disarm(self, at_ns: int, reason: str) -> None:
        """From any state to disarmed: the only way out of stopped."""
        if self.state is not SafetyState.DISARMED:
            self._enter(SafetyState.DISARMED, reason, at_ns)

    def drain(self) -> list[Event]:
        """The transitions since the last call, oldest first."""
        events = list(self._events)
        self._events.clear()
        return events

    def _enter(self, state: SafetyState, reason: str, at_ns: int) -> None:
        previous = self.state
        self.state = state
        self.reason = reason
        self._events.append(Event(state, previous, reason, at_ns))
