"""The enclave of SROS 2 that a process is started in: its own, so that it has no other process's permissions."""

from __future__ import annotations

import os

ENABLE = "ROS_SECURITY_ENABLE"
OVERRIDE = "ROS_SECURITY_ENCLAVE_OVERRIDE"


def enclave_variables(node: str, namespace: str) -> dict[str, str]:
    """The environment variables that put a process into the enclave with the full name of its node, as `auras security`
    lists it. None if security is not enabled. They replace the enclave of whoever starts it."""
    if os.environ.get(ENABLE) != "true":
        return {}
    under = namespace.strip("/")
    return {OVERRIDE: f"/{under}/{node}" if under else f"/{node}"}
