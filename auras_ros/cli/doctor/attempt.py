"""A process that starts as those of `auras run` do, on the same discovery range, and prints which ROS 2 it uses.

usage: python -m auras_ros.cli.doctor.attempt

It prints a JSON object a line: which ROS 2, then the range, then that the participant was made or the error. It is a
process of its own because what it tries can end it: rcl exits if RMW_IMPLEMENTATION names what is not installed,
libddsc aborts over some configurations, and the libraries of two installations crash.
"""

from __future__ import annotations

import json
from importlib import metadata

from auras_ros import resources
from auras_ros.nodes.common import discovery
from auras_ros.nodes.common.config import read_config

CONFIG = "pusht"  # of this the range alone is used


def main() -> None:
    try:
        _try_start()
    except Exception as error:  # noqa: BLE001  any exception is the answer
        kind = type(error).__name__
        remedy = getattr(error, "remedy", "")
        text = getattr(error, "reason", "") if remedy else str(error)
        _print(error=text or kind, kind=kind, remedy=remedy)


def _try_start() -> None:
    from auras_ros.ros import supported
    from auras_ros.ros.backend import CHOICE

    _print(backend=CHOICE.backend, reason=CHOICE.reason)
    if CHOICE.backend == "rclpy":
        used = supported.in_use()
        _print(rclpy=used.rclpy, distribution=used.distribution, rmw=used.rmw, warning=supported.warning(used))
    else:
        _print(cyclonedds=metadata.version("cyclonedds"))
    discovery.apply_range(read_config(resources.config(CONFIG)))
    _print(range=discovery.effective_range())

    from auras_ros.live.loop import own_node

    with own_node("auras_doctor"):
        _print(started=True)


def _print(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
