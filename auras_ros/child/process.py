"""Who starts a child process and asks it. What goes over the wire is `wire`'s, what runs at its other end `program`.

It is started when this is made, and ended by `close`, when nobody has it any more, or when this process dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from auras_ros.child.wire import Message, encoded, receive, send

PROGRAM = Path(__file__).with_name("program.py")
LOOK_S = 1.0
START_LOOKS, ANSWER_LOOKS = 180, 30  # seconds, of which one counts for a process that was stopped together with this
ENDING_S = 5.0
PRINTED_BYTES = 1 << 20  # kept of what the process prints
SAID_LINES, SAID_BYTES = 8, 4096
# One thread: many may run beside each other. What runs there may know better.
SETTINGS = {"OMP_NUM_THREADS": "1"}


class ProcessLostError(RuntimeError):
    """The process has ended or does not answer. The message has whose it was, how it ended, and the last lines of what
    it printed."""


@dataclass(frozen=True)
class ChildStart:
    """What runs there: `module` makes it (`program.ChildService`) from `order` and `array`; it may import this package
    and `packages`."""

    module: str
    order: Message
    array: NDArray[Any] | None = None
    packages: Sequence[str] = ()


class ChildProcess:
    """name, what: for errors, "name: the what's process ...". python: of its environment. lost: the error that says
    that it is gone.

    It raises what is raised there (ValueError, ModuleNotFoundError; another error as a RuntimeError that names it), and
    `lost` if the process has ended or says nothing for thirty seconds, or for three minutes where a call may be slow;
    from then on every call raises it.
    """

    def __init__(
        self,
        name: str,
        what: str,
        python: Path,
        start: ChildStart,
        lost: type[RuntimeError] = ProcessLostError,
    ) -> None:
        self._name, self._what, self._error, self._lost = name, what, lost, ""
        self._printed = _memory_file(f"{name} printed")
        self._link, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = _start(python, start, theirs, self._printed)
        except BaseException:
            self._link.close()
            os.close(self._printed)
            raise
        self._end = weakref.finalize(self, _end, self._process, self._link, self._printed)
        self._link.settimeout(LOOK_S)
        try:
            self.declared: Message = self.ask("make", start.order, start.array, slow=True)[0]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the process: when what runs there is closed, at once if that takes more than a few seconds."""
        self._lost = self._lost or f"{self._name}: the {self._what} is closed"
        self._end()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def ask(
        self, method: str, given: Message | None = None, array: NDArray[Any] | None = None, slow: bool = False
    ) -> tuple[Message, NDArray[Any] | None]:
        """The answer. slow: it may take minutes."""
        if self._lost:
            raise self._error(self._lost)
        looks = START_LOOKS if slow else ANSWER_LOOKS
        try:
            order = encoded({"do": method, **(given or {})}, array)
        except TypeError as error:
            raise ValueError(f"{self._name}: {method}: {error}") from None
        try:
            send(self._link, order, looks)
            told, answered = receive(self._link, looks)
        except TimeoutError:
            raise self._loses(method, f"has said nothing for {looks * LOOK_S:g} s") from None
        except (EOFError, OSError):
            raise self._loses(method, self._ended()) from None
        except ValueError as error:
            raise self._loses(method, f"sent what is no message: {error}") from None
        except BaseException:  # interrupted: the answer would be taken for that of the next call
            self._loses(method, "was interrupted")
            raise
        if "error" in told:
            raise _raised(told)
        if os.fstat(self._printed).st_size > PRINTED_BYTES:
            os.ftruncate(self._printed, 0)
        return told, answered

    def _loses(self, method: str, how: str) -> RuntimeError:
        """From now on it is lost; the process ends. Nothing new if it was closed meanwhile, by another thread."""
        if self._lost:
            return self._error(self._lost)
        self._process.kill()
        said = "".join(f"\n  {line}" for line in self._said())
        self._lost = f"{self._name}: the {self._what}'s process {how} ({method}){said}"
        self._end()
        return self._error(self._lost)

    def _ended(self) -> str:
        try:
            status = self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            return "has closed its wire"
        names = {each.value: each.name for each in signal.Signals}
        return (
            f"ended with status {status}" if status >= 0 else f"was ended by {names.get(-status, f'signal {-status}')}"
        )

    def _said(self) -> list[str]:
        """The last lines of what the process printed."""
        size = os.fstat(self._printed).st_size
        text = os.pread(self._printed, SAID_BYTES, max(0, size - SAID_BYTES))
        return text.decode(errors="replace").splitlines()[-SAID_LINES:]


def _memory_file(name: str) -> int:
    """No disk that may be full, no pipe that somebody must read; whoever writes appends, so that it may be cut."""
    file = os.memfd_create(name)
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    return file


def _start(python: Path, start: ChildStart, wire: socket.socket, printed: int) -> subprocess.Popen[bytes]:
    """The process, which says nothing yet. Raises OSError."""
    files = {}
    for name in dict.fromkeys(("auras_ros", *start.packages)):
        spec = sys.modules[name].__spec__
        assert spec is not None
        assert spec.origin is not None
        files[name] = spec.origin
    # Only the main thread lives as long as this process: the kernel can end the child with a thread alone.
    thread = "main" if threading.current_thread() is threading.main_thread() else "other"
    return subprocess.Popen(
        [
            str(python),
            "-I",
            "-u",
            str(PROGRAM),
            str(wire.fileno()),
            str(os.getpid()),
            thread,
            json.dumps(files),
            start.module,
        ],
        stdin=subprocess.DEVNULL,
        stdout=printed,
        stderr=printed,
        pass_fds=[wire.fileno()],
        env={**SETTINGS, **os.environ},
    )


def _end(process: subprocess.Popen[bytes], link: socket.socket, printed: int) -> None:
    with contextlib.suppress(OSError):  # it has gone already
        link.shutdown(socket.SHUT_RDWR)  # also for a thread that waits for an answer
    link.close()
    try:
        process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    os.close(printed)


def _raised(told: Message) -> Exception:
    """The error of the other end."""
    kind, text = told["error"], told["text"]
    if kind == "module":
        return ModuleNotFoundError(text, name=told["name"])
    return ValueError(text) if kind == "value" else RuntimeError(text)
