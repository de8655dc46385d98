"""The robot's description, read in another process: parsing 4 MB of XML in this one would keep the interpreter from
the thread of the emergency stop, and nothing that comes from outside may.

One is read at a time, and the newest that came meanwhile next. The limits of the joints that are commanded come back,
or why there are none. One that no process could read on a busy machine is tried again later: its publisher does not
send it twice. Nothing here decides what follows.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Mapping

from auras_ros.action import ContractError
from auras_ros.action.urdf import JointLimit

LATER_S, LATEST_S = 30.0, 600.0  # twice as long after each try that came to nothing
PATIENCE_S = 20.0  # a process that reads for longer is ended; on a busy machine it starts slowly
TRIES = 3  # a process that was ended says nothing of the text
# Its parent runs before everybody else's work; what it does is in no hurry. It steps back itself, as the first thing it
# does: `posix_spawn` keeps the interpreter until the program has begun, and one that steps back before that waits for a
# turn among everybody's work, and all threads of this process with it.
_STEP_BACK = "import os; os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))"
_CODE = f"{_STEP_BACK}; import sys; from auras_ros.action.urdf import main; main(sys.argv[1:])"
Text = memoryview | bytes


class DescriptionReader:
    """`joints`: whose limits are asked for. Of one thread, which calls `poll` often."""

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
        """Whether somebody should wait for a description that is being read."""
        return (bool(self._pid) and not self._late) or self._next is not None

    def read(self, xml: Text) -> None:
        """Begin to read, or remember it for when the one before has been read. Raises OSError; `poll` tries again."""
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
        source = os.memfd_create("robot_description")
        try:
            answer = os.memfd_create("joint_limits")
        except OSError:
            os.close(source)
            raise
        try:
            rest = memoryview(self._text)
            while rest:
                rest = rest[os.write(source, rest) :]
            os.lseek(source, 0, os.SEEK_SET)
            files = [
                (os.POSIX_SPAWN_DUP2, source, 0),
                (os.POSIX_SPAWN_DUP2, answer, 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ]
            self._pid = os.posix_spawn(sys.executable, self._command, os.environ, file_actions=files, setsid=True)
        except BaseException:
            os.close(answer)
            raise
        finally:
            os.close(source)
        self._answer, self._until_s = answer, time.monotonic() + PATIENCE_S

    def poll(self) -> dict[str, JointLimit] | None:
        """The limits by joint, once; None while there is nothing new. Raises ContractError: why there are none; and
        OSError where the next one cannot be begun."""
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
        """What it has answered; it is no more."""
        os.lseek(self._answer, 0, os.SEEK_SET)
        with os.fdopen(self._answer, "rb") as answer:
            self._pid, self._answer = 0, -1
            return answer.read()

    def close(self) -> None:
        """End a process that still reads."""
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
