"""spin, spin_once and others on the default executor of a context, as rclpy's module functions."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from .context import Context, get_default_context
from .executor import ExternalShutdownException, SingleThreadedExecutor
from .future import Future
from .node import Node

_lock = threading.Lock()
_executors: weakref.WeakKeyDictionary[object, SingleThreadedExecutor] = weakref.WeakKeyDictionary()


def get_global_executor(context: Context | None = None) -> SingleThreadedExecutor:
    """The executor that spin uses; one for each initialisation of a context."""
    chosen = context or get_default_context()
    if chosen.ended:  # a signal may come between init and spin
        raise ExternalShutdownException
    with _lock:
        key = chosen.participant  # a context that is initialised again has another participant
        if key not in _executors:
            _executors[key] = SingleThreadedExecutor(context=chosen)
        return _executors[key]


@contextmanager
def _spinning(node: Node, executor: SingleThreadedExecutor | None) -> Iterator[SingleThreadedExecutor]:
    """The executor, with the node for the duration of a with-block, or longer if it had the node before."""
    chosen = executor or get_global_executor(node.context)
    added = chosen.add_node(node)
    try:
        yield chosen
    finally:
        if added:
            chosen.remove_node(node)


def spin_once(node: Node, *, executor: SingleThreadedExecutor | None = None, timeout_sec: float | None = None) -> None:
    """Run one callback of the node (or of the executor's other nodes), waiting up to timeout_sec."""
    with _spinning(node, executor) as chosen:
        chosen.spin_once(timeout_sec)


def spin(node: Node, executor: SingleThreadedExecutor | None = None) -> None:
    """Run the node's callbacks until the context ends. Raises ExternalShutdownException if it ends during a wait."""
    with _spinning(node, executor) as chosen:
        chosen.spin()


def spin_until_future_complete(
    node: Node, future: Future, executor: SingleThreadedExecutor | None = None, timeout_sec: float | None = None
) -> None:
    """Run callbacks until the future is done or timeout_sec is over."""
    with _spinning(node, executor) as chosen:
        chosen.spin_until_future_complete(future, timeout_sec)


def create_node(node_name: str, **options: object) -> Node:
    """Node(node_name, …)."""
    return Node(node_name, **options)  # type: ignore[arg-type]
