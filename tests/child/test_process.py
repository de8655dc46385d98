"""A child process: what tests/sim/process/test_world.py does not see of it, because no world sends megabytes.

Guards: weights that are lost because the child was slow to start; a child that computes for ever after its parent died;
an error of another library that fills a screen.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from auras_ros.child import process as child_process
from auras_ros.child.process import ChildProcess, ChildStart, ProcessLostError
from tests.sim.processes import ends

ROOT = Path(__file__).parents[2]
SERVICE = """
import time
time.sleep({sleep})

class Echo:
    declared = {{"size": 0}}

    def answer(self, order, array):
        if order["do"] == "fail":
            raise KeyError("x" * 100_000)
        if order["do"] == "spin":
            while True:
                pass
        return {{}}, array

    def close(self):
        pass

def make(order, array):
    echo = Echo()
    echo.declared = {{"size": 0 if array is None else array.nbytes}}
    return echo
"""


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a package that only this process knows."""
    return import_service(tmp_path, monkeypatch, sleep=0.0)


def import_service(folder: Path, monkeypatch: pytest.MonkeyPatch, sleep: float) -> str:
    place = folder / "echo_service"
    place.mkdir()
    (place / "__init__.py").write_text("")
    (place / "made.py").write_text(SERVICE.format(sleep=sleep))
    spec = importlib.util.spec_from_file_location("echo_service", place / "__init__.py")
    assert spec is not None
    monkeypatch.setitem(sys.modules, "echo_service", importlib.util.module_from_spec(spec))
    return "echo_service"


def started(package: str, array: np.ndarray | None = None) -> ChildProcess:
    start = ChildStart(f"{package}.made", {}, array, [package])
    return ChildProcess("echo", "service", Path(sys.executable), start)


def test_megabytes_wait_for_a_child_that_starts_slowly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than a look takes: the looks count, one after the other."""
    monkeypatch.setattr(child_process, "LOOK_S", 0.05)
    monkeypatch.setattr(child_process, "START_LOOKS", 2400)
    package = import_service(tmp_path, monkeypatch, sleep=0.5)
    child = started(package, np.ones(4_000_000, np.float32))
    assert child.declared == {"size": 16_000_000}
    _, back = child.ask("echo", array=np.arange(3_000_000, dtype=np.float32))
    assert back is not None
    np.testing.assert_array_equal(back, np.arange(3_000_000, dtype=np.float32))
    child.close()


def test_a_child_that_takes_nothing_is_lost(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "LOOK_S", 0.1)
    monkeypatch.setattr(child_process, "ANSWER_LOOKS", 5)
    child = started(service)
    with ends(child.pid):
        with pytest.raises(ProcessLostError, match=r"^echo: the service.s process has said nothing for 0\.5 s"):
            child.ask("spin")
        with pytest.raises(ProcessLostError, match="has said nothing"):
            child.ask("echo", array=np.ones(4_000_000, np.float32))


def test_an_error_is_cut(service: str) -> None:
    child = started(service)
    with pytest.raises(RuntimeError, match=r"^KeyError: 'x+ \.\.\.$") as said:
        child.ask("fail")
    assert len(str(said.value)) < 2100
    child.close()


@pytest.mark.parametrize("where", ["main", "other"])
def test_one_that_computes_ends_with_a_parent_that_is_killed(where: str, service: str) -> None:
    """Also if a thread has started it, of which the kernel does not know that it lives as long as its process."""
    spec = sys.modules[service].__spec__
    assert spec is not None
    code = f"""
import importlib.util, sys, threading
from pathlib import Path
from auras_ros.child.process import ChildProcess, ChildStart
spec = importlib.util.spec_from_file_location("echo_service", {spec.origin!r})
sys.modules["echo_service"] = importlib.util.module_from_spec(spec)
made = []

def start():
    begun = ChildStart("echo_service.made", {{}}, packages=["echo_service"])
    made.append(ChildProcess("echo", "service", Path(sys.executable), begun))

if {where!r} == "main":
    start()
else:
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
print(made[0].pid, flush=True)
made[0].ask("spin")
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ
    ) as parent:
        assert parent.stdout is not None
        with ends(int(parent.stdout.readline())):
            parent.kill()
