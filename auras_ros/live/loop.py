"""A node that listens to a robot's processes, on this host only unless the user chose otherwise. Their output is kept
for the error that ends them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from auras_ros.nodes.common import discovery
from auras_ros.ros import Context, Node, SignalHandlerOptions, init, try_shutdown
from auras_ros.ros.fastdds import check_confined

START_S = 90.0
LAST_LINES = 12  # of the processes' output, beside an error
Spin = Callable[[Callable[[], bool], float], None]  # until the condition holds, at most for so many seconds


@contextmanager
def listening(name: str) -> Iterator[Node]:
    """A node for a play or a measurement. On this host only unless the user chose otherwise: it publishes actions."""
    with on_loopback():
        init(args=[])
        node = Node(name)
        try:
            check_confined()
            yield node
        finally:
            node.destroy_node()
            try_shutdown()


def wait_until_armed(spin: Spin, state: Callable[[], str], config: Path) -> None:
    spin(lambda: state() == "armed", START_S)
    if state() != "armed":
        raise RuntimeError(f"the actuator was not armed within {START_S:g} s; try: auras run {config}")


@contextmanager
def process_output() -> Iterator[IO[str]]:
    """A file for the output of processes. A RuntimeError raised inside is extended by its last lines."""
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            yield log
        except RuntimeError as error:
            log.seek(0)
            raise RuntimeError("\n".join([str(error), *log.read().splitlines()[-LAST_LINES:]])) from error


@contextmanager
def on_loopback() -> Iterator[str]:
    """Localhost discovery (which also allows large fragments) unless the user chose a range; yields the range used."""
    if discovery.is_set():
        yield "as set in the environment"
        return
    before = os.environ.pop(discovery.VARIABLE, None)
    os.environ[discovery.VARIABLE] = discovery.DEFAULT
    try:
        yield discovery.DEFAULT
    finally:
        del os.environ[discovery.VARIABLE]
        if before is not None:
            os.environ[discovery.VARIABLE] = before


@contextmanager
def own_node(name: str, namespace: str | None = None) -> Iterator[Node]:
    """A node in a context of its own, which leaves the process's signals alone."""
    context = Context()
    init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = Node(name, namespace=namespace, context=context)
        try:
            check_confined()
            yield node
        finally:
            node.destroy_node()
    finally:
        try_shutdown(context=context)
