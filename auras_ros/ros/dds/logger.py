"""Logging as ROS prints it: severity, time, name, on stderr, with throttling per call site.

Logging never raises: a line that cannot be written is counted (`unwritten`). Not blocking is the stream's job (the
nodes replace it by that of `auras_ros.output`). Control characters are escaped here, once, for stderr and /rosout
(`output.escaped`); under rclpy by `ros.rclpy_logger`. Lines of a node's logger, and of its children, also go to that
node's sink (`rosout.py`). A thread that must never wait hands its lines to another thread (`divert`).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partialmethod
from typing import TypeVar

from auras_ros.output import escaped


class LoggingSeverity(IntEnum):
    UNSET = 0
    DEBUG = 10
    INFO = 20
    WARN = 30
    ERROR = 40
    FATAL = 50


@dataclass(frozen=True)
class LogRecord:
    """One logged line, with its place in the code."""

    stamp_ns: int
    severity: LoggingSeverity
    name: str
    text: str
    file: str
    function: str
    line: int


_Value = TypeVar("_Value")
Sink = Callable[[LogRecord], object]
_sinks: dict[str, Sink] = {}
_diverted: dict[str, Sink] = {}
_stderr_enabled = True
unwritten = 0  # lines that could not be written to stderr
_levels: dict[str, LoggingSeverity] = {"": LoggingSeverity.INFO}
_lock = threading.Lock()
_COLORS = {10: "32", 20: "0", 30: "33", 40: "31", 50: "31"}


def set_logger_level(name: str, level: LoggingSeverity) -> None:
    """The lowest severity that logger `name` and its children print; '' is the root logger."""
    _levels[name] = LoggingSeverity(level)


def enable_stderr(enabled: bool) -> None:
    """Whether lines are printed; sinks always get them."""
    global _stderr_enabled
    _stderr_enabled = enabled


def add_sink(name: str, sink: Sink) -> None:
    """Hand every line of logger `name` and its children to `sink`, in the thread that logs."""
    _sinks[name] = sink


def remove_sink(name: str, sink: Sink) -> None:
    """Undo add_sink, unless another sink has replaced it since."""
    if _sinks.get(name) is sink:
        del _sinks[name]


def _nearest(values: Mapping[str, _Value], name: str) -> _Value | None:
    """The value of the logger, or of its nearest ancestor that has one."""
    while name:
        if value := values.get(name):
            return value
        name = name.rpartition(".")[0]
    return None


def effective_level(name: str) -> LoggingSeverity:
    """The level of the nearest ancestor that has one."""
    return _nearest(_levels, name) or _levels[""]


def parse_level(text: str) -> LoggingSeverity:
    """The level of 'debug' … 'fatal', in lower or upper case. Raises ValueError, naming the text, otherwise."""
    aliases = {"WARNING": "WARN"}
    upper = aliases.get(text.upper(), text.upper())
    if upper not in LoggingSeverity.__members__:
        raise ValueError(f"log level {text!r}: expected one of debug, info, warn, error, fatal")
    return LoggingSeverity[upper]


def _print(record: LogRecord) -> None:
    stamp = f"{record.stamp_ns // 10**9}.{record.stamp_ns % 10**9:09d}"
    line = f"[{record.severity.name}] [{stamp}] [{record.name}]: {record.text}"
    global unwritten
    stream = sys.stderr
    try:
        if stream.isatty():
            line = f"\033[{_COLORS[record.severity]}m{line}\033[0m"
        with _lock:
            stream.write(line + "\n")
            stream.flush()
    except (AttributeError, OSError, ValueError):  # stderr is missing, not writable or closed
        unwritten += 1


def say(record: LogRecord) -> None:
    """Print a line and hand it to its sink."""
    if _stderr_enabled:
        _print(record)
    if (sink := _nearest(_sinks, record.name)) is not None:
        sink(record)


class RcutilsLogger:
    """A named logger; dots in the name form a hierarchy of levels."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._last: dict[tuple[str, int], float] = {}

    def set_level(self, level: LoggingSeverity) -> None:
        set_logger_level(self.name, level)

    def divert(self, take: Callable[[Sink, LogRecord], object] | None) -> None:
        """Call `take(say, record)` instead of printing a line of this name; `take` must have say(record) called in a
        thread that may wait. None ends it."""
        if take is None:
            _diverted.pop(self.name, None)
        else:
            _diverted[self.name] = lambda record: take(say, record)

    def log(
        self, message: object, severity: LoggingSeverity, *,
        throttle_duration_sec: float | None = None, once: bool = False, skip_first: bool = False,
    ) -> bool:  # fmt: skip
        """Print one line; throttle, once and skip_first count per call site. Returns whether it was printed."""
        if severity < effective_level(self.name):
            return False
        frame = sys._getframe(1)
        file, line = frame.f_code.co_filename, frame.f_lineno
        if (throttle_duration_sec is not None or once or skip_first) and not self._due(
            (file, line), throttle_duration_sec, once, skip_first
        ):
            return False
        kind = LoggingSeverity(severity)
        text = escaped(message if isinstance(message, str) else str(message))
        record = LogRecord(time.time_ns(), kind, self.name, text, file, frame.f_code.co_name, line)
        (_nearest(_diverted, self.name) or say)(record)
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

    # A partial method has no frame of its own, so the place in the code is the caller's.
    debug = partialmethod(log, severity=LoggingSeverity.DEBUG)
    info = partialmethod(log, severity=LoggingSeverity.INFO)
    warn = warning = partialmethod(log, severity=LoggingSeverity.WARN)
    error = partialmethod(log, severity=LoggingSeverity.ERROR)
    fatal = partialmethod(log, severity=LoggingSeverity.FATAL)


def get_logger(name: str) -> RcutilsLogger:
    """A logger by name."""
    return RcutilsLogger(name)
