"""A process's connection to ROS: contexts with arguments and a participant; init, ok and shutdown.

A signal only marks a context as ended and wakes its executors; entities are deleted by shutdown, by
destroy_node, or when the interpreter exits.
"""

from __future__ import annotations

import atexit
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from auras_ros.descriptors import ensure_descriptors

from . import discovery, security
from .arguments import Arguments, parse
from .graph import Graph
from .logger import enable_stderr, get_logger, set_logger_level
from .participant import Participant
from .signals import SignalHandlerOptions, SignalHandlers

if TYPE_CHECKING:
    from .executor import SingleThreadedExecutor


class NotInitializedException(RuntimeError):
    """init() has not been called on the context, or it is shut down."""


class Context:
    """One initialised use of ROS: its arguments, one participant (created when first needed), its executors."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._valid = False
        self._initialized = False
        self._entities: tuple[Participant, Graph] | None = None
        self._callbacks: list[Callable[[], None]] = []
        self.executors: weakref.WeakSet[SingleThreadedExecutor] = weakref.WeakSet()
        self._graph_reader: weakref.ref[SingleThreadedExecutor] | None = None
        self.arguments = Arguments()
        self.domain_id = 0

    def init(self, args: Sequence[str] | None = None, *, domain_id: int | None = None) -> None:
        """Read arguments (None: sys.argv) and environment. Raises RuntimeError if already initialised, ValueError for
        an environment that cannot be used, DescriptorsError if too few files may be open for a participant."""
        with self._lock:
            if self._valid:
                raise RuntimeError("Context.init() must only be called once")
            self._close()
            ensure_descriptors()
            self.arguments = parse(sys.argv if args is None else args)
            self.domain_id = discovery.domain_id() if domain_id is None else domain_id
            discovery.configuration()  # a wrong environment is refused here, not when the first node is made
            warning = security.check()
            for name, level in self.arguments.log_levels:
                set_logger_level(name, level)
            enable_stderr(self.arguments.stdout)
            if warning:
                get_logger("auras_ros.security").warning(warning)
            self._valid = self._initialized = True
            _contexts.add(self)

    def ok(self) -> bool:
        """True between init and shutdown (or a signal)."""
        return self._valid

    @property
    def ended(self) -> bool:
        """True if it was initialised and a shutdown or a signal has ended it."""
        return self._initialized and not self._valid

    def _made(self) -> tuple[Participant, Graph]:
        """The participant and its graph, created when one of them is first needed."""
        with self._lock:
            if not self._valid:
                raise NotInitializedException("rclpy.init() has not been called, or the context is shut down")
            if self._entities is None:
                participant = Participant(self.domain_id)
                self._entities = participant, Graph(participant)
            return self._entities

    @property
    def participant(self) -> Participant:
        return self._made()[0]

    @property
    def graph(self) -> Graph:
        """The ROS graph: this participant's nodes, which it announces, and those that others announce."""
        return self._made()[1]

    def reads_graph(self, executor: SingleThreadedExecutor) -> bool:
        """Whether this executor reads other participants' announcements: the first executor that asks does, until it is
        shut down. Only one does, so that another stays free for callbacks that must not wait."""
        with self._lock:
            reader = self._graph_reader() if self._graph_reader is not None else None
            if reader is None or reader.is_shutdown:
                self._graph_reader, reader = weakref.ref(executor), executor
            return reader is executor

    def on_shutdown(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def invalidate(self) -> None:
        """End the context without deleting anything; safe in a signal handler."""
        self._valid = False
        self.wake()

    def wake(self) -> None:
        """Wake executors that wait, so that they check again."""
        for executor in list(self.executors):
            executor.wake()

    def shutdown(self) -> None:
        """End the context and delete its entities. Raises RuntimeError if it has ended already (as rclpy)."""
        if not self.try_shutdown():
            raise RuntimeError("the context is already shut down, or was never initialised")

    def try_shutdown(self) -> bool:
        """As shutdown, but returns False instead of raising; also deletes the entities that remain after a signal."""
        with self._lock:
            was_valid = self._valid
            self.invalidate()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        self._close()
        return was_valid

    def _close(self) -> None:
        with self._lock:
            entities, self._entities = self._entities, None
            self._graph_reader = None  # its reader does not read the next graph
        if entities is not None:
            entities[0].close()
        _contexts.discard(self)


_contexts: set[Context] = set()
_default = Context()


def get_default_context() -> Context:
    return _default


def _to_all(act: Callable[[Context], object]) -> None:
    for context in list(_contexts):
        act(context)


_signals = SignalHandlers(partial(_to_all, Context.invalidate), partial(_to_all, Context.wake))
atexit.register(_to_all, Context.try_shutdown)


def init(
    *,
    args: Sequence[str] | None = None,
    context: Context | None = None,
    domain_id: int | None = None,
    signal_handler_options: SignalHandlerOptions | None = None,
) -> None:
    """Begin to use ROS. Signal handlers are installed for the default context unless told otherwise."""
    (context or _default).init(args, domain_id=domain_id)
    if signal_handler_options is None:
        signal_handler_options = SignalHandlerOptions.ALL if context is None else SignalHandlerOptions.NO
    _signals.install(signal_handler_options)


def ok(*, context: Context | None = None) -> bool:
    """True while the context is usable."""
    return (context or _default).ok()


def shutdown(*, context: Context | None = None, uninstall_handlers: bool | None = None) -> None:
    """End the context. Raises RuntimeError if it has ended already."""
    (context or _default).shutdown()
    if uninstall_handlers or (uninstall_handlers is None and context in (None, _default)):
        _signals.uninstall()


def try_shutdown(*, context: Context | None = None) -> None:
    """End the context if it has not ended; never raises."""
    (context or _default).try_shutdown()
    if context in (None, _default):
        _signals.uninstall()
