"""A robot's processes, run for a bench and heard over topics, as long as the bench's minutes last."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from auras_ros.live.loop import Spin, told
from auras_ros.measure.minutes import OverError
from auras_ros.nodes.common.supervisor import Supervisor
from auras_ros.ros import Node, spin_once


@contextmanager
def running(node: Node, config: Path, overrides: dict[str, dict[str, Any]], end_s: float) -> Iterator[Spin]:
    """The config's processes, and a way to let time pass, at most until end_s of the monotonic clock. It raises
    RuntimeError where a process ends, with the last words of all, and OverError at end_s."""
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
