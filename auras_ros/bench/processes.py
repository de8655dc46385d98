"""A robot's processes, run for a bench and observed over topics. An error shows the last lines that they printed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from auras_ros.bench.kept import OverError
from auras_ros.bench.ros_image import on_loopback
from auras_ros.nodes.supervisor import Supervisor
from auras_ros.ros import Node, init, spin_once, try_shutdown

START_S = 90.0
LAST_LINES = 12  # of the processes' output, beside an error
Spin = Callable[[Callable[[], bool], float], None]  # until the condition holds, at most for so many seconds


@contextmanager
def listening(name: str) -> Iterator[Node]:
    """The bench's own node. On this host only unless the user chose otherwise: a bench publishes actions."""
    with on_loopback():
        init(args=[])
        node = Node(name)
        try:
            yield node
        finally:
            node.destroy_node()
            try_shutdown()


@contextmanager
def running(node: Node, config: Path, overrides: dict[str, dict[str, Any]], end_s: float) -> Iterator[Spin]:
    """Run the config's processes; yields a function that spins the node. That function raises RuntimeError, with the
    processes' last lines, if a process ends, and OverError at end_s of the monotonic clock."""
    with told() as log, Supervisor(config, log=log, parameters=overrides) as supervisor:

        def spin(done: Callable[[], bool], seconds: float) -> None:
            until_s = time.monotonic() + seconds
            while not done() and (now_s := time.monotonic()) < until_s:
                if now_s >= end_s:
                    raise OverError
                spin_once(node, timeout_sec=0.1)
                if news := supervisor.poll():
                    raise RuntimeError(f"a process ended: {'; '.join(news)}")

        yield spin


def wait_until_armed(spin: Spin, state: Callable[[], str], config: Path) -> None:
    spin(lambda: state() == "armed", START_S)
    if state() != "armed":
        raise RuntimeError(f"the actuator was not armed within {START_S:g} s; try: auras run {config}")


@contextmanager
def told() -> Iterator[IO[str]]:
    """A file for the output of processes. A RuntimeError raised inside is extended by its last lines."""
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            yield log
        except RuntimeError as error:
            log.seek(0)
            raise RuntimeError("\n".join([str(error), *log.read().splitlines()[-LAST_LINES:]])) from error
