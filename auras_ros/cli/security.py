"""`auras security CONFIG`: the SROS 2 policy file of a config's nodes, and of who uses them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence

from auras_ros import resources
from auras_ros.cli.command import command_parser, print_errors, print_warnings, refused_settings
from auras_ros.nodes.actuator.settings import ActuatorSettings
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.button.endpoints import endpoints as endpoints_of_button
from auras_ros.nodes.button.settings import ButtonSettings
from auras_ros.nodes.common.config import BRIDGE, ConfigError, NodeConfig, read_config
from auras_ros.nodes.vlm.settings import VlmSettings
from auras_ros.ros.endpoints import Endpoints
from auras_ros.ros.security_policy import policy_text
from auras_ros.topic_names import image_topic, read_remaps

ENDPOINTS = {  # executable -> the module whose `endpoints(settings)` says what its nodes use
    "actuator": "auras_ros.nodes.actuator.endpoints",
    "agent": "auras_ros.nodes.agent.endpoints",
    "vlm": "auras_ros.nodes.vlm.endpoints",
    BRIDGE: "auras_ros.sim.bridge.endpoints",
}
# What a robot's own drivers say and hear. Nothing of ours checks it: change it to what they really use.
SENSORS = ("joint_states", "camera/*", "robot_description")
EXAMPLE = """
example
  auras security config/two_arms.yaml > policy.xml
  ros2 security create_keystore keys
  ros2 security generate_artifacts -k keys -p policy.xml
  export ROS_SECURITY_KEYSTORE=$PWD/keys ROS_SECURITY_ENABLE=true ROS_SECURITY_STRATEGY=Enforce
  ROS_SECURITY_ENCLAVE_OVERRIDE=/operator auras run config/two_arms.yaml

Enclaves: each process of the config by its node's name; /buttons/TOPIC for each emergency stop; /drivers for the
robot's own drivers; /operator for a person: it hears everything and calls every service. `auras run` and the launch
files start each process in its enclave. What is not in the file is denied. docs/security-enclaves.md says what this
stops, and what has been tried.
"""


def run(argv: list[str]) -> int:
    """Returns 0, or 2 if the config is invalid."""
    parser = command_parser("security", __doc__, EXAMPLE)
    parser.add_argument("config", help="parameter file, or the name of a shipped one")
    parser.add_argument("--namespace", default="", help="the namespace that `auras run` puts every node under")
    parser.add_argument(
        "-r", "--remap", action="append", default=[], metavar="FROM:=TO", help="the rules that `auras run` is given"
    )
    options = parser.parse_args(argv)
    with refused_settings(parser):
        given = read_remaps(options.remap)
    try:
        config = read_config(resources.config(options.config))
    except (ConfigError, OSError) as error:
        print_errors(error)
        return 2
    print_warnings(config.warnings)
    namespace = f"/{options.namespace.strip('/')}" if options.namespace.strip("/") else ""
    enclaves = {f"{namespace}{path}": nodes for path, nodes in enclaves_of(config).items()}
    print(policy_text(enclaves, namespace, (*given, *config.supervision.remaps)), end="")
    return 0


def enclaves_of(config: NodeConfig) -> dict[str, list[Endpoints]]:
    """Enclave -> the nodes in it. Paths without the namespace, names as the nodes give them."""
    ours = {config.supervision.node(name): _nodes(config, name) for name in config.supervision.processes}
    enclaves = {f"/{name}": nodes for name, nodes in ours.items()}
    if "actuator" in ours:
        actuator = config.settings("actuator")
        for topic in actuator.emergency_stops:
            button = ButtonSettings(topic=topic, emergency_stop_key_file=actuator.emergency_stop_key_file)
            enclaves[f"/buttons/{topic.strip('~/')}"] = endpoints_of_button(button)
        if BRIDGE not in config.supervision.processes:
            enclaves["/drivers"] = [_drivers(config, actuator)]
    enclaves["/operator"] = [_operator(ours)]
    return enclaves


def _nodes(config: NodeConfig, executable: str) -> list[Endpoints]:
    make: Callable[..., list[Endpoints]] = importlib.import_module(ENDPOINTS[executable]).endpoints
    return make(config.settings(config.supervision.node(executable)))


def _drivers(config: NodeConfig, settings: ActuatorSettings) -> Endpoints:
    """The robot's own drivers, with the topics that the config names for cameras and joint states."""
    named = [settings.joint_states_topic]
    started = config.supervision.processes
    if "agent" in started:
        agent: AgentSettings = config.settings("agent")
        named += [agent.joint_states_topic, *_images(agent.topics_of_cameras(), compressed=agent.compressed)]
    if "vlm" in started:
        vlm: VlmSettings = config.settings("vlm")
        named += _images(vlm.topics_of_cameras(), compressed=vlm.compressed)
    publishes = tuple(dict.fromkeys((*SENSORS, *named)))
    node = Endpoints("drivers", publishes=publishes, subscribes=settings.command_topics)
    return node.with_those_of_every_node()


def _images(topics: Mapping[str, str], *, compressed: bool) -> list[str]:
    return [image_topic(camera, topics, compressed=compressed) for camera in topics]


def _operator(ours: Mapping[str, Sequence[Endpoints]]) -> Endpoints:
    """Hears what our nodes publish and calls what they serve; also says what is wanted of agent and vlm."""
    nodes = [node for each in ours.values() for node in each]
    wanted = {"agent": "prompt", "vlm": "question"}
    return Endpoints(
        "operator",
        publishes=(*(topic for name, topic in wanted.items() if name in ours), "/parameter_events", "/rosout"),
        subscribes=tuple(_shared(name, node) for node in nodes for name in node.publishes),
        calls=tuple(_shared(name, node) for node in nodes for name in node.serves),
    )


def _shared(name: str, node: Endpoints) -> str:
    """A node's private name as others write it."""
    return f"{node.node}/{name[2:]}" if name.startswith("~/") else name
