"""A side's server: started on given cores, waited for, stopped while another one is measured, and always ended.

Stopped means SIGSTOP: to start vLLM compiled takes more than a minute, so no server is started for each window; and an
idle one still uses some CPU.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from auras_ros.bench.peers.process import LEFT_OUT, OWN_GROUP, SAID_BYTES, SAID_LINES, PeerError
from auras_ros.bench.peers_vlm.client import HOST

POLL_S = 0.2
READY = "/v1/models"
PROC = Path("/proc")


@dataclass(frozen=True)
class ServerCommand:
    """name: of the side. argv: with "{port}" in place of the port. environment: added to ours. fields: of its rows.
    own: whether it is ours, so that PYTHONPATH is kept. shares: the cores of each of several such servers, between
    which the client divides its requests; none: one server on all cores. "{cores}" in the environment stands for them.
    """

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, object] = field(default_factory=dict)
    own: bool = False
    shares: Sequence[frozenset[int]] = ()


class RunningServer:
    """A context manager. Raises PeerError if it does not answer within limit_s."""

    def __init__(self, command: ServerCommand, limit_s: float, cores: frozenset[int] | None = None) -> None:
        """cores: all of this process unless given."""
        self.name, self.port = command.name, _free_port()
        self._files = ExitStack()
        self._output = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        kept = {name: value for name, value in os.environ.items() if command.own or name not in LEFT_OUT}
        before = os.sched_getaffinity(0)
        own = before if cores is None else cores
        added = {
            name: value.replace("{cores}", ",".join(map(str, sorted(own))))
            for name, value in command.environment.items()
        }
        try:
            os.sched_setaffinity(0, own)  # which the new process inherits
            self._process = subprocess.Popen(
                [word.replace("{port}", str(self.port)) for word in command.argv],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env=kept | added,
                **OWN_GROUP,
            )
        except OSError as error:
            self._files.close()
            raise PeerError(f"{self.name}: {error}") from error
        finally:
            os.sched_setaffinity(0, before)
        begin_s = time.monotonic()
        try:
            self._wait(begin_s + limit_s)
        except BaseException:
            self.close()
            raise
        self.start_s = time.monotonic() - begin_s

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @contextmanager
    def running(self) -> Iterator[None]:
        """It runs within the block and is stopped outside of one."""
        os.killpg(self._process.pid, signal.SIGCONT)
        try:
            yield
        finally:
            self.pause()

    def pause(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGSTOP)

    def cpu_s(self) -> float:
        """CPU time so far of all processes of its group, and of those that they have waited for."""
        return group_cpu_s(self._process.pid)

    def said(self) -> str:
        """The last lines of its output."""
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - SAID_BYTES))
        lines = self._output.read().decode(errors="replace").splitlines()[-SAID_LINES:]
        return "".join(f"; {line.strip()}" for line in lines)

    def close(self) -> None:
        """Kills the process and all that it started. A second call does nothing."""
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._files.close()

    def _wait(self, end_s: float) -> None:
        while not _answers(self.port):
            ended = self._process.poll() is not None  # its group may go on: `close` needs it unreaped, but it is gone
            if ended or time.monotonic() > end_s:
                why = f"ended with status {self._process.returncode}" if ended else "did not answer in time"
                raise PeerError(f"{self.name}: the server {why}{self.said()}")
            time.sleep(POLL_S)


class ServerGroup:
    """A side's servers: one, or one on each share of the cores. Raises as `RunningServer`."""

    def __init__(self, command: ServerCommand, limit_s: float) -> None:
        self.name, begin_s = command.name, time.monotonic()
        with ExitStack() as failing:
            self._servers = [
                failing.enter_context(RunningServer(command, begin_s + limit_s - time.monotonic(), cores))
                for cores in command.shares or (None,)
            ]
            self._all = failing.pop_all()
        self.ports = [each.port for each in self._servers]
        self.start_s = time.monotonic() - begin_s

    def __enter__(self) -> ServerGroup:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @contextmanager
    def running(self) -> Iterator[None]:
        """They run within the block and are stopped outside of one."""
        with ExitStack() as running:
            for each in self._servers:
                running.enter_context(each.running())
            yield

    def pause(self) -> None:
        for each in self._servers:
            each.pause()

    def cpu_s(self) -> float:
        return sum(each.cpu_s() for each in self._servers)

    def close(self) -> None:
        """A second call does nothing."""
        self._all.close()


def group_cpu_s(group: int) -> float:
    ticks = 0
    for file in PROC.glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        if int(fields[2]) == group:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _answers(port: int) -> bool:
    asking = http.client.HTTPConnection(HOST, port, timeout=5.0)
    try:
        asking.request("GET", READY)
        return asking.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        asking.close()


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind((HOST, 0))
        port: int = asked.getsockname()[1]
        return port
