"""`auras sim SIM`: only the bridge of a simulator's world, to drive with an agent or controller of your own."""

from __future__ import annotations

from auras_ros import resources
from auras_ros.cli.command import command_parser, print_errors, print_warnings, refused_settings
from auras_ros.cli.demo_policy import DemoPolicy
from auras_ros.evaluate.fit import misfit
from auras_ros.nodes.common import discovery
from auras_ros.nodes.common.config import BRIDGE, ConfigError, bridge_alone, read_config, read_parameters_file
from auras_ros.sim.world import Sim
from auras_ros.sim.worlds import find

EXAMPLE = """
example
  auras sim pusht                       cameras, state and status out; publish your targets on /action
  auras sim pusht-drift                 the tee drifts
  auras sim pusht --config pusht_drift  with the parameters of a config
  auras sim lift                        robosuite's Lift, after auras doctor --sim lift --fix
  ros2 topic hz /camera/top/image_raw

The simulator is visible only on this machine unless ROS_AUTOMATIC_DISCOVERY_RANGE is SUBNET.
"""
NEXT = """next, in another shell: a controller of your own (docs/nodes-of-your-own.md)
  ros2 topic hz /camera/{camera}/image_raw   if ROS 2 is installed"""
POLICY = """or the included policy with its actuator; without ROS 2, `auras run {config}` starts all three
  ros2 launch auras_ros agent.launch.py config:={config}"""


def run(argv: list[str]) -> int:
    parser = command_parser("sim", __doc__, EXAMPLE)
    parser.add_argument(
        "sim", metavar="SIM", help="the world: pusht, pusht:drift_px=0.7; others: auras list simulators"
    )
    parser.add_argument("--config", help="parameter file, or the name of a shipped one (default: none)")
    options, ros_arguments = parser.parse_known_args(argv)
    with refused_settings(parser):
        sim = find(options.sim)
        sim.check()
    try:
        path = None if options.config is None else resources.config(options.config)
        config = bridge_alone(options.sim) if path is None else read_parameters_file(path)
    except (ConfigError, FileNotFoundError) as error:
        print_errors(error)
        return 2
    print_warnings(config.warnings)
    discovery.apply_range(config)
    from auras_ros.sim.bridge.node import main

    print(greeting(sim), flush=True)
    files = [] if path is None else ["--params-file", str(path)]
    files += [word for rule in config.supervision.remaps for word in rule.arguments()]
    ros_arguments = [a for a in ros_arguments if a != "--ros-args"]
    return int(main([BRIDGE, "--sim", options.sim, "--ros-args", *ros_arguments, *files]))


def greeting(sim: Sim) -> str:
    """The world's topics, and what to do next."""
    world, config = sim.world, config_of(sim)
    labels = ",".join(each.name for each in world.channels)
    bounds = ", ".join(f"{each.name} {each.low:g} to {each.high:g} {each.unit}" for each in world.channels)
    shown = [
        f"camera/{each.name}/image_raw (sensor_msgs/Image, {each.width}x{each.height} rgb8), "
        f"camera/{each.name}/image_raw/compressed, camera/{each.name}/camera_info"
        for each in world.cameras
    ]
    return "\n".join(
        [
            f"the world runs at {1000 / world.control_dt_ms:g} Hz until Ctrl-C; it waits for the first action",
            f"  out  {shown[0]}",
            *(f"       {each}" for each in shown[1:]),
            f"       joint_states (sensor_msgs/JointState), {world.name}/status (std_msgs/String: JSON)",
            f"  in   action (std_msgs/Float64MultiArray: {bounds}; layout.dim[0].label {labels})",
            f"  srv  {world.name}/reset (std_srvs/Trigger)",
            NEXT.format(camera=world.cameras[0].name),
            *([POLICY.format(config=config)] if config else []),
        ]
    )


def config_of(sim: Sim) -> str:
    """The included config of a world, which has the name of the world's node; empty if there is none, or if its policy
    does not fit the world with these options."""
    name = sim.world.name
    try:
        config = read_config(resources.find("config", f"{name}.yaml"))
    except FileNotFoundError:
        return ""
    policy = DemoPolicy.read(config.section("agent")["checkpoint"])
    fits = config.supervision.node(BRIDGE) == name and not misfit(policy.contract, policy.cameras, sim.world)
    return name if fits else ""
