"""Spins a node that must outlive its callbacks: whatever one of them raises is counted and said, and the node goes on.

What comes from outside reaches a node in its callbacks. To guard each of them by itself is to forget one; here is the
one place through which they all pass, with rclpy as with our layer.
"""

from __future__ import annotations

import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from auras_ros.output import printable
from auras_ros.ros import Clock, ClockType, ExternalShutdownException, Node, SingleThreadedExecutor

WAKE_S = 0.05  # Python runs a signal handler only between two waits
SAID_EACH_S = 1.0
LAST_LINES, LAST_CHARACTERS = 6, 1000  # of a traceback
BROKEN_S = 2.0  # an executor that has done nothing but fail for this long is broken
POLL_S, DEAF_S, DEAF_TURNS = 0.5, 5.0, 50


class CallbackFailures:
    """What was raised and left: how often, and the last of it."""

    def __init__(self) -> None:
        self.count, self.last = 0, ""
        self._since_s: float | None = None  # nothing has succeeded since
        self._said_s = float("-inf")
        self._unsaid = 0

    @contextmanager
    def guarded(self, what: str, say: Callable[[str], object]) -> Iterator[None]:
        """What the block raises is counted, told to `say` and left; but for MemoryError, and the end of ROS."""
        try:
            yield
        except (MemoryError, ExternalShutdownException):
            raise
        except Exception as error:  # noqa: BLE001  (this is the one place for it)
            if text := self._failed(error, what):
                say(text)
        else:
            self._since_s = None

    def _failed(self, error: Exception, what: str) -> str:
        """Note it; the text to log, empty where as much was said a moment ago."""
        now_s = time.monotonic()
        self.count += 1
        self._since_s = now_s if self._since_s is None else self._since_s
        if now_s - self._said_s < SAID_EACH_S:
            self._unsaid += 1
            return ""
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        self.last = printable(lines[-1].strip()[:LAST_CHARACTERS])
        more = f" ({self._unsaid} more since the last such line)" if self._unsaid else ""
        shown = printable("".join(lines[-LAST_LINES:])[-LAST_CHARACTERS:].rstrip())
        self._said_s, self._unsaid = now_s, 0
        return f"{what} failed and was left{more}:\n{shown}"

    def only(self) -> bool:
        """Whether nothing has succeeded for so long that nothing will."""
        return self._since_s is not None and time.monotonic() - self._since_s > BROKEN_S


_of_nodes: weakref.WeakKeyDictionary[Node, CallbackFailures] = weakref.WeakKeyDictionary()


def failures_of(node: Node) -> CallbackFailures:
    """The node's, made when first asked for."""
    return _of_nodes.setdefault(node, CallbackFailures())


class Callbacks:
    """`turn` runs one callback; MemoryError and ExternalShutdownException leave it, as does what is no Exception.

    say: who is told of what was raised; None: the node's log."""

    def __init__(self, node: Node, say: Callable[[str], object] | None = None) -> None:
        self._node, self._failures = node, failures_of(node)
        self._say = say or node.get_logger().error
        self._executor = SingleThreadedExecutor(context=node.context)
        self._executor.add_node(node)
        self._alive_s, self._turns, self._watching = time.monotonic(), 0, False

    def turn(self, wait_s: float = WAKE_S) -> bool:
        """Run a callback, or wait a moment for one. False once the executor is broken; the log says how."""
        count = self._failures.count
        with self._failures.guarded("a callback", self._say):
            self._executor.spin_once(timeout_sec=wait_s)
        if self._failures.count > count:
            self._watch()
        return not self._broken()

    def close(self) -> None:
        self._executor.shutdown()

    def _watch(self) -> None:
        """After a failure, look whether callbacks still run: where taking a message fails, rclpy counts its callback
        as running for ever, and runs no other one of the node."""
        if not self._watching:
            self._watching = True
            self._alive()
            self._node.create_timer(POLL_S, self._alive, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def _alive(self) -> None:
        self._alive_s, self._turns = time.monotonic(), 0

    def _broken(self) -> bool:
        self._turns += 1
        deaf = self._watching and self._turns > DEAF_TURNS and time.monotonic() - self._alive_s > DEAF_S
        if deaf:
            self._node.get_logger().fatal(f"no callback has run for {DEAF_S:g} s: the executor is broken")
        elif failing := self._failures.only():
            self._node.get_logger().fatal(f"callbacks have done nothing but fail for {BROKEN_S:g} s")
            return failing
        return deaf
