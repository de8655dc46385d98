"""`auras sim pusht`: only the simulator's bridge, to drive with an agent or controller of your own."""

from __future__ import annotations

from auras_ros import resources
from auras_ros.cli.command import command_parser, print_errors, print_warnings
from auras_ros.nodes.common import discovery
from auras_ros.nodes.common.config import ConfigError, read_parameters_file

GREETING = """the table runs at 10 Hz until Ctrl-C; it waits for the first action
  out  camera/top/image_raw (sensor_msgs/Image, 96x96 rgb8), camera/top/image_raw/compressed
       joint_states (sensor_msgs/JointState: agent_x, agent_y, in px), pusht/status (std_msgs/String: JSON)
  in   action (std_msgs/Float64MultiArray: data [x, y] in 0 to 512; layout.dim[0].label agent_x,agent_y)
  srv  pusht/reset (std_srvs/Trigger)
next, in another shell: a controller of your own (docs/nodes-of-your-own.md), or the policy with its actuator:
  ros2 topic hz /camera/top/image_raw                   if ROS 2 is installed
  ros2 launch auras_ros agent.launch.py config:=pusht   the same; without ROS 2, `auras run pusht` starts all three"""
EXAMPLE = """
example
  auras sim pusht                       cameras, state and status out; publish your targets on /action
  auras sim pusht --config pusht_drift  the tee drifts
  ros2 topic hz /camera/top/image_raw

The simulator is visible only on this machine unless ROS_AUTOMATIC_DISCOVERY_RANGE is SUBNET.
"""


def run(argv: list[str]) -> int:
    parser = command_parser("sim", __doc__, EXAMPLE)
    parser.add_argument("simulator", choices=["pusht"], help="which simulator")
    parser.add_argument("--config", default="pusht", help="parameter file, or the name of a shipped one")
    options, ros_arguments = parser.parse_known_args(argv)
    try:
        path = resources.config(options.config)
        config = read_parameters_file(path)
    except (ConfigError, FileNotFoundError) as error:
        print_errors(error)
        return 2
    print_warnings(config.warnings)
    discovery.apply_range(config)
    from auras_ros.sim.pusht_bridge import main

    print(GREETING, flush=True)
    ros_arguments = [a for a in ros_arguments if a != "--ros-args"]
    return int(main(["pusht_bridge", "--ros-args", "--params-file", str(path), *ros_arguments]))
