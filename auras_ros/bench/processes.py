"""A robot's processes, run for a bench within its time limit and observed over topics; and its table, set meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from auras_ros.live.loop import Spin, process_output
from auras_ros.measure.minutes import OverError
from auras_ros.nodes.common.supervisor import Supervisor
from auras_ros.ros import Node, spin_once
from auras_ros.ros.msg import ParameterMsg, ParameterValue
from auras_ros.ros.srv import SetParameters

ANSWER_S = 5.0


@contextmanager
def running(node: Node, config: Path, overrides: dict[str, dict[str, Any]], end_s: float) -> Iterator[Spin]:
    """Run the config's processes; yields a function that spins the node. That function raises RuntimeError, with the
    processes' last lines, if a process ends, and OverError at end_s of the monotonic clock."""
    with process_output() as log, Supervisor(config, log=log, parameters=overrides) as supervisor:

        def spin(done: Callable[[], bool], seconds: float) -> None:
            until_s = time.monotonic() + seconds
            while not done() and (now_s := time.monotonic()) < until_s:
                if now_s >= end_s:
                    raise OverError
                spin_once(node, timeout_sec=0.1)
                if news := supervisor.poll():
                    raise RuntimeError(f"a process ended: {'; '.join(news)}")

        yield spin


def set_on_table(spin: Spin, table: Any, name: str, value: ParameterValue, shown: str) -> None:
    """Set a parameter of the simulated table. table: a client of its set_parameters. Raises RuntimeError, with what is
    shown of the value, if it does not take it."""
    spin(table.service_is_ready, ANSWER_S)
    asked = table.call_async(SetParameters.Request(parameters=[ParameterMsg(name=name, value=value)]))
    spin(asked.done, ANSWER_S)
    if not asked.done() or not asked.result().results[0].successful:
        why = asked.result().results[0].reason if asked.done() else f"no answer within {ANSWER_S:g} s"
        raise RuntimeError(f"the table did not take {name} {shown}: {why}")
