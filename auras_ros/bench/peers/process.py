"""Starts a peer's process, sends it requests line by line, and always ends it.

The protocol is that of `lerobot_worker`: a line of JSON is answered by a line of JSON. Every wait has a timeout. The
peer leads its own process group, so the processes that it starts (as torch.compile does) end with it.
"""

from __future__ import annotations

import json
import math
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from auras_ros.measure.minutes import OverError

WORKER = Path(__file__).with_name("lerobot_worker.py")
SAID_LINES = 6  # of a dead peer's stderr
SAID_BYTES = 4096
ENDING_S = 5.0  # timeout for the exit of a process that has closed its output
POLL_S = 0.02
# One thread, as for ours; no download.
SETTINGS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
# Not a new session: if the kernel schedules by session (autogroup), one of the two sides would be favoured.
OWN_GROUP: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
LEFT_OUT = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")  # else the peer might import our packages


class PeerError(RuntimeError):
    """A peer that failed; the text names the peer and the request. It cannot be used any more."""


class PeerRefusedError(PeerError):
    """A peer that answered with an error; it still accepts other requests."""


class PeerProcess:
    """A context manager. name: for errors. limit_s: timeout of an answer; end_s: the latest time of any answer, on the
    monotonic clock. Raises PeerError."""

    def __init__(self, name: str, python: Path, limit_s: float, worker: Path = WORKER, end_s: float = math.inf) -> None:
        self._name, self._limit_s, self._end_s = name, limit_s, end_s
        self._files = ExitStack()
        self._stderr: IO[bytes] = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        environment = {key: value for key, value in os.environ.items() if key not in LEFT_OUT} | SETTINGS
        try:
            self._process = subprocess.Popen(
                [str(python), str(worker)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=environment,
                bufsize=0,  # so that closing has nothing to flush to a process that has ended
                **OWN_GROUP,
            )
        except OSError as error:
            self._files.close()
            raise PeerError(f"{name}: {python} cannot be started: {error.strerror}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._files.enter_context(self._process.stdin)
        self._stdout = self._files.enter_context(self._process.stdout)
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=f"{name}-answers", daemon=True)
        self._reader.start()

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, do: str, *needs: str, **more: Any) -> dict[str, Any]:
        """The answer to one request; it must have the keys `needs`. Raises PeerRefusedError if the peer answers with an
        error; PeerError if there is no answer in time, the process has ended or the answer is malformed; OverError if
        there is no answer before end_s."""
        left_s = max(0.0, self._end_s - time.monotonic())
        try:
            self._stdin.write((json.dumps({"do": do, **more}) + "\n").encode())
            line = self._lines.get(timeout=min(self._limit_s, left_s))
        except BrokenPipeError:
            line = None
        except queue.Empty:
            if left_s < self._limit_s:
                raise OverError from None
            raise PeerError(f"{self._name}: {do}: no answer within {self._limit_s:g} s") from None
        if line is None:
            raise PeerError(f"{self._name}: {do}: the process ended with {self._ended()}{self._said()}")
        answer = _answer(line)
        if answer is not None and "error" in answer:
            raise PeerRefusedError(f"{self._name}: {do}: {answer['error']}")
        if answer is None or any(key not in answer for key in needs):
            wanted = f" with {', '.join(needs)}" if needs else ""
            raise PeerError(f"{self._name}: {do}: not an answer{wanted}: {line[:80]!r}")
        return answer

    def close(self) -> None:
        """Kill the process and all that it started. A second call does nothing."""
        if self._process.returncode is None:  # not waited for yet, so its pid cannot have been reused
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(ENDING_S)
        self._files.close()

    def _read(self) -> None:
        """Runs in a thread: queues every line, then None."""
        for line in self._stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _ended(self) -> str:
        """How the process ended. Does not reap it: `close` must still kill its process group."""
        end_s = time.monotonic() + ENDING_S
        while time.monotonic() < end_s:
            found = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if found is not None:
                return f"{'status' if found.si_code == os.CLD_EXITED else 'signal'} {found.si_status}"
            time.sleep(POLL_S)
        return "closed output but no exit status"

    def _said(self) -> str:
        """The last lines of its stderr."""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - SAID_BYTES))
        lines = self._stderr.read().decode(errors="replace").splitlines()[-SAID_LINES:]
        return "".join(f"\n  {line}" for line in lines)


def _answer(line: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None
