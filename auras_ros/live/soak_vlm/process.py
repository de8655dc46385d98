"""A server of its own, `auras serve` in a process, on a free port of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

END_S = 40.0  # the server gives its last step 10 s, and what is being sent another 10
LAST_LINES = 3


class VlmServerError(RuntimeError):
    """The server did not start, or did not end in order; the text has its last lines."""


@contextmanager
def vlm_server(model: Path, options: Sequence[str], log: Path) -> Iterator[tuple[int, int]]:
    """Port and process id. log: for what it prints. Raises VlmServerError, also if it does not end with status 0."""
    command = [sys.executable, "-m", "auras_ros.cli.main", "serve", str(model), "--port", "0", *options]
    environment = {name: value for name, value in os.environ.items() if name != "AURAS_SERVE_TOKEN"}
    with log.open("w+") as output:
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=output, text=True, env=environment, start_new_session=True
        )
        with server:
            try:
                assert server.stdout is not None
                ready = server.stdout.readline()
                if " at http://" not in ready:
                    raise VlmServerError(f"the server did not start{_said(server, log)}")
                yield int(ready.partition(" at http://")[2].split()[0].rpartition(":")[2]), server.pid
                server.terminate()
                if server.wait(END_S):
                    raise VlmServerError(f"the server ended with status {server.returncode}{_said(server, log)}")
            except subprocess.TimeoutExpired:
                raise VlmServerError(f"the server did not end within {END_S:g} s of being told to") from None
            finally:
                if server.poll() is None:
                    server.kill()


def _said(server: subprocess.Popen[str], log: Path) -> str:
    server.kill()
    server.wait()
    return "".join(f"; {line}" for line in log.read_text(errors="replace").splitlines()[-LAST_LINES:])
