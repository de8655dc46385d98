"""A required button as a process of its own: `auras button`, told by lines on its standard input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from types import TracebackType
from typing import IO

MODULE = "auras_ros.nodes.button.node"
END_S = 5.0


class ButtonProcess:
    """Runs from the first `with` to its end."""

    def __init__(self, topic: str, key_file: str | None, log: IO[bytes] | int) -> None:
        self._parameters = [f"topic:={topic}", "input:=lines"]
        if key_file is not None:
            self._parameters.append(f"emergency_stop_key_file:={key_file}")
        self._log = log

    def __enter__(self) -> ButtonProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, released."""
        words = [word for parameter in self._parameters for word in ("-p", parameter)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE, "--ros-args", *words],
            stdin=subprocess.PIPE, stdout=self._log, stderr=subprocess.STDOUT, env=dict(os.environ),
        )  # fmt: skip
        self.say(pressed=False)

    def say(self, *, pressed: bool) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it was killed
            self._process.stdin.write(b"pressed\n" if pressed else b"released\n")
            self._process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it without a last word: to others that is a link that was cut."""
        self._process.kill()
        self._process.wait(END_S)
        with suppress(BrokenPipeError):
            self._process.communicate()
