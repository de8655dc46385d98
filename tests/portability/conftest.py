"""Nodes as processes on either backend, in ROS domains of this folder's own; and children on the double of rclpy."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.nodes import wire
from tests.nodes.conftest import actuator, checkpoint, children, contract, fake, robot, vlm_folder, watch
from tests.portability.backends import BACKENDS, RMW, why_not

__all__ = ["actuator", "checkpoint", "children", "contract", "fake", "robot", "vlm_folder", "watch"]
HERE = Path(__file__).parent
DOMAINS = range(50, 60)
_next_domain = itertools.cycle(DOMAINS)


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(wire, "DOMAINS", DOMAINS)
    monkeypatch.setattr(wire, "_next_domain", _next_domain)
    with wire.own_domain() as number:
        yield number


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the nodes that a test starts speak; the test itself speaks whatever it has."""
    name: str = request.param
    if reason := why_not(name):
        pytest.skip(reason)
    monkeypatch.setenv("AURAS_ROS_BACKEND", name)
    if name == "rclpy":
        monkeypatch.setenv("RMW_IMPLEMENTATION", RMW)
    return name


def on_the_double(*command: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the double before every other rclpy."""
    paths = os.pathsep.join((str(wire.ROOT), str(HERE / "rclpy_double")))
    env = os.environ | {"PYTHONPATH": paths, "AURAS_ROS_BACKEND": "rclpy"}
    return subprocess.run(
        [sys.executable, *command],
        stdin=subprocess.DEVNULL,
        env=env,
        cwd=wire.ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def drive(checkpoint: str, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Run a node's main under one of the scripts; what the double reports of it."""

    def run(name: str, *remaps: str, **parameters: Any) -> dict[str, Any]:
        report = tmp_path / "report.json"
        words = [word for key, value in parameters.items() for word in ("-p", f"{key}:={json.dumps(value)}")]
        words += [word for rule in remaps for word in ("-r", rule)]
        ran = on_the_double(
            "-m", "tests.portability.children.drive", name, str(report), "--ros-args", *words
        )  # fmt: skip
        said = ran.stdout + ran.stderr
        assert report.exists(), said
        outcome: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        assert not outcome["fault"], f"{outcome['fault'][0]}\n{said}"
        assert outcome["status"] == 0, said
        return outcome

    return run
