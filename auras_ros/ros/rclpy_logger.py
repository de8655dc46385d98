"""Control characters in rclpy's log lines are escaped, as our layer's logger does it (`output.escaped`).

rclpy gives every line, of whichever logger, to one function of its C extension, which prints it and publishes it on
/rosout. That function is replaced in this process: a logger of our own would change the place in the code that rclpy
takes for the caller, by which it throttles.
"""

from __future__ import annotations

import importlib
from typing import Any

from auras_ros.output import escaped

FUNCTION = "rclpy_logging_rcutils_log"


_failure = ""  # why lines are not escaped


def escape_log_lines() -> None:
    """Once for each process. An rclpy without that function is used all the same: see `warning`."""
    global _failure
    try:
        extension = importlib.import_module("rclpy.impl.implementation_singleton").rclpy_implementation
        log = getattr(extension, FUNCTION)
    except (ImportError, AttributeError) as error:
        _failure = str(error)
        return

    def log_escaped(severity: Any, name: str, message: object, *place: Any) -> None:
        log(severity, name, escaped(message if isinstance(message, str) else str(message)), *place)

    setattr(extension, FUNCTION, log_escaped)


def warning() -> str:
    """What to say at the start if lines are not escaped; else empty."""
    if not _failure:
        return ""
    return f"control characters in log lines are not escaped with this rclpy: {_failure}"
