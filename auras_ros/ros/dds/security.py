"""DDS security, asked for by ROS's variables: refused where it is enforced, said aloud where it is not.

Cyclone DDS has the plugins; the wheel's libddsc is built without them (it does not know the element <Security> and
makes no participant with keys). So a node of this layer can be neither authenticated nor encrypted. Under rclpy the
RMW does both, and this module is not asked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

ENABLE, STRATEGY = "ROS_SECURITY_ENABLE", "ROS_SECURITY_STRATEGY"
_REASON = "the Cyclone DDS of the cyclonedds wheel is built without DDS security"


class SecurityError(ValueError):
    """Security is enforced and cannot be had, or its variables cannot be read."""


def check(environment: Mapping[str, str] = os.environ) -> str:
    """A warning, empty where security is off. Raises SecurityError where it is enforced, or asked for in words that
    are none of ROS's: one that is misspelt is not left out in silence."""
    if _one_of(environment, ENABLE, ("false", "true")) != "true":
        return ""  # the strategy is of no meaning then, as in ROS 2
    if _one_of(environment, STRATEGY, ("Permissive", "Enforce")) == "Enforce":
        raise SecurityError(
            f"{ENABLE}=true and {STRATEGY}=Enforce, but {_REASON}: run under rclpy (source a ROS 2 installation), "
            f"or unset {ENABLE} and keep to this machine (ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST)"
        )
    return (
        f"{ENABLE}=true, but {_REASON}: this node has no keys. Everybody in the domain may hear and command it, and "
        f"nodes with keys do not ({STRATEGY}=Enforce refuses to start instead)"
    )


def _one_of(environment: Mapping[str, str], name: str, words: tuple[str, str]) -> str:
    """The variable's value, the first word where it is empty."""
    value = environment.get(name, "") or words[0]
    if value not in words:
        raise SecurityError(f"{name} is {value!r}, expected {words[0]} or {words[1]}")
    return value
