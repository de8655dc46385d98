"""The life of a node's process: initialise, build, spin, halt, shut down; the exit status says how it went.

0: asked to stop. 1: it broke. 2: it cannot start with these settings, and starting it again will not help.
Signals are taken here and not by ROS, whose handlers end the context at once: a node that is asked to stop must
still be able to publish its last word.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, TypeVar

from auras_ros.heap import bound_heap
from auras_ros.nodes.exit_status import BAD_SETTINGS, BROKEN
from auras_ros.ros import Node, SignalHandlerOptions, SingleThreadedExecutor, init, try_shutdown

WAKE_S = 0.05  # Python runs a signal handler only between two waits
N = TypeVar("N", bound=Node)


def node_main(
    argv: list[str] | None,
    build: Callable[[], N],
    start: Callable[[N], None],
    halt: Callable[[N], None],
    working: Callable[[N], bool],
    bad_settings: tuple[type[Exception], ...],
    asked: threading.Event | None = None,
) -> int:
    """Run one node until SIGINT or SIGTERM, or until it is no longer `working`: a node whose own thread broke must
    not look alive. `bad_settings`: errors of `build` and `start` that end with status 2. `asked` is set by the
    signals, for a node whose start takes long."""
    bound_heap()
    asked = asked or threading.Event()
    if not faulthandler.is_enabled():
        faulthandler.enable()  # what ends a process from below leaves a traceback of every thread

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    try:
        init(args=sys.argv if argv is None else argv, signal_handler_options=SignalHandlerOptions.NO)
    except ValueError as error:  # ROS arguments, or a parameter file, that cannot be read
        return _refused(error)
    try:
        try:
            node = build()
        except bad_settings as error:
            return _refused(error)
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        try:
            try:
                start(node)
            except bad_settings as error:
                return _refused(error)
            while not asked.is_set() and working(node):
                executor.spin_once(timeout_sec=WAKE_S)
            return 0 if working(node) else BROKEN
        finally:
            halt(node)
            executor.shutdown()
            node.destroy_node()
    finally:
        try_shutdown()


def leave(status: int) -> NoReturn:
    """End the process with this status: at once where a thread still works.

    A policy's thread that hangs, or still loads, is in native code more often than not. The interpreter's own end
    would pull the ground from under it, and the C++ library ends the process by SIGABRT in place of the status.
    """
    if any(thread.daemon for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _refused(error: Exception) -> int:
    print(f"error: {error}", file=sys.stderr, flush=True)
    return BAD_SETTINGS
