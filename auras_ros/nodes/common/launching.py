"""What `ros2 launch` starts: the processes of a configuration, with lifecycle nodes brought through their life cycle.

Each of the files in launch/ starts one side. Which processes run, and with which parameters, is in the YAML file
that `auras run` reads too; the launch arguments only set how they are deployed. `launch` and `launch_ros` belong to ROS
2 and are imported here and in `bring_up` alone: everything else works without them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    LogInfo,
    OpaqueFunction,
    RegisterEventHandler,
    TimerAction,
)
from launch.event_handlers import OnProcessExit
from launch.events import matches_action
from launch.events.process import ShutdownProcess
from launch.launch_description import LaunchDescription
from launch_ros.actions import LifecycleNode, Node

from auras_ros import resources
from auras_ros.exit_status import BAD_SETTINGS
from auras_ros.nodes.common import discovery
from auras_ros.nodes.common.bring_up import RETRY_DELAYS_S, BringUp
from auras_ros.nodes.common.config import BRIDGE, LIFECYCLE, NodeConfig, bridge_alone, read_config
from auras_ros.nodes.common.enclave import enclave_variables
from auras_ros.nodes.common.supervisor import BRAKING_S
from auras_ros.topic_names import read_remaps

ACTUATOR, VLM = "actuator", "vlm"
DEFAULT_CONFIG = "pusht"
RESPAWN_DELAY_S = RETRY_DELAYS_S[0]  # not 0: in this time a process that must not be restarted is shut down
STEADY_S = 60.0  # after an actuator has run this long, the shortest pause is used again
# A `ros2 launch` that is killed, or gets SIGTERM, leaves its processes running. With this the kernel ends them.
WITH_PARENT = "setpriv --pdeathsig TERM --"
AS_CONFIGURED = "true or false; empty: as the configuration says"
ARGUMENTS = {  # name -> default, description
    "config": (DEFAULT_CONFIG, "YAML file or shipped name"),
    "namespace": ("", "namespace of every node"),
    "respawn": ("", f"restart ended processes: {AS_CONFIGURED}"),
    "use_sim_time": ("", f"follow /clock: {AS_CONFIGURED}"),
    "end_with_launch": ("false", "true: SIGTERM the processes however ros2 launch ends"),
    "remap": ("", "remapping rules for every node, such as joint_states:=/robot/joint_states, separated by commas"),
    "log_level": ("info", "debug, info, warn, error or fatal"),
}
OF_THE_SIMULATOR = {
    "sim": ("", "world, one of `auras list simulators`, as pusht:drift_px=0.5; empty: as the configuration says"),
    "config": ("", "YAML file or shipped name; empty: none with sim:=, else pusht"),
}


def robot_side() -> LaunchDescription:
    """Everything except the simulator's bridge: actuator, agent and vision-language model."""
    return _description("process of the robot's side", lambda executable: executable != BRIDGE)


def simulator_side() -> LaunchDescription:
    """The simulator's bridge, instead of a robot."""
    return _description("simulator's bridge", lambda executable: executable == BRIDGE, OF_THE_SIMULATOR)


def vlm_alone() -> LaunchDescription:
    """The vision-language model, and nothing else of the configuration."""
    return _description("vlm", lambda executable: executable == VLM)


def _description(
    what: str, chosen: Callable[[str], bool], more: dict[str, tuple[str, str]] | None = None
) -> LaunchDescription:
    """what: the processes of a configuration that are chosen, in words. more: arguments beside, or instead of, those
    of every side."""
    arguments = [
        DeclareLaunchArgument(name, default_value=default, description=description)
        for name, (default, description) in {**ARGUMENTS, **(more or {})}.items()
    ]
    return LaunchDescription([*arguments, OpaqueFunction(function=_actions, args=[what, chosen])])


def _actions(context: Any, what: str, chosen: Callable[[str], bool]) -> list[Any]:
    """The launch actions for these arguments. Raises FileNotFoundError, ValueError or RuntimeError by name, as
    `auras run` does."""
    arguments: dict[str, str] = context.launch_configurations
    config = _config(arguments["config"], arguments.get("sim", ""))
    executables = [each for each in config.supervision.processes if chosen(each)]
    if not executables:
        raise RuntimeError(f"{config.path}: supervisor.processes lists no {what}")
    respawn = _flag(arguments, "respawn")
    given = [rule.strip() for rule in arguments["remap"].split(",") if rule.strip()]
    remaps = (*read_remaps(given), *config.supervision.remaps)  # of two rules for one name, ROS 2 takes the first
    rule_words = [word for rule in remaps for word in rule.arguments()]
    options = {
        "namespace": arguments["namespace"],
        "ros_arguments": ["--log-level", arguments["log_level"], *rule_words],
        "output": "screen",
        "respawn": config.supervision.respawn if respawn is None else respawn,
        "respawn_delay": RESPAWN_DELAY_S,
    }
    if _flag(arguments, "end_with_launch"):
        options["prefix"] = WITH_PARENT
    sim_time = _flag(arguments, "use_sim_time")
    actions: list[Any] = [LogInfo(msg=f"warning: {each}") for each in config.warnings]
    word, effective = config.supervision.discovery_range, discovery.effective_range()
    if word not in ("", effective):  # `ros2 launch` and its own node could not control nodes with another range
        text = f"{config.path.name} sets {discovery.KEY} {word}; ros2 launch uses the environment's: {effective}"
        actions.append(LogInfo(msg=f"{text} ({discovery.VARIABLE})"))
    for executable in executables:
        name = config.supervision.node(executable)
        own = {
            "name": name,
            "parameters": _parameters(config, executable, sim_time),
            "additional_env": enclave_variables(name, arguments["namespace"]),
        }
        if executable == BRIDGE:
            own["arguments"] = ["--sim", config.supervision.sim]
        actions += _start(executable, {**own, **options})
    return actions


