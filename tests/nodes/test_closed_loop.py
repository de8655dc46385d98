"""`auras run` with the real bridge, actuator and agent: the agent is killed, started again, and waits to be armed."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from auras_ros.nodes.common.config import EXECUTABLES
from tests.nodes.wire import MS, Child, Children, Watch

NAMES = {module: name for name, module in EXECUTABLES.items()}
HOLD_WITHIN_MS = 1000  # beside a whole loop; without the watch a chunk lasts 1.6 s. agent/test_lost asks for 150


def config(folder: Path, checkpoint: str, *processes: str) -> Path:
    sections = {
        "supervisor": {"processes": list(processes), "respawn": True},
        "pusht": {"seed": 3, "auto_reset": True, "max_steps": 1_000_000},  # a reset puts the robot elsewhere
        "actuator": {"checkpoint": checkpoint, "arm_on_start": True},
        "agent": {"checkpoint": checkpoint, "camera_age_limit_ms": 1000.0},
    }
    path = folder / "loop.yaml"
    path.write_text(yaml.safe_dump({name: {"ros__parameters": values} for name, values in sections.items()}))
    return path


def running(parent: int) -> dict[str, int]:
    """Name -> pid of the processes that a supervisor started."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"\nPPid:\t{parent}\n" in (entry / "status").read_text():
                words = (entry / "cmdline").read_text().split("\0")
                found[NAMES[words[words.index("auras_ros.nodes.common.child") + 2]]] = int(entry.name)
        except (FileNotFoundError, ProcessLookupError, ValueError):
            continue  # it ended meanwhile, or is none of ours
    return found


def gone(pid: int) -> bool:
    """Whether no such process runs; a zombie does not run."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def auras_run(children: Children, *words: str) -> Child:
    return children(sys.executable, "-m", "auras_ros.cli.main", "run", *words)


def test_the_agent_dies_and_comes_back(children: Children, checkpoint: str, tmp_path: Path) -> None:
    path = config(tmp_path, checkpoint, "sim_bridge", "actuator", "agent")
    run = auras_run(children, str(path), "--namespace", "/left")
    watch = Watch("/left")  # everything is under the namespace
    try:
        watch.armed()
        killed = running(run.pid)
        assert killed.keys() == {"sim_bridge", "actuator", "agent"}
        session = watch.state_where(lambda state: state["session"], "whom it follows")["session"]
        killed_ns = time.monotonic_ns()
        os.kill(killed["agent"], signal.SIGKILL)
        hold = watch.first("holding", killed_ns)
        assert (hold.label.mono_ns - killed_ns) / MS <= HOLD_WITHIN_MS
        before = [heard for heard in watch.actions if heard.label.tick < hold.label.tick][-1]
        np.testing.assert_array_equal(hold.values, before.values)
        stalled = lambda: "stood still" in watch.states[-1]["reason"]  # noqa: E731  (it is disarmed, on a busy machine)
        watch.until(lambda: stalled() or watch.count("other_session") >= 2, "the next agent's chunks refused")
        assert stalled() or watch.states[-1]["state"] == "holding"
        assert "[supervisor] agent was killed by SIGKILL, starting again in 0.5 s" in run.output
        watch.arm()
        watch.armed("the next agent drives once armed")
        assert watch.state_where(lambda state: state["session"], "whom it follows")["session"] != session
        pids = running(run.pid).values()
        run.send(signal.SIGTERM)
        assert run.wait() == 0, run.output
        assert all(gone(pid) for pid in pids)
        assert "Traceback" not in run.output
        assert watch.sentinel()[-1].label.state == "disarmed"
    finally:
        watch.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_behind(
    children: Children, watch: Watch, checkpoint: str, tmp_path: Path, number: signal.Signals
) -> None:
    run = auras_run(children, str(config(tmp_path, checkpoint, "actuator", "sim_bridge")))
    watch.until(lambda: watch.states, "the actuator's state")
    watch.until(lambda: len(running(run.pid)) == 2, "both processes")
    pids = running(run.pid).values()
    try:
        run.send(number)
        assert run.wait() == (0 if number == signal.SIGINT else -number)
        watch.until(lambda: all(gone(pid) for pid in pids), "every child gone")
    finally:
        for pid in pids:  # where the test fails, nobody else would
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)
