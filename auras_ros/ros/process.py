"""The life of a node's process: initialise, build, spin, halt, shut down, with an exit status (`exit_status`).

No input from outside ends it: callbacks are guarded (`ros.callbacks`), and output that nobody reads is dropped
(`output`). Signals are handled here and not by ROS, whose handlers end the context at once: a node that must stop
has to publish its last messages first.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from auras_ros.descriptors import ensure_descriptors
from auras_ros.exit_status import BAD_SETTINGS, BROKEN, TOO_SLOW, of_refusal
from auras_ros.heap import LARGE_BLOCK, bound_heap
from auras_ros.output import escaped, non_blocking_output, printable
from auras_ros.panics import ExtensionPanicError, raising_panics
from auras_ros.ros import BACKEND, SignalHandlerOptions, init, supported, try_shutdown
from auras_ros.ros.callbacks import Callbacks
from auras_ros.ros.fastdds import avoid_shared_memory, check_confined
from auras_ros.ros.ranges import discovery_range
from auras_ros.ros.refusals import SETTINGS_ERRORS, security_remedy
from auras_ros.ros.wait_guard import WaitGuard

# After a node's last message: what is in Fast DDS's shared memory is gone with the process that sent it.
ARRIVAL_S = 0.05 if BACKEND == "rclpy" else 0.0


def run_node(
    build: Callable[[Sequence[int]], Any],
    bad_settings: tuple[type[Exception], ...],
    too_slow: tuple[type[Exception], ...] = (),
    check_arguments: Callable[[Sequence[str]], None] = lambda words: None,
    argv: list[str] | None = None,
    large_block: int = LARGE_BLOCK,
    shared_memory: bool = True,
) -> int:
    """Run one node until SIGINT, SIGTERM or SIGHUP, or until it is no longer `working`: a node whose own thread failed
    must not appear alive. Returns the exit status.

    `build` gets the list of the signals that came so far, for a node that takes long to start; the node has `start()`,
    `working()` and `halt()`. `bad_settings`: errors of `build` and `start` that end with status 2
    (or 1, if the machine was the cause: `exit_status`); `too_slow`: those that a later start may not have, status 3.
    `large_block`: as `bound_heap` takes it. `shared_memory`: whether Fast DDS may use it (`ros.fastdds`).
    """
    asked: list[int] = []  # no Event: its lock would be taken twice where two signals come together
    refusals, words = (*bad_settings, *SETTINGS_ERRORS), sys.argv if argv is None else argv
    with non_blocking_output():
        bound_heap(large_block)
        if not faulthandler.is_enabled():
            faulthandler.enable()  # a crash in native code prints every thread's traceback

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # SIGHUP: the terminal is gone
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                signal.signal(number, lambda came, _: asked.append(came))
        try:
            with _refusals((OSError, ValueError, RuntimeError), ()):  # ROS arguments, a parameter file, the environment
                if warning := supported.check():
                    print(f"warning: {printable(warning)}", file=sys.stderr, flush=True)
                ensure_descriptors()
                discovery_range()
                if not shared_memory:
                    avoid_shared_memory()
                init(args=words, signal_handler_options=SignalHandlerOptions.NO)
            try:
                with _refusals((OSError, ValueError), ()):
                    check_arguments(words)
                with _refusals(refusals, too_slow):
                    node = build(asked)
                callbacks = Callbacks(node)
                guard = WaitGuard()
                try:
                    with _refusals((RuntimeError,), ()):
                        check_confined()
                    with _refusals(refusals, too_slow):
                        node.start()
                    while not asked and node.working():
                        guard.note_turn()
                        if not callbacks.spin_once():
                            return BROKEN
                    return 0 if node.working() else BROKEN
                finally:
                    guard.close()
                    node.halt()
                    time.sleep(ARRIVAL_S)
                    callbacks.close()
                    node.destroy_node()
            finally:
                try_shutdown()
        except RefusedError as refused:
            for line in str(refused).splitlines():
                print(f"error: {escaped(line)}", file=sys.stderr, flush=True)
            return refused.status


class RefusedError(Exception):
    """The node cannot start; the reason is printed. `status`: the process's exit status."""

    def __init__(self, error: Exception, status: int) -> None:
        super().__init__(printable(str(error)))
        self.status = status


@contextmanager
def _refusals(bad_settings: tuple[type[Exception], ...], too_slow: tuple[type[Exception], ...]) -> Iterator[None]:
    looked_at: tuple[type[Exception], ...] = (*bad_settings, RuntimeError)
    try:
        with raising_panics():
            yield
    except too_slow as error:
        raise RefusedError(error, TOO_SLOW) from error
    except ExtensionPanicError as error:
        raise RefusedError(error, BAD_SETTINGS) from error
    except looked_at as error:
        if remedy := security_remedy(error):
            text = str(error).partition("\n")[0]
            raise RefusedError(RuntimeError(f"{text}. {remedy}"), BAD_SETTINGS) from error
        if isinstance(error, bad_settings):
            raise RefusedError(error, of_refusal(error)) from error
        raise


def leave(status: int) -> NoReturn:
    """End the process with this status; at once if a thread still works.

    A policy's thread that hangs, or still loads, is usually in native code. Interpreter shutdown would free what that
    thread still uses, and the C++ library would end the process by SIGABRT instead of with the status.
    """
    if any(thread.daemon for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
