"""Spins a node that must survive its callbacks: an exception is counted and logged, and the node continues.

Everything from outside reaches a node through callbacks, so this one place guards them all, with rclpy and with our
layer.
"""

from __future__ import annotations

import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from auras_ros.output import Lines, printable
from auras_ros.panics import raising_panics
from auras_ros.repeated_lines import RepeatedLines
from auras_ros.ros import Clock, ClockType, ExternalShutdownException, Node, SingleThreadedExecutor
from auras_ros.ros.rcutils_errors import error_reset

WAKE_S = 0.05  # Python runs a signal handler only between two waits
LAST_LINES, LAST_CHARACTERS = 6, 1000  # of a traceback
BROKEN_S = 2.0  # an executor whose callbacks have only failed for this long is broken
POLL_S, STALLED_S, STALLED_TURNS = 0.5, 5.0, 50


class CallbackFailures:
    """Exceptions of callbacks that were caught: how many, and the last."""

    def __init__(self) -> None:
        self.count, self.last = 0, ""
        self._since_s: float | None = None  # nothing has succeeded since
        self._lines = RepeatedLines()

    @contextmanager
    def guarded(self, what: str, say: Callable[[str], object]) -> Iterator[None]:
        """An exception in the block is counted, reported to `say` and not raised, except MemoryError and the end of
        ROS."""
        try:
            with raising_panics():
                yield
        except (MemoryError, ExternalShutdownException):
            raise
        except Exception as error:  # noqa: BLE001  (this is the one place for it)
            with suppress(Exception):  # a log that fails as well must not end the node
                if text := self._failed(error, what):
                    say(text)
        else:
            self._since_s = None

    def _failed(self, error: Exception, what: str) -> str:
        """Count it and return the text to log, which is empty where no line is due."""
        now_s = time.monotonic()
        self.count += 1
        self._since_s = now_s if self._since_s is None else self._since_s
        [last] = traceback.format_exception_only(type(error), error)[-1:]
        self.last = printable(last.strip()[:LAST_CHARACTERS])
        line = self._lines.line(what, f"{what} failed and was skipped", cause=type(error).__name__)
        if not line:
            return ""
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        shown = "".join(lines[-LAST_LINES:])[-LAST_CHARACTERS:].rstrip()
        return Lines(f"{line}:\n{shown}")

    def only(self) -> bool:
        """Whether callbacks have only failed for so long that none is expected to succeed again."""
        return self._since_s is not None and time.monotonic() - self._since_s > BROKEN_S


_of_nodes: weakref.WeakKeyDictionary[Node, CallbackFailures] = weakref.WeakKeyDictionary()


def failures_of(node: Node) -> CallbackFailures:
    """The failures of this node; created at the first call."""
    return _of_nodes.setdefault(node, CallbackFailures())


class Callbacks:
    """`spin_once` runs one callback. It raises MemoryError, ExternalShutdownException and what is not an Exception.

    say: where failures are reported; None: the node's log."""

    def __init__(self, node: Node, say: Callable[[str], object] | None = None) -> None:
        self._node, self._failures = node, failures_of(node)
        self._say = say or node.get_logger().error
        self._executor = SingleThreadedExecutor(context=node.context)
        self._executor.add_node(node)
        self._reset_error = error_reset()
        self._alive_s, self._turns, self._watching = time.monotonic(), 0, False

    def spin_once(self, wait_s: float = WAKE_S) -> bool:
        """Run a callback, or wait a moment for one. Returns False once the executor is broken; the log says why."""
        count = self._failures.count
        with self._failures.guarded("a callback", self._say):
            self._executor.spin_once(timeout_sec=wait_s)
        self._reset_error()
        if self._failures.count > count:
            self._watch()
        return not self._broken()

    def close(self) -> None:
        self._executor.shutdown()

    def _watch(self) -> None:
        """After a failure, check whether callbacks still run: if taking a message fails, rclpy counts its callback
        as running for ever, and runs no other callback of the node."""
        if not self._watching:
            self._watching = True
            self._alive()
            self._node.create_timer(POLL_S, self._alive, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def _alive(self) -> None:
        self._alive_s, self._turns = time.monotonic(), 0

    def _broken(self) -> bool:
        self._turns += 1
        stalled = self._watching and self._turns > STALLED_TURNS and time.monotonic() - self._alive_s > STALLED_S
        if stalled:
            self._node.get_logger().fatal(f"no callback has run for {STALLED_S:g} s: the executor is broken")
        elif failing := self._failures.only():
            self._node.get_logger().fatal(f"every callback has failed for {BROKEN_S:g} s: the executor is broken")
            return failing
        return stalled
