"""Discovery: who may find the nodes that `auras run`, `auras sim` and `auras demo` start; by default only this machine.

The environment takes precedence, as everywhere in ROS 2; then `discovery_range` in the supervisor's section of the
configuration, as robots set it; then LOCALHOST. So a simulator never joins a robot's network by accident.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping

from auras_ros.nodes.common.config import NodeConfig

VARIABLE, OLD_VARIABLE = "ROS_AUTOMATIC_DISCOVERY_RANGE", "ROS_LOCALHOST_ONLY"
KEY, DEFAULT = "discovery_range", "LOCALHOST"


def effective_range(environment: Mapping[str, str] = os.environ) -> str:
    """The range that ROS 2 uses in this environment; SUBNET if none is set."""
    if environment.get(OLD_VARIABLE, "") == "1":
        return "LOCALHOST"
    return environment.get(VARIABLE, "") or "SUBNET"


def is_set(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment sets a range."""
    return any(environment.get(name, "") for name in (OLD_VARIABLE, VARIABLE))


def apply_range(config: NodeConfig, environment: MutableMapping[str, str] = os.environ) -> str:
    """Set the range for this process and its children, unless the environment does. Returns the range and its source
    as text."""
    word = config.supervision.discovery_range
    if is_set(environment):
        return f"{effective_range(environment)}, set by the environment"
    environment[VARIABLE] = word or DEFAULT
    if word:
        return f"{word}, set by {config.path.name}"
    alone = ", only this machine" if _keeps_the_network_out(environment) else ""
    return f"{DEFAULT}{alone} (SUBNET: {VARIABLE} or {KEY})"


def _keeps_the_network_out(environment: Mapping[str, str]) -> bool:
    """Whether no other machine can reach processes with LOCALHOST. The user's settings may open it, and so may an
    RMW that we do not configure."""
    from auras_ros.ros import BACKEND, fastdds  # imported late, because reading configs needs no ROS

    if BACKEND == "dds":
        return not environment.get("CYCLONEDDS_URI")
    return fastdds.choose(fastdds.fastdds_version(), environment).confines
