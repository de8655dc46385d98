"""A server of its own, `auras serve` in a process, on a free port of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

END_S = 40.0  # after so long the server is said not to end
LAST_LINES = 3


class VlmServerError(RuntimeError):
    """The server did not start, or did not end in order; the text has its last lines."""


class VlmServerProcess:
    """A server that has said that it is ready."""

    def __init__(self, server: subprocess.Popen[str], port: int, log: Path) -> None:
        self.port = port
        self.pid = server.pid
        self._server = server
        self._log = log
        self._is_stopped = False

    def stop(self) -> float:
        """Tells it to end (SIGTERM) and waits. Returns how long that took, s; 0 the second time. Raises VlmServerError
        if it does not end with status 0."""
        if self._is_stopped:
            return 0.0
        self._is_stopped = True
        begin_s = time.monotonic()
        self._server.terminate()
        try:
            status = self._server.wait(END_S)
        except subprocess.TimeoutExpired:
            raise VlmServerError(f"the server did not end within {END_S:g} s of being told to") from None
        if status:
            raise VlmServerError(f"the server ended with status {status}{_last_lines(self._server, self._log)}")
        return time.monotonic() - begin_s


@contextmanager
def vlm_server(model: Path, options: Sequence[str], log: Path, token: str = "") -> Iterator[VlmServerProcess]:
    """A server that is stopped at the end. log: for what it prints. token: that requests must have; empty: none. Raises
    VlmServerError, also if it does not end with status 0."""
    command = [sys.executable, "-m", "auras_ros.cli.main", "serve", str(model), "--port", "0", *options]
    environment = {name: value for name, value in os.environ.items() if name != "AURAS_SERVE_TOKEN"}
    if token:
        environment["AURAS_SERVE_TOKEN"] = token
    with log.open("w+") as output:
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=output, text=True, env=environment, start_new_session=True
        )
        with server:
            try:
                assert server.stdout is not None
                ready = server.stdout.readline()
                if " at http://" not in ready:
                    raise VlmServerError(f"the server did not start{_last_lines(server, log)}")
                port = int(ready.partition(" at http://")[2].split()[0].rpartition(":")[2])
                process = VlmServerProcess(server, port, log)
                yield process
                process.stop()
            finally:
                if server.poll() is None:
                    server.kill()


def _last_lines(server: subprocess.Popen[str], log: Path) -> str:
    server.kill()
    server.wait()
    return "".join(f"; {line}" for line in log.read_text(errors="replace").splitlines()[-LAST_LINES:])
