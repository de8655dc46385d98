"""Errors of the middleware for a user's settings when a node is built: invalid names, discovery variables, keys."""

from __future__ import annotations

import os

from .backend import BACKEND

SETTINGS_ERRORS: tuple[type[Exception], ...]

if BACKEND == "rclpy":
    from rclpy.exceptions import NameValidationException

    SETTINGS_ERRORS = (NameValidationException,)
else:
    from .dds.names import InvalidNameError
    from .ranges import ConfigurationError

    SETTINGS_ERRORS = (ConfigurationError, InvalidNameError)

# Words in what rcl says when it finds no keys, or an RMW that cannot use them.
SECURITY_WORDS = ("secur", "failed to initialize rcl")


def security_remedy(error: Exception) -> str:
    """What to do about an error of rcl's because of keys (SROS 2); empty for any other error."""
    is_asked_for = BACKEND == "rclpy" and os.environ.get("ROS_SECURITY_ENABLE") == "true"
    if not is_asked_for or not any(word in str(error).lower() for word in SECURITY_WORDS):
        return ""
    enclave = os.environ.get("ROS_SECURITY_ENCLAVE_OVERRIDE") or "/"
    return (
        f"ROS_SECURITY_ENABLE is true: ROS_SECURITY_KEYSTORE must name a keystore that has the enclave {enclave} "
        "(docs/security-enclaves.md), and the RMW must be built with DDS security, which that of the rclpy wheels "
        "is not"
    )
