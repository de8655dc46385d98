"""Who may find what `auras run`, `auras sim` and `auras demo` start: this machine alone, unless somebody says more.

The environment's word wins, as everywhere in ROS 2; then `discovery_range` in the supervisor's section of the
configuration, which a robot's says; then LOCALHOST. A simulator never gets into a robot's network by accident.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping

from auras_ros.nodes.common.config import NodeConfig

VARIABLE, OLD_VARIABLE = "ROS_AUTOMATIC_DISCOVERY_RANGE", "ROS_LOCALHOST_ONLY"
KEY, DEFAULT = "discovery_range", "LOCALHOST"


def followed(environment: Mapping[str, str] = os.environ) -> str:
    """The range that ROS 2 takes from this environment; SUBNET where it says nothing."""
    if environment.get(OLD_VARIABLE, "") == "1":
        return "LOCALHOST"
    return environment.get(VARIABLE, "") or "SUBNET"


def said(environment: Mapping[str, str] = os.environ) -> bool:
    """True where the environment has a word of its own."""
    return any(environment.get(name, "") for name in (OLD_VARIABLE, VARIABLE))


def settle(config: NodeConfig, environment: MutableMapping[str, str] = os.environ) -> str:
    """Set the range for this process and its children where the environment says nothing. Returns who said which."""
    word = config.supervision.discovery_range
    if said(environment):
        return f"{followed(environment)}, as the environment says"
    environment[VARIABLE] = word or DEFAULT
    if word:
        return f"{word}, as {config.path.name} says"
    from auras_ros.ros import BACKEND  # not before it is needed: who only reads configs needs no ROS

    alone = BACKEND == "dds" and not environment.get("CYCLONEDDS_URI")  # elsewhere the RMW decides what that means
    return f"{DEFAULT}{', this machine alone' if alone else ''} (SUBNET: {VARIABLE} or {KEY})"
