"""What was run with this package is a table; everything else is named, and what is known to break is refused."""

from __future__ import annotations

import pytest

from auras_ros import ros
from auras_ros.ros import supported
from auras_ros.ros.supported import RosInUse, UnsupportedRosError


@pytest.mark.parametrize(
    ("rclpy", "rmw"),
    [("7.1.6", "rmw_fastrtps_cpp"), ("7.1.99", "rmw_cyclonedds_cpp"), ("9.1.2", "rmw_fastrtps_cpp")],
)
def test_what_was_run_is_not_remarked_on(rclpy: str, rmw: str) -> None:
    assert supported.warning(RosInUse(rclpy, "any", rmw)) == ""


@pytest.mark.parametrize(
    ("rclpy", "rmw"),
    [
        ("10.0.11", "rmw_fastrtps_cpp"),
        ("7.10.0", "rmw_fastrtps_cpp"),
        ("7.1.6", "rmw_zenoh_cpp"),
        ("7.1.6", "rmw_connextdds"),
        ("9.1.2", "rmw_cyclonedds_cpp"),
        ("unknown", "unknown"),
    ],
)
def test_what_nobody_ran_is_named_with_what_was(rclpy: str, rmw: str) -> None:
    text = supported.warning(RosInUse(rclpy, "lyrical", rmw))
    assert text.startswith(f"rclpy {rclpy} (lyrical) with {rmw} was never run")
    assert "jazzy (rclpy 7.1) with rmw_fastrtps_cpp, kilted (rclpy 9.1) with rmw_fastrtps_cpp" in text


def test_nothing_is_both_run_and_broken() -> None:
    assert {run.rclpy for run in supported.RUNS}.isdisjoint(supported.BROKEN)
    assert all(supported.DISTRIBUTIONS[run.rclpy] == run.distribution for run in supported.RUNS)
    assert set(supported.BROKEN) <= set(supported.DISTRIBUTIONS)


def test_why_humble_is_refused_is_still_so() -> None:
    assert "rclpy.event_handler" in ros._RCLPY


@pytest.mark.parametrize("version", ["3.3.15", "1.0.11"])
def test_a_broken_one_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supported, "rclpy_version", lambda: version)
    with pytest.raises(
        UnsupportedRosError, match=rf"rclpy {version} .* cannot be used: .*event_handler.* Jazzy or Kil"
    ):
        supported.refuse_broken()


@pytest.mark.parametrize("version", ["7.1.6", "10.0.11", "unknown"])
def test_one_that_is_not_known_to_break_is_let_through(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supported, "rclpy_version", lambda: version)
    supported.refuse_broken()


@pytest.mark.parametrize(
    ("version", "named", "expected"),
    [
        ("7.1.6", "", "jazzy"),
        ("7.1.6", "jazzy", "jazzy"),
        ("10.0.11", "", "lyrical"),
        ("9.1.2", "jazzy", "jazzy by ROS_DISTRO, kilted by rclpy's version"),
    ],
)
def test_the_distribution(version: str, named: str, expected: str) -> None:
    assert supported.distribution(version, {"ROS_DISTRO": named}) == expected


def test_the_wheels_beside_a_sourced_ros_are_refused_under_rclpy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("auras_ros.installed_ros.sourced_beside_wheels", lambda: "/opt/ros/jazzy")
    assert supported.check() == ""  # our own layer loads none of them
    monkeypatch.setattr(supported, "BACKEND", "rclpy")
    with pytest.raises(UnsupportedRosError, match=r"/opt/ros/jazzy\) are both here.*at random.*Use one"):
        supported.check()
    monkeypatch.setattr("auras_ros.installed_ros.sourced_beside_wheels", lambda: "")
    monkeypatch.setattr(supported, "in_use", lambda: RosInUse("10.0.11", "lyrical", "rmw_fastrtps_cpp"))
    assert supported.check().startswith("rclpy 10.0.11 (lyrical) with rmw_fastrtps_cpp was never run")
