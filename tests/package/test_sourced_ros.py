"""`pytest` passes whatever is sourced: what a ROS 2 installation puts on PYTHONPATH changes no test run.

ROS 2 Jazzy brings pytest plugins that pytest 9 cannot load, and an rclpy that our layer's tests are not about.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINY = "tests/ros/test_names.py"


@pytest.fixture
def sourced(tmp_path: Path) -> dict[str, str]:
    """An environment with a plugin that breaks pytest, and an rclpy that nobody may import."""
    (tmp_path / "broken_plugin.py").write_text("raise RuntimeError('a plugin that nobody asked for was loaded')\n")
    (tmp_path / "rclpy.py").write_text("raise RuntimeError('rclpy was imported')\n")
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pytest11]\nbroken = broken_plugin\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}", "AURAS_ROS_BACKEND": ""}
    for name in ("PYTEST_ADDOPTS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD", "PYTEST_PLUGINS"):
        environment.pop(name, None)
    return environment


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(words or [TINY])]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


def test_plugins_and_an_rclpy_on_the_path_are_left_alone(sourced: dict[str, str]) -> None:
    ran = run(sourced)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_what_a_shell_exports_for_its_robot_changes_nothing(sourced: dict[str, str]) -> None:
    exported = {
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET", "ROS_STATIC_PEERS": "10.0.0.7", "CYCLONEDDS_URI": "<Broken>",
        "ROS_SECURITY_ENABLE": "true", "ROS_SECURITY_STRATEGY": "Enforce",
    }  # fmt: skip
    ran = run(sourced | exported, "tests/ros/test_loopback.py", "-k", "every_socket")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_plugins_that_we_use_are_still_there(sourced: dict[str, str]) -> None:
    """By hand too: `pytest -n 1` needs xdist."""
    ran = run(sourced, "-n", "1", "--hypothesis-seed=1", TINY)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_without_our_settings_the_planted_plugin_is_loaded(sourced: dict[str, str]) -> None:
    """The plant is alive: else the tests above would pass on anything."""
    ran = run(sourced, "-o", "addopts=", TINY)
    assert ran.returncode != 0
    assert "a plugin that nobody asked for was loaded" in ran.stdout + ran.stderr


def test_a_run_that_speaks_rclpy_skips_our_layers_tests_by_name(tmp_path: Path) -> None:
    """The stand-in has names alone: those tests call nothing of it."""
    names = tmp_path / "rclpy"
    modules = ("clock", "context", "duration", "event_handler", "exceptions", "executors", "lifecycle", "logging",
               "node", "parameter", "qos", "serialization", "signals", "task", "time", "utilities")  # fmt: skip
    names.mkdir()
    (names / "__init__.py").write_text("from unittest.mock import MagicMock\n__getattr__ = MagicMock\n")
    for module in modules:
        (names / f"{module}.py").write_text("def __getattr__(name): return type(name, (Exception,), {})\n")
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{tmp_path}", "AURAS_ROS_BACKEND": "rclpy"}
    ran = run(environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "about our DDS layer: AURAS_ROS_BACKEND=dds" in ran.stdout
    assert "passed" not in ran.stdout


def test_make_test_ros_says_what_is_missing(tmp_path: Path) -> None:
    """With a Python that has no rclpy; make builds nothing for this target."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'rclpy'\" >&2\nexit 1\n")
    python.chmod(0o755)
    ran = subprocess.run(
        ["make", "--no-print-directory", "test-ros", f"BIN={tmp_path}"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 2
    assert "rclpy does not import under" in ran.stderr
    assert "Source a ROS 2 installation" in ran.stderr


def test_make_test_ros_tests_rclpy_with_the_rmw_of_the_shell(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\ncase "$*" in\n*pytest*) echo "tested $AURAS_ROS_BACKEND on $RMW_IMPLEMENTATION";;\nesac\n'
    )
    python.chmod(0o755)
    ran = subprocess.run(
        ["make", "--no-print-directory", "test-ros", f"BIN={tmp_path}"],
        cwd=ROOT, env=os.environ | {"RMW_IMPLEMENTATION": "rmw_cyclonedds_cpp"}, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "tested rclpy on rmw_cyclonedds_cpp\n"), ran.stderr
