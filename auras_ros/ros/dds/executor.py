"""The single-threaded executor: one waitset, one callback at a time, in the order things became ready.

Each subscription delivers one message at a time, so a busy topic cannot starve other callbacks. spin raises a
callback's exception; an unreadable payload raises nothing. A guard condition wakes a waiting executor from any thread.
"""

from __future__ import annotations

import ctypes as ct
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from . import library as dds
from .clock import ClockType
from .context import Context, get_default_context
from .future import Future

if TYPE_CHECKING:
    from .node import Node

# A wait is cut into slices as a last resort, in case other code replaces the wakeup of signals.
_SLICE_NS = 1_000_000_000
_GUARD = 0


class ExternalShutdownException(Exception):
    """The context was shut down while (or before) the executor waited."""


class ShutdownException(Exception):
    """The executor itself was shut down."""


class Waitable(Protocol):
    """Something a waitset can watch; `execute` handles at most one thing."""

    entity: int

    @property
    def closed(self) -> bool: ...

    def execute(self) -> None: ...


class Executable(Protocol):
    def execute(self) -> None: ...


class SingleThreadedExecutor:
    """Runs the callbacks of its nodes in the thread that spins."""

    def __init__(self, *, context: Context | None = None) -> None:
        self.context = context or get_default_context()
        if self.context.ended:
            raise ExternalShutdownException
        participant = self.context.participant
        self._waitset = dds.check(dds.create_waitset(participant.ref), "waitset")
        self._guard = dds.check(dds.create_guardcondition(participant.ref), "guard condition")
        dds.check(dds.waitset_attach(self._waitset, self._guard, _GUARD), "guard condition")
        self._nodes: list[Node] = []
        self._watched: dict[int, Waitable] = {}
        self._tokens: dict[Waitable, int] = {}
        self._next_token = _GUARD + 1
        self._stale = True
        self._ready: deque[Executable] = deque()
        self.is_shutdown = False
        self.context.executors.add(self)

    def add_node(self, node: Node) -> bool:
        """Spin this node too. Returns False if it was added before."""
        if node in self._nodes:
            return False
        self._nodes.append(node)
        node.executor = self
        self.context.reads_graph(self)  # the first executor with nodes, not the first that spins
        self.refresh()
        return True

    def remove_node(self, node: Node) -> None:
        if node in self._nodes:
            self._nodes.remove(node)
            node.executor = None
            self.refresh()

    def refresh(self) -> None:
        """Call it when the nodes or their entities changed: they are read again before the next wait."""
        self._stale = True
        self.wake()

    def wake(self) -> None:
        """Make a running wait return; can be called from any thread and from a signal handler."""
        dds.set_guardcondition(self._guard, True)

    def shutdown(self, timeout_sec: float | None = None) -> bool:
        """Make spin return, and remove the nodes."""
        self.is_shutdown = True
        self.wake()
        for node in list(self._nodes):
            self.remove_node(node)
        return True

    def spin(self) -> None:
        """Run callbacks until this executor is shut down. Raises ExternalShutdownException if the context is."""
        while self.context.ok() and not self.is_shutdown:
            self.spin_once()

    def spin_once(self, timeout_sec: float | None = None) -> None:
        """Run one callback, waiting up to timeout_sec for it (None: no limit)."""
        try:
            work = self._next(timeout_sec, None)
        except ShutdownException:
            return
        if work is not None:
            work.execute()

    def spin_until_future_complete(self, future: Future, timeout_sec: float | None = None) -> None:
        """Run callbacks until the future is done or timeout_sec is over."""
        future.add_done_callback(lambda _: self.wake())
        deadline = None if timeout_sec is None else time.monotonic() + timeout_sec
        while self.context.ok() and not future.done() and not self.is_shutdown:
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                return
            work = self._next(left_s, future)
            if work is not None:
                work.execute()

    def _next(self, timeout_sec: float | None, until: Future | None) -> Executable | None:
        """The next callback to run, or None when the time is over or `until` is done."""
        deadline_ns = None if timeout_sec is None or timeout_sec < 0 else time.monotonic_ns() + int(timeout_sec * 1e9)
        polled = False
        while True:
            if self.is_shutdown:
                raise ShutdownException
            if not self.context.ok():
                raise ExternalShutdownException
            if self._stale:
                self._attach_or_end()
            if self._ready:
                return self._ready.popleft()
            if until is not None and until.done():
                return None
            left_ns = _SLICE_NS if deadline_ns is None else deadline_ns - time.monotonic_ns()
            if left_ns <= 0 and polled:
                return None
            self._collect(max(0, min(left_ns, _SLICE_NS)))
            polled = True

    def _collect(self, at_most_ns: int) -> None:
        """Wait once and queue what is ready: due timers first, then data, replies, events and guards."""
        timers = [timer for node in self._nodes for timer in node.timers]
        for timer in timers:
            left_ns = timer.time_until_next_call()
            if left_ns is None:
                continue
            # Simulated time advances only with a message, which ends the wait anyway.
            if left_ns <= 0 or not timer.clock.ros_time_is_active or timer.clock.clock_type != ClockType.ROS_TIME:
                at_most_ns = max(0, min(at_most_ns, left_ns))
        room = len(self._watched) + 1
        tokens = (ct.c_ssize_t * room)()
        count = dds.waitset_wait(self._waitset, tokens, room, at_most_ns)
        if not self.context.ok():
            return
        dds.check(count, "waitset")
        self._ready.extend(timer for timer in timers if timer.is_ready())
        for token in tokens[: min(count, room)]:
            if token == _GUARD:
                taken = ct.c_bool()
                dds.take_guardcondition(self._guard, ct.byref(taken))
            elif token in self._watched:
                self._ready.append(self._watched[token])

    def _attach_or_end(self) -> None:
        try:
            self._attach()
        except RuntimeError as error:  # DdsError, or the context is not initialised
            self._stale = True
            if self.context.ok():
                raise
            # Another thread shut the context down meanwhile, and its entities are deleted.
            raise ExternalShutdownException from error

    def _attach(self) -> None:
        """Update the waitset to the entities that the nodes have now."""
        self._stale = False
        wanted: dict[Waitable, None] = {w: None for node in self._nodes for w in node.waitables() if not w.closed}
        if self._nodes and self.context.reads_graph(self):
            wanted[self.context.graph] = None
        for waitable in [known for known in self._tokens if known not in wanted]:
            token = self._tokens.pop(waitable)
            del self._watched[token]
            if not waitable.closed:
                dds.waitset_detach(self._waitset, waitable.entity)
        for waitable in wanted:
            if waitable not in self._tokens:
                token, self._next_token = self._next_token, self._next_token + 1
                dds.check(dds.waitset_attach(self._waitset, waitable.entity, token), "waitset")
                self._watched[token], self._tokens[waitable] = waitable, token
        timers = {timer for node in self._nodes for timer in node.timers}
        kept = [work for work in self._ready if work in self._tokens or work in timers]
        self._ready = deque(kept)