def _config(name: str, sim: str) -> NodeConfig:
    """The configuration of this name; with `sim` it is that world's bridge which is started, with the world's own
    parameters where there is no configuration."""
    if sim and not name:
        return bridge_alone(sim)
    config = read_config(resources.config(name or DEFAULT_CONFIG).resolve())
    return replace(config, supervision=replace(config.supervision, processes=(BRIDGE,), sim=sim)) if sim else config


def _start(executable: str, options: dict[str, Any]) -> list[Any]:
    """The actions that start one process; lifecycle handlers come before the process that they handle."""
    common = {"package": "auras_ros", "executable": executable, **options}
    if executable == ACTUATOR:  # from SIGINT on, launch waits for 5 s, sends SIGTERM, and kills after this
        common["sigkill_timeout"] = str(BRAKING_S)
    if executable == ACTUATOR and options["respawn"]:
        return _start_actuator(common)
    if executable not in LIFECYCLE:
        plain = Node(**common)
        return [_give_up(plain), plain]
    node = LifecycleNode(**common)
    return [_give_up(node), *BringUp(node).handlers(), node]


def _start_actuator(common: dict[str, Any], began_s: float | None = None, early: int = 0) -> list[Any]:
    """The actuator is restarted from here, after a growing delay, and not by `respawn`: that repeats the command line,
    and a restarted actuator must not arm itself. began_s: when it should start, None: now; early: how many actuators
    before it ended within STEADY_S."""
    begins_s = time.monotonic() if began_s is None else began_s
    node = Node(**{**common, "respawn": False})
    again = {**common, "parameters": [*common["parameters"], {"arm_on_start": False}]}

    def on_exit(event: Any, context: Any) -> list[Any]:
        if event.returncode == BAD_SETTINGS:
            return [LogInfo(msg=_not_again(node))]
        if context.is_shutdown:
            return []
        now_s = time.monotonic()
        ended = 0 if now_s - begins_s > STEADY_S else early
        pause_s = RETRY_DELAYS_S[min(ended, len(RETRY_DELAYS_S) - 1)]
        return [TimerAction(period=pause_s, actions=_start_actuator(again, now_s + pause_s, ended + 1))]

    return [RegisterEventHandler(OnProcessExit(target_action=node, on_exit=on_exit)), node]


def _not_again(node: Any) -> str:
    return f"{node.node_name} cannot start with these settings, see its own message: not restarted"


def _give_up(node: Any) -> Any:
    """Do not restart a process that cannot start with its settings: `respawn` ignores exit statuses.

    Between an end and the next start `launch` waits for this shutdown event, as it does for its own shutdown.
    """

    def on_exit(event: Any, context: Any) -> list[Any]:
        if event.returncode != BAD_SETTINGS:
            return []
        return [LogInfo(msg=_not_again(node)), EmitEvent(event=ShutdownProcess(process_matcher=matches_action(node)))]

    return RegisterEventHandler(OnProcessExit(target_action=node, on_exit=on_exit))


def _flag(arguments: dict[str, str], name: str) -> bool | None:
    """A launch argument: true, false, or None (as configured)."""
    known = {"": None, "true": True, "false": False}
    text = arguments[name].lower()
    if text not in known:
        raise ValueError(f"launch argument {name}:={arguments[name]}: expected true or false")
    return known[text]


def _parameters(config: NodeConfig, executable: str, sim_time: bool | None) -> list[Any]:
    """The configuration's file, then the node's parameters again, plus those of the deployment. Needed because in a
    file a plain name only means a node in the root namespace."""
    node = config.supervision.node(executable)
    own = config.section(node) if node in config.sections else {}
    if executable in LIFECYCLE:
        own["autostart"] = False  # BringUp configures it
    if sim_time is not None:
        own["use_sim_time"] = sim_time
    return [*([str(config.path)] if config.path.name else []), *([own] if own else [])]
