"""The robot's description, read in another process: parsing 4 MB of XML in this one would keep the interpreter from
the thread of the emergency stop, and nothing that comes from outside may.

One is read at a time, and the newest that came meanwhile next. The limits of the joints that are commanded come back,
or why there are none. Nothing here decides what follows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping

from auras_ros.action import ContractError
from auras_ros.action.urdf import JointLimit

PATIENCE_S = 20.0  # a process that reads for longer is ended; on a busy machine it starts slowly
# Like its parent it would run before everybody else's work; what it does is in no hurry.
_CODE = (
    "import os, sys; os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0)); "
    "from auras_ros.action.urdf import main; main(sys.argv[1:])"
)


class DescriptionReader:
    """`joints`: whose limits are asked for. Of one thread, which calls `poll` often."""

    def __init__(self, joints: list[str]) -> None:
        self._joints = joints
        self._process: subprocess.Popen[bytes] | None = None
        self._until_s = 0.0
        self._next: memoryview | bytes | None = None

    @property
    def busy(self) -> bool:
        """Whether a description is being read."""
        return self._process is not None or self._next is not None

    def read(self, xml: memoryview | bytes) -> None:
        """Begin to read, or remember it for when the one before has been read. Raises OSError."""
        if self._process is not None:
            self._next = xml
            return
        source = os.memfd_create("robot_description")
        try:
            rest = memoryview(xml)
            while rest:
                rest = rest[os.write(source, rest) :]
            os.lseek(source, 0, os.SEEK_SET)
            command = [sys.executable, "-c", _CODE, *self._joints]
            self._process = subprocess.Popen(
                command, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
            )
        finally:
            os.close(source)
        self._until_s = time.monotonic() + PATIENCE_S

    def poll(self) -> dict[str, JointLimit] | None:
        """The limits by joint, once; None while there is nothing new. Raises ContractError: why there are none."""
        process = self._process
        if process is None:
            return None
        if process.poll() is None:
            if time.monotonic() < self._until_s:
                return None
            process.kill()
        status = process.wait()
        with process:
            answer = process.stdout.read() if process.stdout else b""
        self._process = None
        if self._next is not None:
            newest, self._next = self._next, None
            self.read(newest)
            return None
        return _limits(answer, status)

    def close(self) -> None:
        """End a process that still reads."""
        self._next = None
        if self._process is not None:
            self._process.kill()
            with self._process:
                self._process = None


def _limits(answer: bytes, status: int) -> dict[str, JointLimit]:
    try:
        found = json.loads(answer)
    except ValueError:
        raise ContractError(f"robot description: could not be read: its reader ended with status {status}") from None
    if isinstance(found, Mapping) and isinstance(found.get("limits"), Mapping):
        return {name: JointLimit(**fields) for name, fields in found["limits"].items()}
    raise ContractError(str(found.get("error", "robot description: no answer")))
