"""`auras doctor` on Fast DDS: what a camera's driver needs is said with the line to copy.

Guards: a user whose driver loses nine of ten images while doctor finds everything well.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from auras_ros import resources
from auras_ros.cli.doctor import CHECKS, fastdds
from auras_ros.cli.doctor.finding import Verdict
from auras_ros.nodes.common import discovery
from auras_ros.ros import fastdds as profiles


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Fast DDS 2, and an environment that says nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(profiles, "fastdds_version", lambda: 2)
    names = (*profiles.PROFILE_VARIABLE.values(), *profiles.SERVER_VARIABLES, profiles.TRANSPORTS_VARIABLE,
             profiles.OURS_VARIABLE, discovery.VARIABLE, discovery.OLD_VARIABLE, "ROS_STATIC_PEERS")  # fmt: skip
    for name in names:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_it_is_one_of_the_checks() -> None:
    assert fastdds.fast_dds in CHECKS


def test_another_rmw_needs_nothing(environment: pytest.MonkeyPatch) -> None:
    environment.setattr(profiles, "fastdds_version", lambda: 0)
    assert fastdds.fast_dds().status is Verdict.OK


@pytest.mark.parametrize("version", [2, 3])
def test_what_a_cameras_driver_needs_by_default(environment: pytest.MonkeyPatch, version: int) -> None:
    environment.setattr(profiles, "fastdds_version", lambda: version)
    finding = fastdds.fast_dds()
    path = resources.find("config", profiles.LOCALHOST_PROFILE)
    assert finding.status is Verdict.NOTE
    assert "a camera's driver needs it too" in finding.text
    assert f"export {profiles.PROFILE_VARIABLE[version]}={path} (" in finding.remedy


def test_what_it_needs_on_a_network(environment: pytest.MonkeyPatch) -> None:
    environment.setenv(discovery.VARIABLE, "SUBNET")
    finding = fastdds.fast_dds()
    path = resources.find("config", profiles.SUBNET_PROFILE)
    assert finding.remedy.endswith(f"export {profiles.PROFILE_VARIABLE[2]}={path}")


@pytest.mark.parametrize("discovery_range", ["", "LOCALHOST", "SUBNET"])
def test_the_line_was_copied(environment: pytest.MonkeyPatch, discovery_range: str) -> None:
    environment.setenv(profiles.PROFILE_VARIABLE[2], str(resources.find("config", profiles.LOCALHOST_PROFILE)))
    environment.setenv(discovery.VARIABLE, discovery_range)
    assert fastdds.fast_dds().status is Verdict.OK


def test_a_profile_that_doctor_itself_has_set_is_no_copied_line(environment: pytest.MonkeyPatch) -> None:
    """Another check makes a participant in this very process."""
    path = str(resources.find("config", profiles.SUBNET_PROFILE))
    environment.setenv(profiles.PROFILE_VARIABLE[2], path)
    environment.setenv(profiles.OURS_VARIABLE, path)
    assert fastdds.fast_dds().status is Verdict.NOTE


def test_a_profile_of_the_users_own(environment: pytest.MonkeyPatch) -> None:
    environment.setenv(profiles.PROFILE_VARIABLE[2], "/etc/robot/fastdds.xml")
    finding = fastdds.fast_dds()
    assert finding.status is Verdict.NOTE
    assert f"{profiles.PROFILE_VARIABLE[2]} is set" in finding.text
    assert str(resources.find("config", profiles.LOCALHOST_PROFILE)) in finding.remedy


@pytest.mark.parametrize("own_profile", ["", "/etc/robot/fastdds.xml"])
def test_who_can_read_images_is_said(environment: pytest.MonkeyPatch, own_profile: str) -> None:
    environment.setenv(profiles.PROFILE_VARIABLE[2], own_profile)
    assert "every local user can read images in /dev/shm (mode 0644)" in fastdds.fast_dds().text
