"""`auras run CONFIG`: the nodes of a config under supervision, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import sys
import time
from contextlib import closing

from auras_ros import resources
from auras_ros.cli.command import command_parser, print_errors, print_warnings, refused_settings, stop_signals
from auras_ros.cli.status_line import LoopTopics, status_lines
from auras_ros.nodes.common import discovery
from auras_ros.nodes.common.config import BRIDGE, ConfigError
from auras_ros.nodes.common.supervisor import Supervisor, SupervisorError
from auras_ros.output import non_blocking_output
from auras_ros.ros import supported
from auras_ros.topic_names import read_remaps

POLL_S = 0.1
EXAMPLE = """
example
  auras run config/pusht.yaml                       simulator, agent and actuator
  auras run config/pusht.yaml --namespace /left     the same under /left/...
  auras run lift                                    robosuite's Lift, after auras doctor --sim lift --fix
  auras run my_robot.yaml --remap joint_states:=/robot/joint_states     for every node; also `remap` in the config
  ros2 topic echo /action                           in another shell, if ROS 2 is installed

The config is a ROS 2 parameter file; `supervisor` in it lists the processes. A process that dies is restarted, after
0.5 s, then later each time, up to 8 s. A new agent drives only after somebody arms the actuator again:
  ros2 service call /actuator/arm std_srvs/srv/Trigger
A status line is printed now and then: state, episodes and successes, chunks per second, age of the observations.

Nodes are visible only on this machine, unless ROS_AUTOMATIC_DISCOVERY_RANGE, or discovery_range in the config, is
SUBNET.
"""


def run(argv: list[str]) -> int:
    parser = command_parser("run", __doc__, EXAMPLE)
    parser.add_argument("config", help="parameter file, or the name of a shipped one (pusht, pusht_drift, lift)")
    parser.add_argument("--namespace", default="", help="put every node under this namespace, e.g. /left")
    parser.add_argument(
        "-r", "--remap", action="append", default=[], metavar="FROM:=TO",
        help="remap a topic or service for every node, as ros2 run does; [NODE:]FROM:=TO for one node; may be repeated",
    )  # fmt: skip
    options = parser.parse_args(argv)
    with refused_settings(parser):
        remaps = read_remaps(options.remap)
    with stop_signals() as stopping, non_blocking_output():  # unread output must not block the supervision
        try:
            supervisor = Supervisor(resources.config(options.config), namespace=options.namespace, remaps=remaps)
            found_by = discovery.apply_range(supervisor.read)
            never_run = supported.check()
            world = supervisor.read.supervision.node(BRIDGE)
            topics = LoopTopics.of(supervisor.read, options.namespace, supervisor.remaps)
            with closing(status_lines(world, options.namespace, topics)) as status, supervisor:
                print_warnings([*supervisor.warnings, *([never_run] if never_run else [])])
                print(f"running {', '.join(supervisor.processes)}; Ctrl-C stops them", flush=True)
                print(f"discovery range: {found_by}", flush=True)
                while not stopping and supervisor.alive:
                    for line in supervisor.poll():
                        print(f"[supervisor] {line}", file=sys.stderr, flush=True)
                    next(status)
                    time.sleep(POLL_S)
        except (ConfigError, SupervisorError, FileNotFoundError, supported.UnsupportedRosError) as error:
            print_errors(error)
            return 2
        print("stopped", flush=True)
        return 0 if stopping else 1
