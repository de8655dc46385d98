"""The discovery range that ROS's environment variables ask for, on every ROS.

rcl goes on with its default, the whole network, if it does not know the value; here such a value is refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

RANGES = ("SUBNET", "LOCALHOST", "OFF", "SYSTEM_DEFAULT")


class ConfigurationError(ValueError):
    """The environment's discovery variables cannot be used; the message names the variable."""


def discovery_range(environment: Mapping[str, str] = os.environ) -> str:
    """One of RANGES; ROS_LOCALHOST_ONLY=1 wins over ROS_AUTOMATIC_DISCOVERY_RANGE, as in Jazzy."""
    if environment.get("ROS_LOCALHOST_ONLY", "0") == "1":
        return "LOCALHOST"
    value = environment.get("ROS_AUTOMATIC_DISCOVERY_RANGE", "") or "SUBNET"
    if value not in RANGES:
        raise ConfigurationError(f"ROS_AUTOMATIC_DISCOVERY_RANGE is {value!r}, expected one of {', '.join(RANGES)}")
    return value
