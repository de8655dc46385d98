"""The wheels of PyPI beside a sourced ROS 2 are noticed, whichever variable leads to it; their own folder is not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from auras_ros import installed_ros

MARKS = {
    "AMENT_PREFIX_PATH": "lib/librcl.so",
    "PYTHONPATH": "rclpy/__init__.py",
    "LD_LIBRARY_PATH": "librcl.so",
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of Python, which the wheels are installed in."""
    folder = tmp_path / "environment"
    folder.mkdir()
    monkeypatch.setattr(sys, "prefix", str(folder))
    monkeypatch.setattr(installed_ros, "wheels_prefix", folder.resolve)
    return folder


def with_file(folder: Path, name: str) -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()
    return folder


@pytest.mark.parametrize("variable", MARKS)
def test_a_sourced_ros_beside_the_wheels(variable: str, own: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"  # an overlay, which has no rcl of its own
    workspace.mkdir()
    other = with_file(tmp_path / "jazzy", MARKS[variable])
    environment = {variable: os.pathsep.join(["", str(own), str(workspace), str(other)])}
    assert installed_ros.sourced_beside_wheels(environment) == str(other)


@pytest.mark.parametrize("variable", MARKS)
def test_the_wheels_own_folders_are_no_other_ros(variable: str, own: Path, tmp_path: Path) -> None:
    with_file(own, MARKS[variable])
    link = tmp_path / "link"
    link.symlink_to(own)
    environment = {variable: f"{own}{os.pathsep}{link}"}
    assert installed_ros.sourced_beside_wheels(environment) == ""


def test_a_sourced_ros_without_the_wheels_is_well(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = with_file(tmp_path / "jazzy", MARKS["AMENT_PREFIX_PATH"])
    monkeypatch.setattr(installed_ros, "wheels_prefix", lambda: None)
    assert installed_ros.sourced_beside_wheels({"AMENT_PREFIX_PATH": str(other)}) == ""


def test_the_rmws_that_are_installed(own: Path, tmp_path: Path) -> None:
    index = "share/ament_index/resource_index/rmw_typesupport"
    with_file(own, f"{index}/rmw_fastrtps_cpp")
    jazzy = tmp_path / "jazzy"
    for name in ("rmw_cyclonedds_cpp", "rmw_fastrtps_cpp", "rmw_implementation"):
        with_file(jazzy, f"{index}/{name}")
    assert installed_ros.available_rmws({}) == ["rmw_fastrtps_cpp"]
    assert installed_ros.available_rmws({"AMENT_PREFIX_PATH": str(jazzy)}) == ["rmw_cyclonedds_cpp", "rmw_fastrtps_cpp"]
