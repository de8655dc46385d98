"""`auras doctor` on ROS 2: the backend and why, whether a start like that of `auras run` succeeds, and who can call its
services.

Guards: a doctor that says ok where `auras run` ends at once; one that dies with what it examines; advice that names
what is not installed. What it says under a real rclpy: tests/portability/test_doctor_names.py.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from auras_ros.cli.doctor import machine, ros_in_use
from auras_ros.cli.doctor.finding import Finding, Verdict
from auras_ros.cli.doctor.ros_in_use import Start, middleware, ros

ROOT = Path(__file__).resolve().parents[3]
START = ros_in_use.start
ABSENT = "raise ModuleNotFoundError(\"No module named 'rclpy'\", name='rclpy')"


@pytest.fixture(autouse=True)
def _asked_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test starts a process of its own, and the shell's own settings do not count."""
    monkeypatch.delenv("RMW_IMPLEMENTATION", raising=False)
    monkeypatch.delenv("AMENT_PREFIX_PATH", raising=False)
    monkeypatch.setenv("AURAS_ROS_BACKEND", "dds")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    START.cache_clear()
    yield
    START.cache_clear()


@pytest.fixture
def rclpy_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """rclpy_is(code, version): what a process imports as rclpy, and the version that its metadata has."""

    def plant(code: str, version: str = "") -> None:
        (tmp_path / "rclpy").mkdir()
        (tmp_path / "rclpy" / "__init__.py").write_text(code)
        if version:
            info = tmp_path / f"rclpy-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: rclpy\nVersion: {version}\n")
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
        monkeypatch.setenv("AURAS_ROS_BACKEND", "")

    return plant


def says(finding: Finding, status: Verdict, *words: str) -> None:
    assert finding.status is status, finding
    for word in words:
        assert word in f"{finding.text} | {finding.remedy}"


# --- which one, and why ---


def test_without_ros_our_own_layer_is_named_with_the_reason(
    ros_domain_id: int, monkeypatch: pytest.MonkeyPatch, rclpy_is: Callable[..., None]
) -> None:
    if importlib.util.find_spec("rclpy"):  # this machine has a ROS: what it has is hidden
        rclpy_is(ABSENT)
    monkeypatch.setenv("AURAS_ROS_BACKEND", "")
    finding = ros()
    says(finding, Verdict.OK, "our own layer on Cyclone DDS 11.0.1, without rclpy")
    says(finding, Verdict.OK, "because rclpy does not import: No module named 'rclpy'")
    says(finding, Verdict.OK, f"domain {ros_domain_id}, LOCALHOST")


@pytest.mark.usefixtures("ros_domain_id")
def test_a_backend_that_is_forced_is_the_reason() -> None:
    says(ros(), Verdict.OK, "our own layer on Cyclone DDS 11.0.1", "because AURAS_ROS_BACKEND=dds")


@pytest.mark.usefixtures("ros_domain_id")
def test_an_rclpy_that_does_not_import_is_no_quiet_choice_of_our_layer(rclpy_is: Callable[..., None]) -> None:
    rclpy_is("raise ImportError('built for Python 3.12')")
    says(ros(), Verdict.NOTE, "rclpy does not import: built for Python 3.12", "PYTHON=python3.12 make env")


def test_an_rclpy_that_is_forced_and_missing(monkeypatch: pytest.MonkeyPatch, rclpy_is: Callable[..., None]) -> None:
    rclpy_is(ABSENT)
    monkeypatch.setenv("AURAS_ROS_BACKEND", "rclpy")
    says(ros(), Verdict.PROBLEM, "AURAS_ROS_BACKEND=rclpy, but rclpy does not import", "source a ROS 2 installation")


@pytest.mark.parametrize("version", ["3.3.15", "1.9.0"])
def test_an_rclpy_that_breaks_a_promise_is_refused(version: str, rclpy_is: Callable[..., None]) -> None:
    rclpy_is("", version)
    says(ros(), Verdict.PROBLEM, f"rclpy {version} (", "no rclpy.event_handler", "Source ROS 2 Jazzy or Kilted")


