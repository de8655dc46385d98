"""rclpy.logging. As rclpy, a line of code may not change its severity or its filters between two calls."""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import Any

from rclpy_recording import refuse, strict

_FILTERS = {"throttle_duration_sec", "throttle_time_source_type", "skip_first", "once", "name"}
lines: list[tuple[str, str]] = []  # (severity, text) of everything that was logged


class LoggingSeverity(IntEnum):
    UNSET = 0
    DEBUG = 10
    INFO = 20
    WARN = 30
    ERROR = 40
    FATAL = 50


@strict
class RcutilsLogger:
    def __init__(self, name: str = "") -> None:
        self.name, self._callers = name, dict[Any, Any]()

    def get_child(self, name: str) -> RcutilsLogger:
        return RcutilsLogger(name=f"{self.name}.{name}")

    def set_level(self, level: LoggingSeverity) -> None:
        self._level = LoggingSeverity(level)

    def debug(self, message: str, **kwargs: Any) -> bool:
        return self._log(message, LoggingSeverity.DEBUG, kwargs)

    def info(self, message: str, **kwargs: Any) -> bool:
        return self._log(message, LoggingSeverity.INFO, kwargs)

    def warning(self, message: str, **kwargs: Any) -> bool:
        return self._log(message, LoggingSeverity.WARN, kwargs)

    def error(self, message: str, **kwargs: Any) -> bool:
        return self._log(message, LoggingSeverity.ERROR, kwargs)

    def fatal(self, message: str, **kwargs: Any) -> bool:
        return self._log(message, LoggingSeverity.FATAL, kwargs)

    def _log(self, message: str, severity: LoggingSeverity, filters: dict[str, Any]) -> bool:
        if unknown := sorted(filters.keys() - _FILTERS):
            refuse(f"rclpy.logging: no logging option {unknown}")
        frame = sys._getframe(3)  # the caller of the recorded method
        caller = frame.f_code.co_filename, frame.f_lineno, frame.f_lasti
        if self._callers.setdefault(caller, (severity, filters)) != (severity, filters):
            refuse(f"rclpy.logging: {caller[0]}:{caller[1]} logs with another severity or filter than before")
        lines.append((severity.name, message))
        print(f"[{severity.name}] [{self.name}]: {message}", file=sys.stderr, flush=True)
        return True


def get_logger(name: str) -> RcutilsLogger:
    return RcutilsLogger(name)
