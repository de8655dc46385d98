"""`auras sim pusht`: only the simulator's bridge, to drive with an agent or controller of your own."""

from __future__ import annotations

import argparse
from pathlib import Path

from auras_ros.cli.run import config_path
from auras_ros.nodes import reach

EXAMPLE = """
example
  auras sim pusht                       cameras, state and status out; publish your targets on /action
  auras sim pusht --config pusht_drift  the tee drifts
  ros2 topic hz /camera/top/image_raw

The simulator is found on this machine alone unless ROS_AUTOMATIC_DISCOVERY_RANGE says SUBNET.
"""


def run(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="auras sim", description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("simulator", choices=["pusht"], help="which simulator")
    parser.add_argument("--config", default="pusht", help="parameter file, or the name of one that ships")
    options, ros_arguments = parser.parse_known_args(argv)
    from auras_ros.sim.pusht_bridge import main

    path: Path = config_path(options.config)
    reach.settle(path)
    ros_arguments = [a for a in ros_arguments if a != "--ros-args"]
    return int(main(["pusht_bridge", "--ros-args", "--params-file", str(path), *ros_arguments]))