def test_an_rclpy_without_what_the_nodes_use_is_refused_by_name(rclpy_is: Callable[..., None]) -> None:
    rclpy_is("", "77.1.2")
    says(ros(), Verdict.PROBLEM, "rclpy 77.1.2 (unknown) cannot be used", "create_node", "AURAS_ROS_BACKEND=dds")


def test_a_command_says_it_in_a_line(rclpy_is: Callable[..., None]) -> None:
    rclpy_is("", "3.3.15")
    command = [sys.executable, "-m", "auras_ros.cli.main", "run", "pusht"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: rclpy 3.3.15 (humble) cannot be used: it has no rclpy.event_handler")
    assert ran.stderr.count("\n") == 1


# --- what `auras run` would do ---


def test_a_start_that_fails_for_auras_run_alone_is_a_problem(
    ros_domain_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configuration of Cyclone DDS that SUBNET takes and LOCALHOST, the range of `auras run`, does not."""
    other = machine.default_interface()
    if not other:
        pytest.skip("this machine has no network interface")
    monkeypatch.setenv(
        "CYCLONEDDS_URI", f"<General><NetworkInterfaceAddress>{other}</NetworkInterfaceAddress></General>"
    )
    monkeypatch.delenv("ROS_AUTOMATIC_DISCOVERY_RANGE")
    says(ros(), Verdict.PROBLEM, "lo, which LOCALHOST needs, cannot be added", "CYCLONEDDS_URI")
    START.cache_clear()
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET")
    says(ros(), Verdict.OK, f"domain {ros_domain_id}, SUBNET")


@pytest.mark.usefixtures("ros_domain_id")
def test_what_cyclone_dds_prints_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CYCLONEDDS_URI", "file:///nowhere.xml")
    says(ros(), Verdict.PROBLEM, "CYCLONEDDS_URI is 'file:///nowhere.xml'", "can't open configuration file")


@pytest.mark.usefixtures("ros_domain_id")
def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROS_AUTOMATIC_DISCOVERY_RANGE")
    before = dict(os.environ)
    says(ros(), Verdict.OK, "LOCALHOST")
    assert dict(os.environ) == before


def test_a_participant_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real thing: a domain id that no participant can have."""
    monkeypatch.setenv("ROS_DOMAIN_ID", "4000")
    says(ros(), Verdict.PROBLEM, "4000", "ROS_DOMAIN_ID")


@pytest.mark.parametrize(
    ("ending", "said"),
    [("os._exit(102)", "ended with status 102"), ("os.abort()", "ended by SIGABRT"), ("os._exit(0)", "status 0")],
    ids=["exit", "abort", "an end that looks well"],
)
def test_an_installation_that_ends_the_process_is_reported_by_one_that_lives(
    ending: str, said: str, rclpy_is: Callable[..., None]
) -> None:
    rclpy_is(f"import os, sys\nprint('the reason of rcl', file=sys.stderr, flush=True)\n{ending}")
    says(ros(), Verdict.PROBLEM, said, "the reason of rcl")
    says(middleware(), Verdict.NOTE, "no participant can be made")


def test_an_rmw_that_is_not_installed_is_named_with_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, monkeypatch, "rmw_fastrtps_cpp")
    monkeypatch.setenv("RMW_IMPLEMENTATION", "rmw_cyclonedds_cpp")
    monkeypatch.setattr(ros_in_use, "start", lambda: Start(error="the process ended with status 102"))
    says(ros(), Verdict.PROBLEM, "RMW_IMPLEMENTATION is rmw_cyclonedds_cpp", "installed are rmw_fastrtps_cpp: unset")


def test_the_wheels_beside_a_sourced_ros_are_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("auras_ros.installed_ros.wheels_prefix", lambda: tmp_path / "environment")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "librcl.so").touch()
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path))
    monkeypatch.setenv("AURAS_ROS_BACKEND", "")
    says(ros(), Verdict.PROBLEM, str(tmp_path), "at random", "pip uninstall ros-wheels-bootstrapper")


