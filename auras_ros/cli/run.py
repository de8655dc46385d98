"""`auras run CONFIG`: the nodes of a config under supervision, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from auras_ros import resources
from auras_ros.cli.figures import Figures
from auras_ros.nodes.common import discovery
from auras_ros.nodes.common.config import ConfigError
from auras_ros.nodes.common.supervisor import Supervisor, SupervisorError
from auras_ros.output import non_blocking_output

POLL_S = 0.1
EXAMPLE = """
example
  auras run config/pusht.yaml                       simulator, agent and actuator
  auras run config/pusht.yaml --namespace /left     the same under /left/...
  ros2 topic echo /action                           in another shell, if ROS 2 is installed

The config is a ROS 2 parameter file; `supervisor` in it lists the processes. A process that dies is restarted, after
0.5 s, then later each time, up to 8 s. A new agent drives only after somebody arms the actuator again:
  ros2 service call /actuator/arm std_srvs/srv/Trigger
A status line is printed now and then: state, episodes and successes, chunks per second, age of the observations.

Nodes are visible only on this machine, unless ROS_AUTOMATIC_DISCOVERY_RANGE, or discovery_range in the config, is
SUBNET.
"""


def config_path(given: str) -> Path:
    """A config by path, or by the name of a shipped one (with or without .yaml). Raises FileNotFoundError."""
    path = Path(given).expanduser()
    if path.is_file():
        return path
    name = path.name if path.suffix else f"{path.name}.yaml"
    return resources.find("config", name)


def run(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="auras run", description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", help="parameter file, or the name of a shipped one (pusht, pusht_drift)")
    parser.add_argument("--namespace", default="", help="put every node under this namespace, e.g. /left")
    options = parser.parse_args(argv)
    stopping: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.append(number)

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with non_blocking_output():  # unread output must not block the supervision
            return _supervise(options, stopping)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _supervise(options: argparse.Namespace, stopping: list[int]) -> int:
    figures = Figures(options.namespace)
    try:
        supervisor = Supervisor(config_path(options.config), namespace=options.namespace)
        found_by = discovery.apply_range(supervisor.read)
        with supervisor:
            for line in supervisor.warnings:
                print(f"warning: {line}", file=sys.stderr, flush=True)
            print(f"running {', '.join(supervisor.processes)}; Ctrl-C stops them", flush=True)
            print(f"discovery range: {found_by}", flush=True)
            while not stopping and supervisor.alive:
                for line in supervisor.poll():
                    print(f"[supervisor] {line}", file=sys.stderr, flush=True)
                figures.poll()
                time.sleep(POLL_S)
    except (ConfigError, SupervisorError, FileNotFoundError) as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2
    finally:
        figures.close()
    print("stopped", flush=True)
    return 0 if stopping else 1
