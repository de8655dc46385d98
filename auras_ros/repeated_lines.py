"""How often a lasting condition may be logged: a line when something changes, then one a minute with the count.

A camera that is dead or a message that is refused thirty times a second must not hide the one line that matters. Every
node decides here whether a line is due; this module prints nothing. The interval is the process's (`log_every_s`).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from auras_ros.parameters import parameter

EVERY_S = 60.0  # between two lines about one thing, unless the node's log_every_s says otherwise
CHANGES = 5  # that are printed at once; what goes on changing gets one line in EVERY_S, until it is quiet for so long
MOST_SUBJECTS = 256  # that are told apart; subjects are our own names, so that there are never so many
_NUMBER = re.compile(r"\d+(\.\d+)?")
_process_every_s = EVERY_S


def log_every_s() -> Any:
    """The parameter of a node that sets the interval of its process."""
    return parameter(
        EVERY_S,
        "what lasts or comes again is logged when it changes, then once in this time, with its count",
        0.1,
        3600.0,
    )


def set_log_interval(every_s: float) -> None:
    """Set the interval of this process, at its start."""
    global _process_every_s
    _process_every_s = every_s


@dataclass
class _Subject:
    """What was said of one thing. Times are monotonic seconds."""

    cause: str
    said_s: float
    noted_s: float
    unsaid: int
    changes_left: int


class RepeatedLines:
    """Thread-safe. intervals: how many of the process's intervals lie between two lines. clock: monotonic seconds."""

    def __init__(self, intervals: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._intervals = intervals
        self._clock = clock
        self._subjects: dict[str, _Subject] = {}
        self._lock = threading.Lock()

    def line(self, subject: str, text: str, cause: str | None = None, *, is_event: bool = True) -> str:
        """The line to print now: the text, with the number of those that were not printed; empty if none is due.

        subject: what the text is about, such as a topic. cause: another one is a change; None: the text without its
        numbers. is_event: False for a state that goes on and is only said again: it is not counted.
        """
        cause = _NUMBER.sub("#", text) if cause is None else cause
        now_s = self._clock()
        every_s = self._intervals * _process_every_s
        with self._lock:
            known = self._subjects.get(subject)
            if known is None or now_s - known.noted_s >= every_s:
                return self._first(subject, text, cause, now_s)
            known.noted_s = now_s
            is_change = cause != known.cause and known.changes_left > 0
            if not is_change and now_s - known.said_s < every_s:
                known.unsaid += is_event
                return ""
            known.changes_left -= is_change
            more = _more(known.unsaid, now_s - known.said_s)
            known.cause = cause
            known.said_s = now_s
            known.unsaid = 0
            return f"{text}{more}"

    def _first(self, subject: str, text: str, cause: str, now_s: float) -> str:
        """The first line about a subject, or the first after it was quiet."""
        known = self._subjects.get(subject)
        more = _more(known.unsaid, now_s - known.said_s) if known else ""
        if known is None and len(self._subjects) >= MOST_SUBJECTS:
            self._subjects.clear()
        self._subjects[subject] = _Subject(cause, now_s, now_s, 0, CHANGES - 1)
        return f"{text}{more}"


def _more(count: int, seconds: float) -> str:
    return f" ({count} more such lines in the last {seconds:.0f} s)" if count else ""
