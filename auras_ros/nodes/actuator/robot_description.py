"""The robot's description, parsed in another process: parsing 4 MB of XML in this one would hold the interpreter lock
and delay the thread of the emergency stop, which no input from outside may do.

One description is read at a time, then the newest that came meanwhile. The result is the limits of the commanded
joints, or the reason why there are none. If no process could read one on a busy machine it is tried again later,
because its publisher does not send it twice. The caller decides what to do with the result.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack

from auras_ros.action import ContractError
from auras_ros.action.urdf import JointLimit

LATER_S, LATEST_S = 30.0, 600.0  # time until the next try; doubled after each failure
PATIENCE_S = 20.0  # a process that takes longer is killed; on a busy machine it starts slowly
TRIES = 3  # a killed process does not mean that the text is bad
# The child inherits SCHED_FIFO, which it does not need. It gives that up itself, as its first action: `posix_spawn`
# holds the interpreter lock until the program has begun, and with normal scheduling before that it would have to wait
# for the CPU, and all threads of this process with it.
_STEP_BACK = "import os; os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))"
_CODE = f"{_STEP_BACK}; import sys; from auras_ros.action.urdf import main; main(sys.argv[1:])"
Text = memoryview | bytes


class DescriptionReader:
    """`joints`: those whose limits are needed. Used by one thread, which calls `poll` often."""

    def __init__(self, joints: list[str]) -> None:
        self._command = [sys.executable, "-c", _CODE, *joints]
        self._pid, self._answer, self._until_s = 0, -1, 0.0
        self._text: Text = b""
        self._tries = 0
        self._late = False  # reading failed and was reported; this is a retry
        self._pause_s, self._again_s = LATER_S, math.inf
        self._next: Text | None = None

    @property
    def busy(self) -> bool:
        """Whether a description is being read for which arming should wait."""
        return (bool(self._pid) and not self._late) or self._next is not None

    def read(self, xml: Text) -> None:
        """Begin to read, or keep it until the previous one has been read. Raises OSError; `poll` tries again."""
        if self._pid:
            self._next = xml
            return
        self._text, self._tries, self._late, self._pause_s = xml, 1, False, LATER_S
        self._begin()

    def _begin(self) -> None:
        try:
            self._spawn()
        except OSError:
            self._try_later()
            raise
        self._again_s = math.inf

    def _try_later(self) -> None:
        self._again_s = time.monotonic() + self._pause_s
        self._pause_s, self._late = min(2 * self._pause_s, LATEST_S), True

    def _spawn(self) -> None:
        with ExitStack() as opened, os.fdopen(os.memfd_create("robot_description"), "wb") as source:
            answer = os.memfd_create("joint_limits")
            opened.callback(os.close, answer)
            source.write(self._text)
            source.seek(0)
            files = [
                (os.POSIX_SPAWN_DUP2, source.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, answer, 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ]
            self._pid = os.posix_spawn(sys.executable, self._command, os.environ, file_actions=files, setsid=True)
            opened.pop_all()  # the process has begun: its answer stays open
        self._answer, self._until_s = answer, time.monotonic() + PATIENCE_S

    def poll(self) -> dict[str, JointLimit] | None:
        """The limits by joint, once; None while there is nothing new. Raises ContractError with the reason if there are
        none, and OSError if the next process cannot be started."""
        if not self._pid:
            if time.monotonic() >= self._again_s:
                self._begin()
            return None
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if not pid:
            if time.monotonic() < self._until_s:
                return None
            status = self._end()
        found = self._ended()
        if status and self._next is None and self._tries < TRIES and not self._late:
            self._tries += 1
            self._begin()
            return None
        if self._next is not None:
            newest, self._next = self._next, None
            self.read(newest)
        try:
            return _limits(found, status)
        except ContractError:
            if status and not self._pid:
                self._try_later()
            raise

    def _end(self) -> int:
        os.kill(self._pid, signal.SIGKILL)
        return os.waitpid(self._pid, 0)[1]

    def _ended(self) -> bytes:
        """The answer of the process, which has ended."""
        os.lseek(self._answer, 0, os.SEEK_SET)
        with os.fdopen(self._answer, "rb") as answer:
            self._pid, self._answer = 0, -1
            return answer.read()

    def close(self) -> None:
        """Kill a process that still reads."""
        self._next, self._again_s = None, math.inf
        if self._pid:
            self._end()
            self._ended()


def _limits(answer: bytes, status: int) -> dict[str, JointLimit]:
    try:
        found = json.loads(answer)
    except ValueError:
        ended = os.waitstatus_to_exitcode(status)
        raise ContractError(f"robot description: could not be read: its reader ended with status {ended}") from None
    if isinstance(found, Mapping) and isinstance(found.get("limits"), Mapping):
        return {name: JointLimit(**fields) for name, fields in found["limits"].items()}
    raise ContractError(str(found.get("error", "robot description: no answer")))
