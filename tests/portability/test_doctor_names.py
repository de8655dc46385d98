"""`auras doctor` names the rclpy, RMW and distribution that a process really uses: Jazzy, Kilted, and what nobody ran.

Run under each distribution's own rclpy. The stand-in for a version that nobody ran is that rclpy itself, found in a
folder whose metadata has another number.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from auras_ros import ros
from tests.nodes.wire import ROOT

pytestmark = pytest.mark.skipif(ros.BACKEND != "rclpy", reason="about rclpy: make test-rclpy, or a sourced ROS 2")

DOCTOR = """
import sys
from auras_ros.cli import doctor
doctor.CHECKS = (doctor.ros, doctor.middleware)
sys.exit(doctor.run([]))
"""
DISTRIBUTIONS = {"7.1": "jazzy", "9.1": "kilted"}  # of the versions that the tests run under


def version() -> str:
    """rclpy's, by pip's metadata where it is a wheel."""
    try:
        return metadata.version("ros-rclpy")
    except metadata.PackageNotFoundError:
        return metadata.version("rclpy")


def distribution() -> str:
    return DISTRIBUTIONS[".".join(version().split(".")[:2])]


def rmw() -> str:
    import rclpy

    return str(rclpy.get_rmw_implementation_identifier())


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(
        [sys.executable, *command], env=variables, cwd=ROOT, capture_output=True, text=True, timeout=180
    )


def doctor(**environment: str) -> tuple[int, str]:
    """(the exit status of doctor's two checks of ROS 2, what they print without its line breaks)."""
    ran = run(["-c", DOCTOR], **environment)
    return ran.returncode, " ".join(ran.stdout.split())


@pytest.mark.usefixtures("ros_domain_id")
def test_it_names_what_is_in_use_and_why() -> None:
    status, text = doctor(AURAS_ROS_BACKEND="rclpy")
    assert status == 0, text
    named = f"rclpy {version()} (distribution {distribution()}), RMW {rmw()}, because AURAS_ROS_BACKEND=rclpy"
    assert f"ok ROS 2 {named}" in text
    assert "services of our own layer answer Cyclone DDS alone" in text or rmw() == "rmw_cyclonedds_cpp"


@pytest.mark.usefixtures("ros_domain_id")
def test_it_names_them_where_no_variable_does() -> None:
    """RMW_IMPLEMENTATION and ROS_DISTRO are empty: pip's wheels set neither."""
    status, text = doctor(AURAS_ROS_BACKEND="", ROS_DISTRO="", RMW_IMPLEMENTATION="")
    assert status == 0, text
    assert f"rclpy {version()} (distribution {distribution()}), RMW rmw_" in text
    assert "because rclpy imports" in text


@pytest.mark.usefixtures("ros_domain_id")
def test_a_distribution_that_is_named_and_another_that_is_imported_are_both_said() -> None:
    text = doctor(ROS_DISTRO="humble")[1]
    assert f"(distribution humble by ROS_DISTRO, {distribution()} by rclpy's version)" in text


@pytest.mark.usefixtures("ros_domain_id")
def test_our_own_layer_beside_it_is_named_as_what_was_asked_for() -> None:
    text = doctor(AURAS_ROS_BACKEND="dds")[1]
    assert "our own layer on Cyclone DDS 11.0.1, without rclpy, because AURAS_ROS_BACKEND=dds" in text
    assert "services of our own layer answer Cyclone DDS alone" in text


@pytest.mark.usefixtures("ros_domain_id")
def test_an_rmw_that_is_not_installed_is_a_problem_that_doctor_survives() -> None:
    """rcl ends the process that imports rclpy."""
    status, text = doctor(RMW_IMPLEMENTATION="rmw_of_nobody_cpp")
    assert status == 1
    assert "problem ROS 2" in text
    assert "RMW_IMPLEMENTATION is rmw_of_nobody_cpp, and installed are" in text


@pytest.fixture
def nobodys(tmp_path: Path) -> str:
    """PYTHONPATH to this rclpy under a number that no distribution has."""
    import rclpy

    (tmp_path / "rclpy").symlink_to(Path(rclpy.__file__).parent)
    info = tmp_path / "rclpy-77.1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rclpy\nVersion: 77.1.2\n")
    return f"{tmp_path}{os.pathsep}{ROOT}"


@pytest.mark.usefixtures("ros_domain_id")
def test_a_version_that_nobody_ran_is_named_by_doctor(nobodys: str) -> None:
    status, text = doctor(PYTHONPATH=nobodys, ROS_DISTRO="")
    assert status == 0, text
    assert f"note ROS 2 rclpy 77.1.2 (distribution unknown), RMW {rmw()}" in text
    assert "was never run with this package" in text
    assert "jazzy (rclpy 7.1) with rmw_fastrtps_cpp" in text


@pytest.mark.usefixtures("ros_domain_id")
def test_a_version_that_nobody_ran_is_named_in_one_line_when_a_node_starts(nobodys: str) -> None:
    command = ["-m", "auras_ros.nodes.actuator.node", "--ros-args", "-p", "rat_hz:=1.0"]
    lines = run(command, PYTHONPATH=nobodys, ROS_DISTRO="").stderr.splitlines()
    warnings = [line for line in lines if "never run" in line]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"warning: rclpy 77.1.2 (unknown) with {rmw()} was never run")


@pytest.mark.usefixtures("ros_domain_id")
def test_a_version_that_was_run_is_not_remarked_on_when_a_node_starts() -> None:
    ran = run(["-m", "auras_ros.nodes.actuator.node", "--ros-args", "-p", "rat_hz:=1.0"])
    assert "never run" not in ran.stderr