@pytest.mark.usefixtures("ros_domain_id")
def test_they_do_not_concern_our_own_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("auras_ros.installed_ros.sourced_beside_wheels", lambda: str(tmp_path))
    says(ros(), Verdict.OK, "our own layer")


def test_the_pinned_cyclonedds_is_the_layers_own() -> None:
    from auras_ros.ros.dds import library

    assert ros_in_use.PINNED_CYCLONEDDS == library.PINNED_VERSION


# --- who can call its services ---


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, *rmws: str) -> None:
    """A sourced ROS with these RMWs."""
    index = folder / "share" / "ament_index" / "resource_index" / "rmw_typesupport"
    index.mkdir(parents=True)
    for name in (*rmws, "rmw_implementation"):
        (index / name).touch()
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(folder))
    monkeypatch.setattr(sys, "prefix", str(folder / "no_wheels"))


OURS = Start(backend="dds", started=True)
CYCLONE_ALONE = "services of our own layer answer Cyclone DDS alone"


@pytest.mark.parametrize(
    ("rmws", "chosen", "status", "words", "unsaid"),
    [
        ((), "", Verdict.OK, (CYCLONE_ALONE,), "export"),
        (("rmw_fastrtps_cpp", "rmw_cyclonedds_cpp"), "rmw_cyclonedds_cpp", Verdict.OK, (CYCLONE_ALONE,), "export"),
        (("rmw_fastrtps_cpp", "rmw_cyclonedds_cpp"), "", Verdict.NOTE,
         (CYCLONE_ALONE, "the default", "export RMW_IMPLEMENTATION=rmw_cyclonedds_cpp"), "apt-get"),
        (("rmw_fastrtps_cpp",), "", Verdict.NOTE,
         ("rmw_cyclonedds_cpp is not installed", "apt-get install ros-$ROS_DISTRO-rmw-cyclonedds-cpp"), "wheel"),
        (("rmw_fastrtps_cpp",), "rmw_fastrtps_cpp", Verdict.NOTE,
         ("ros2 in this shell uses rmw_fastrtps_cpp",), "wheel"),
        ((), "rmw_zenoh_cpp", Verdict.NOTE, ("ros2 in this shell uses rmw_zenoh_cpp",), "wheel"),
    ],
)  # fmt: skip
def test_services_of_our_own_layer(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rmws: tuple[str, ...],
    chosen: str,
    status: Verdict,
    words: tuple[str, ...],
    unsaid: str,
) -> None:
    installed(tmp_path, monkeypatch, *rmws)
    monkeypatch.setattr("auras_ros.installed_ros.has_wheels", lambda: False)
    monkeypatch.setattr(ros_in_use, "start", lambda: OURS)
    monkeypatch.setenv("RMW_IMPLEMENTATION", chosen)
    finding = middleware()
    says(finding, status, *words)
    assert unsaid not in f"{finding.text} | {finding.remedy}"


def test_beside_the_wheels_no_rmw_is_advised_that_they_do_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, monkeypatch, "rmw_fastrtps_cpp")
    monkeypatch.setattr("auras_ros.installed_ros.has_wheels", lambda: True)
    monkeypatch.setattr(ros_in_use, "start", lambda: OURS)
    finding = middleware()
    says(finding, Verdict.NOTE, CYCLONE_ALONE, "AURAS_ROS_BACKEND=rclpy")
    assert "apt-get" not in finding.remedy
    assert "export RMW_IMPLEMENTATION" not in finding.remedy


@pytest.mark.parametrize(
    ("rmw", "words"),
    [
        ("rmw_cyclonedds_cpp", ("those of our own layer",)),
        ("rmw_fastrtps_cpp", ("processes with it", CYCLONE_ALONE)),
    ],
)
def test_services_under_rclpy(monkeypatch: pytest.MonkeyPatch, rmw: str, words: tuple[str, ...]) -> None:
    """By the RMW that is loaded, not by the variable."""
    monkeypatch.setenv("RMW_IMPLEMENTATION", "rmw_zenoh_cpp")
    monkeypatch.setattr(ros_in_use, "start", lambda: Start(backend="rclpy", rmw=rmw, started=True))
    says(middleware(), Verdict.OK, rmw, *words)
