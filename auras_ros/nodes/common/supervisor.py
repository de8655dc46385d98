"""Starts the processes of a config, restarts those that die, and leaves no process or file behind.

It only checks exit statuses; whether a node works is checked by the other nodes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml

from auras_ros.action.limits import MAX_BRAKING_S
from auras_ros.exit_status import BAD_SETTINGS, TOO_SLOW
from auras_ros.nodes.common.config import BRIDGE, EXECUTABLES, LIFECYCLE, SPARED, read_config
from auras_ros.nodes.common.enclave import enclave_variables
from auras_ros.topic_names import RemapRule

RESTART_DELAYS_S = (0.5, 1.0, 2.0, 4.0, 8.0)
TOO_SLOW_DELAYS_S = (16.0, 30.0)  # after those: each try loads a policy, on a machine that is overloaded
STEADY_S = 10.0  # after a process has run this long, it is restarted with the shortest delay
GRACE_S = 5.0
BRAKING_S = MAX_BRAKING_S + GRACE_S  # of the actuator, whose last command has to be a hold


class SupervisorError(RuntimeError):
    """A process cannot start with its settings."""


@dataclass
class _Slot:
    """One executable: its process, and when to restart it."""

    name: str
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    restarts: int = 0
    too_slow: int = 0
    due_s: float | None = 0.0
    scratch: tempfile.TemporaryDirectory[str] | None = None  # the parameter files of its current start


def _under(namespace: str, config: Path) -> str:
    """The parameters for nodes in a namespace: in ROS 2 a section `agent` is only for /agent, not for /left/agent."""
    sections = yaml.safe_load(config.read_text(encoding="utf-8"))
    moved = {name if name.startswith("/") else f"{namespace}/{name}": values for name, values in sections.items()}
    return yaml.safe_dump(moved)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"


class Supervisor:
    """Call `start`, then `poll` often from the thread that started it, then `stop`; or use it as a context manager.
    Raises ConfigError for a config that cannot be run.

    parameters: node name -> overrides of the file's parameters. sim: the world of the bridge, in place of the file's.
    remaps: rules for every process; they come before the file's. log: for the processes' output; None: inherited.
    """

    def __init__(
        self,
        config: Path,
        *,
        namespace: str = "",
        log: IO[Any] | None = None,
        parameters: dict[str, dict[str, Any]] | None = None,
        sim: str = "",
        remaps: Sequence[RemapRule] = (),
    ) -> None:
        read = self.read = read_config(config)
        self.respawn, self.warnings = read.supervision.respawn, read.warnings
        self.config, self._log, self._sim = config, log, sim or read.supervision.sim
        self._namespace = f"/{namespace.strip('/')}" if namespace else ""
        self._moved = _under(self._namespace, config) if namespace else ""
        self._overrides = dict(parameters or {})
        self.remaps = (*remaps, *read.supervision.remaps)  # of two rules for one name, ROS 2 takes the first
        self._placed = read.placed  # paths relative to the config
        self._slots = [_Slot(name) for name in read.supervision.processes]

    @property
    def processes(self) -> dict[str, subprocess.Popen[bytes]]:
        """Executable name -> process, for those that were started and have not been found dead."""
        return {slot.name: slot.process for slot in self._slots if slot.process is not None}

    @property
    def too_slow(self) -> list[str]:
        """Executables that found this machine too slow for their settings."""
        return [slot.name for slot in self._slots if slot.too_slow]

    def override(self, node: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Set a node's overrides from its next start on. Returns the previous ones."""
        before, self._overrides[node] = self._overrides.get(node, {}), parameters
        return before

    def start(self) -> None:
        for slot in self._slots:
            self._spawn(slot)

    def poll(self) -> list[str]:
        """Check the processes once. Returns news, one line each. Raises SupervisorError on status 2, except
        of a process without which the others go on."""
        news = []
        for slot in self._slots:
            if slot.process is not None and (status := slot.process.poll()) is not None:
                slot.process = None
                news.append(self._died(slot, status))
            elif slot.process is None and slot.due_s is not None and time.monotonic() >= slot.due_s:
                news.append(self._start_again(slot))
        return news

    @property
    def alive(self) -> bool:
        """Whether any process runs or will be restarted."""
        return any(slot.process is not None or slot.due_s is not None for slot in self._slots)

    def stop(self) -> None:
        """SIGTERM in reverse order of starting, then SIGKILL to those alive after GRACE_S (actuator: BRAKING_S)."""
        running = [(slot.name, slot.process) for slot in reversed(self._slots) if slot.process is not None]
        for _, process in running:
            process.terminate()
        began_s = time.monotonic()
        for name, process in running:
            end_s = began_s + (BRAKING_S if name == "actuator" else GRACE_S)
            try:
                process.wait(max(0.0, end_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for slot in self._slots:
            slot.process = slot.due_s = None
            self._tidy(slot)

    def _died(self, slot: _Slot, status: int) -> str:
        how = f"was killed by {_signal(-status)}" if status < 0 else f"exited with status {status}"
        if status == TOO_SLOW:
            slot.too_slow += 1
            how = "found this machine too slow for its settings just now (see its own message)"
        if status == BAD_SETTINGS and slot.name in SPARED:
            slot.due_s = None
            return f"{slot.name} cannot start with these settings, see its own message: not started again"
        if status == BAD_SETTINGS:
            raise SupervisorError(f"{slot.name} cannot start with these settings; see its own message")
        if not self.respawn:
            slot.due_s = None
            return f"{slot.name} {how}"
        steady = time.monotonic() - slot.started_s > STEADY_S and status != TOO_SLOW
        early = 0 if steady else slot.restarts
        delays_s = (*RESTART_DELAYS_S, *TOO_SLOW_DELAYS_S) if status == TOO_SLOW else RESTART_DELAYS_S
        return f"{slot.name} {how}, {self._later(slot, early, delays_s)}"

    def _later(self, slot: _Slot, early: int, delays_s: tuple[float, ...]) -> str:
        """Schedule a restart. early: how many starts before this one ended early."""
        delay_s = delays_s[min(early, len(delays_s) - 1)]
        slot.restarts = early + 1
        slot.due_s = time.monotonic() + delay_s
        return f"starting again in {delay_s:g} s"

    def _start_again(self, slot: _Slot) -> str:
        """Restart it. If there is no room for a file or a process just now, try later; the others run on meanwhile."""
        try:
            self._spawn(slot)
        except OSError as error:
            return f"{slot.name} cannot be started ({error}), {self._later(slot, slot.restarts, RESTART_DELAYS_S)}"
        return f"{slot.name} started again"

    def _spawn(self, slot: _Slot) -> None:
        """Raises OSError if its files cannot be written, or no process can be made."""
        child = [sys.executable, "-m", "auras_ros.nodes.common.child", str(os.getpid()), EXECUTABLES[slot.name]]
        own = ["--sim", self._sim] if slot.name == BRIDGE else []
        command = [*child, *own, "--ros-args", *self._parameters(slot)]
        if self._namespace:
            command += ["-r", f"__ns:={self._namespace}"]
        command += [word for rule in self.remaps for word in rule.arguments()]
        # of the name in the config, whatever world is started in its place: the policy file is made from the config
        enclave = enclave_variables(self.read.supervision.node(slot.name), self._namespace)
        slot.process = subprocess.Popen(
            command,
            env={**os.environ, **enclave},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT if self._log else None,
            start_new_session=True,  # Ctrl-C reaches only us, and we stop them in order
        )
        slot.started_s, slot.due_s = time.monotonic(), None

    def _parameters(self, slot: _Slot) -> list[str]:
        """The config, and a second file with all overrides: in ROS 2 only a file can name a node in a namespace, and
        the node's own section has precedence over `-p name:=value`. The files are written for each start, so that those
        of earlier starts may be gone."""
        last: dict[str, dict[str, Any]] = {}
        if slot.name in LIFECYCLE:  # with ROS 2 the launch file changes its states
            last[slot.name] = {"autostart": True}
        if slot.name == "actuator" and slot.restarts:  # after a restart a person must arm
            last["actuator"] = {"arm_on_start": False}
        said: dict[str, dict[str, Any]] = {}
        for node, values in (*self._placed.items(), *self._overrides.items(), *last.items()):
            key = f"{self._namespace}/{node}" if self._namespace else node
            said.setdefault(key, {"ros__parameters": {}})["ros__parameters"].update(values)
        self._tidy(slot)
        slot.scratch = tempfile.TemporaryDirectory(prefix="auras_", ignore_cleanup_errors=True)
        folder, files = Path(slot.scratch.name), [self.config]
        if self._moved:
            files = [folder / self.config.name]
            files[0].write_text(self._moved, encoding="utf-8")
        if said:
            files.append(folder / f"{slot.name}.overrides.yaml")
            files[-1].write_text(yaml.safe_dump(said), encoding="utf-8")
        return [word for file in files for word in ("--params-file", str(file))]

    def _tidy(self, slot: _Slot) -> None:
        if slot.scratch is not None:
            slot.scratch.cleanup()
            slot.scratch = None

    def __enter__(self) -> Supervisor:
        try:
            self.start()
        except OSError:
            self.stop()  # ends the processes that were started before the error
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
