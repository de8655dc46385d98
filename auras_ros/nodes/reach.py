"""Who may find what `auras run`, `auras sim` and `auras demo` start: this machine alone, unless somebody says more.

The environment's word wins, as everywhere in ROS 2; then `discovery_range` in the supervisor's section of the
configuration, which a robot's says; then LOCALHOST. A simulator never gets into a robot's network by accident.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

import yaml

from auras_ros.nodes.supervisor import SupervisorError

VARIABLE, OLD_VARIABLE = "ROS_AUTOMATIC_DISCOVERY_RANGE", "ROS_LOCALHOST_ONLY"
RANGES = ("SUBNET", "LOCALHOST", "OFF", "SYSTEM_DEFAULT")
KEY, DEFAULT = "discovery_range", "LOCALHOST"


def configured(path: Path) -> str:
    """The configuration's word, empty where it has none. Raises SupervisorError for one that is no range of ROS's.

    What else may be wrong with the file is said by whoever reads its processes.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        word = data["supervisor"]["ros__parameters"].get(KEY, "")
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return ""
    if word not in ("", *RANGES):
        raise SupervisorError(f"{path}: supervisor {KEY}: expected one of {', '.join(RANGES)}, got {word!r}")
    return str(word)


def followed(environment: Mapping[str, str] = os.environ) -> str:
    """The range that ROS 2 takes from this environment; SUBNET where it says nothing."""
    if environment.get(OLD_VARIABLE, "") == "1":
        return "LOCALHOST"
    return environment.get(VARIABLE, "") or "SUBNET"


def said(environment: Mapping[str, str] = os.environ) -> bool:
    """True where the environment has a word of its own."""
    return any(environment.get(name, "") for name in (OLD_VARIABLE, VARIABLE))


def settle(path: Path, environment: MutableMapping[str, str] = os.environ) -> str:
    """Set the range for this process and its children where the environment says nothing. Returns who said which."""
    word = configured(path)
    if said(environment):
        return f"{followed(environment)}, as the environment says"
    environment[VARIABLE] = word or DEFAULT
    return f"{word}, as {path.name} says" if word else f"{DEFAULT}, this machine alone (SUBNET: {VARIABLE} or {KEY})"
