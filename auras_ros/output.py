"""Lines for people, from a process that must not wait for them: the disk is full, the pipe is closed, its reader does
not read.

What cannot be written at once is lost and counted, and the next line that can be written says how many were.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
import stat
import struct
import sys
import threading
from collections.abc import Iterator
from typing import TextIO

LONGEST = 1 << 16  # of a line: a longer one is written in pieces


class NonBlockingStream(io.TextIOBase):
    """A text stream on a descriptor. Nothing that it is asked for raises; `lost` counts the lines nobody took."""

    encoding, errors = "utf-8", "backslashreplace"

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.RLock()
        self._pending = ""  # of a line that has not ended yet
        self._cut = False  # the last write ended within a line
        self.lost = 0
        self._socket: socket.socket | None = None
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):  # cannot be opened once more; it is asked each time not to wait
            self._socket = socket.socket(fileno=os.dup(descriptor))

    def close(self) -> None:
        """The descriptor itself stays open: it is not this stream's."""
        super().close()
        if self._socket is not None:
            self._socket.close()

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        """Whole lines go out at once, what begins one with its end or with `flush`."""
        with self._lock:
            self._pending += text
            whole, newline, rest = self._pending.rpartition("\n")
            if newline:
                self._pending = rest
                self._send(whole + newline)
            if len(self._pending) > LONGEST:
                self.flush()
        return len(text)

    def flush(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, ""
            if pending:
                self._send(pending)

    def _send(self, text: str) -> None:
        before = f"[{self.lost} lines were lost here: they could not be written]\n" if self.lost else ""
        data = (before + text).encode("utf-8", "backslashreplace")
        if self._cut:
            data = b"\n" + data
        try:
            sent = self._socket.send(data, socket.MSG_DONTWAIT) if self._socket else os.write(self._descriptor, data)
        except OSError:  # nobody reads, nobody will, or there is no room
            self.lost += max(1, text.count("\n"))
            return
        self.lost = data[sent:].count(b"\n")
        self._cut = sent < len(data)


@contextlib.contextmanager
def non_blocking_output() -> Iterator[None]:
    """For a long-lived process: standard output and error become `NonBlockingStream`, and their descriptors never make
    a writer wait, whoever writes (C libraries too; where it is a socket, as under systemd, these wait for one tick of
    the kernel's clock at most, 1 to 10 ms). Where they are something else already, they are left alone."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_non_blocking(stream) for stream in before)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, NonBlockingStream):
                stream.flush()
        sys.stdout, sys.stderr = before


def _non_blocking(stream: TextIO) -> TextIO:
    try:
        descriptor = stream.fileno()
    except (AttributeError, OSError, ValueError):  # None, closed, or of the memory alone
        return stream
    if descriptor not in (1, 2):
        return stream
    with contextlib.suppress(OSError):  # what a full disk does not take is lost
        stream.flush()
    _never_wait(descriptor)
    return NonBlockingStream(descriptor)  # type: ignore[return-value]


def _never_wait(descriptor: int) -> None:
    """An open pipe or terminal of one's own, that refuses in place of making its writer wait. To make the given one
    refuse would do so for all who share it: the shell, the supervisor. A socket cannot be opened once more: see
    `_limit_waiting`."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISSOCK(mode):
        _limit_waiting(descriptor)
    if not (stat.S_ISFIFO(mode) or os.isatty(descriptor)):
        return
    try:
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:  # another user's, or a pipe that nobody reads: writing to it fails at once
        return
    os.dup2(own, descriptor)
    os.close(own)


def _limit_waiting(descriptor: int) -> None:
    """A socket whose writers wait for the shortest time that the kernel has, and then lose what they write.

    That holds for all who share the socket, also after this process has ended; but only where its reader stands still.
    O_NONBLOCK would be shared too, and would also change how they read from it.
    """
    shortest = struct.pack("@ll", 0, 1)  # seconds and microseconds; 0 and 0 would be for ever
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as shared:
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, shortest)


class Lines(str):
    """Text of several lines that this package put together, such as a traceback: `escaped` keeps its line breaks. Any
    other text has one line, because a line break in it may come from somebody else."""


def escaped(text: str) -> str:
    """The text for a log or a terminal, each character that does not print as Python's repr spells it: line breaks,
    ESC and other controls, marks that reverse the direction of text, lone surrogates.

    The lines of `Lines` stay apart, and those after the first are indented: none can be taken for a log line.
    """
    if isinstance(text, Lines):
        return "\n    ".join(_escaped_line(line) for line in text.split("\n"))
    return _escaped_line(text)


def _escaped_line(line: str) -> str:
    if line.isprintable():
        return line
    shown = [char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in line]
    return "".join(shown)


def printable(text: str) -> str:
    """Text from outside as it can be written and sent: what has no UTF-8 form (a lone surrogate) is spelt out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")
