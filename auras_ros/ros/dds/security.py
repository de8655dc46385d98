"""DDS security, requested by ROS's variables: refused if it is enforced, otherwise a warning.

Cyclone DDS has the plugins; the wheel's libddsc is built without them (it does not know the element <Security> and
cannot create a participant with keys). So a node of this layer can neither authenticate nor encrypt. Under rclpy the
RMW does both, and this module is not used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

ENABLE, STRATEGY = "ROS_SECURITY_ENABLE", "ROS_SECURITY_STRATEGY"
_REASON = "the Cyclone DDS of the cyclonedds wheel is built without DDS security"


class SecurityError(ValueError):
    """Security is enforced and not available, or its variables are invalid."""


def check(environment: Mapping[str, str] = os.environ) -> str:
    """Returns a warning, empty if security is off. Raises SecurityError if it is enforced, or if a variable has a value
    that ROS does not know: a misspelt value is not silently ignored."""
    if _one_of(environment, ENABLE, ("false", "true")) != "true":
        return ""  # then the strategy has no meaning, as in ROS 2
    if _one_of(environment, STRATEGY, ("Permissive", "Enforce")) == "Enforce":
        raise SecurityError(
            f"{ENABLE}=true and {STRATEGY}=Enforce, but {_REASON}: run under rclpy (source a ROS 2 installation), "
            f"or unset {ENABLE} and keep to this machine (ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST)"
        )
    return (
        f"{ENABLE}=true, but {_REASON}: this node has no keys. Every participant in the domain can hear and "
        f"command it, except those with keys ({STRATEGY}=Enforce: this node refuses to start)"
    )


def _one_of(environment: Mapping[str, str], name: str, words: tuple[str, str]) -> str:
    """The variable's value; if it is empty, the first word."""
    value = environment.get(name, "") or words[0]
    if value not in words:
        raise SecurityError(f"{name} is {value!r}, expected {words[0]} or {words[1]}")
    return value
