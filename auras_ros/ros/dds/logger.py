"""Logging as ROS prints it: severity, time, name, on stderr, with throttling per call site.

Messages go to stderr alone; /rosout is not published.
"""

from __future__ import annotations

import sys
import threading
import time
from enum import IntEnum
from types import FrameType


class LoggingSeverity(IntEnum):
    UNSET = 0
    DEBUG = 10
    INFO = 20
    WARN = 30
    ERROR = 40
    FATAL = 50


_levels: dict[str, LoggingSeverity] = {"": LoggingSeverity.INFO}
_lock = threading.Lock()
_COLORS = {10: "32", 20: "0", 30: "33", 40: "31", 50: "31"}


def set_logger_level(name: str, level: LoggingSeverity) -> None:
    """The least severity that logger `name` and its children print; '' is the root of all."""
    _levels[name] = LoggingSeverity(level)


def effective_level(name: str) -> LoggingSeverity:
    """The level of the nearest ancestor that has one."""
    while True:
        level = _levels.get(name, LoggingSeverity.UNSET)
        if level != LoggingSeverity.UNSET or not name:
            return level
        name = name.rpartition(".")[0]


def parse_level(text: str) -> LoggingSeverity:
    """'debug' … 'fatal' in either case; ValueError names the text otherwise."""
    aliases = {"WARNING": "WARN"}
    upper = aliases.get(text.upper(), text.upper())
    if upper not in LoggingSeverity.__members__:
        raise ValueError(f"log level {text!r}: expected one of debug, info, warn, error, fatal")
    return LoggingSeverity[upper]


class RcutilsLogger:
    """A named logger; a name's dots make a hierarchy of levels."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._last: dict[tuple[str, int], float] = {}

    def get_child(self, name: str) -> RcutilsLogger:
        return RcutilsLogger(f"{self.name}.{name}" if self.name else name)

    def set_level(self, level: LoggingSeverity) -> None:
        set_logger_level(self.name, level)

    def get_effective_level(self) -> LoggingSeverity:
        return effective_level(self.name)

    def is_enabled_for(self, severity: LoggingSeverity) -> bool:
        return severity >= effective_level(self.name)

    def log(
        self, message: object, severity: LoggingSeverity, *,
        throttle_duration_sec: float | None = None, once: bool = False, skip_first: bool = False,
        _frame: FrameType | None = None,
    ) -> bool:  # fmt: skip
        """Print one line; throttled, once and skip_first count per call site. True where it was printed."""
        if severity < effective_level(self.name):
            return False
        if throttle_duration_sec is not None or once or skip_first:
            frame = _frame or sys._getframe(1)
            if not self._due((frame.f_code.co_filename, frame.f_lineno), throttle_duration_sec, once, skip_first):
                return False
        stamp_ns = time.time_ns()
        tag = LoggingSeverity(severity).name
        line = f"[{tag}] [{stamp_ns // 10**9}.{stamp_ns % 10**9:09d}] [{self.name}]: {message}"
        stream = sys.stderr
        if stream.isatty():
            line = f"\033[{_COLORS[severity]}m{line}\033[0m"
        with _lock:
            stream.write(line + "\n")
            stream.flush()
        return True

    def _due(self, site: tuple[str, int], throttle_s: float | None, once: bool, skip_first: bool) -> bool:
        last, now = self._last.get(site), time.monotonic()
        if last is None:
            self._last[site] = float("-inf") if skip_first else now
            return not skip_first
        if once and last != float("-inf"):
            return False
        if throttle_s is not None and now - last < throttle_s:
            return False
        self._last[site] = now
        return True

    def debug(self, message: object, **filters: float | bool) -> bool:
        return self.log(message, LoggingSeverity.DEBUG, _frame=sys._getframe(1), **filters)  # type: ignore[arg-type]

    def info(self, message: object, **filters: float | bool) -> bool:
        return self.log(message, LoggingSeverity.INFO, _frame=sys._getframe(1), **filters)  # type: ignore[arg-type]

    def warning(self, message: object, **filters: float | bool) -> bool:
        return self.log(message, LoggingSeverity.WARN, _frame=sys._getframe(1), **filters)  # type: ignore[arg-type]

    warn = warning

    def error(self, message: object, **filters: float | bool) -> bool:
        return self.log(message, LoggingSeverity.ERROR, _frame=sys._getframe(1), **filters)  # type: ignore[arg-type]

    def fatal(self, message: object, **filters: float | bool) -> bool:
        return self.log(message, LoggingSeverity.FATAL, _frame=sys._getframe(1), **filters)  # type: ignore[arg-type]


def get_logger(name: str) -> RcutilsLogger:
    """A logger by name."""
    return RcutilsLogger(name)
