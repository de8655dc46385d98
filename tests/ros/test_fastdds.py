"""Which profile Fast DDS is given, by the environment alone; tests/portability/test_fastdds.py starts the real one."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from auras_ros import resources
from auras_ros.ros import fastdds
from tests.ros.sockets import local_addresses

RANGE = fastdds.RANGE
NAMESPACE = "{http://www.eprosima.com/XMLSchemas/fastRTPS_Profiles}"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without a profile."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, fastdds.SUBNET_PROFILE),
        ({RANGE: "SUBNET"}, fastdds.SUBNET_PROFILE),
        ({RANGE: "SYSTEM_DEFAULT"}, fastdds.SUBNET_PROFILE),
        ({RANGE: "LOCALHOST"}, fastdds.LOCALHOST_PROFILE),
        ({RANGE: "SUBNET", fastdds.LOCALHOST_ONLY: "1"}, fastdds.LOCALHOST_PROFILE),
        ({RANGE: "OFF", fastdds.LOCALHOST_ONLY: "1"}, fastdds.LOCALHOST_PROFILE),
        ({RANGE: "LOCALHOST", "ROS_STATIC_PEERS": "localhost;127.0.0.2;"}, fastdds.LOCALHOST_PROFILE),
    ],
)
def test_a_profile_for_each_range(environment: dict[str, str], name: str, version: int) -> None:
    choice = fastdds.choose(version, environment)
    assert choice.profile == resources.find("config", name)
    assert choice.confines == (name == fastdds.LOCALHOST_PROFILE)


@pytest.mark.parametrize(
    ("environment", "version", "reason"),
    [
        ({RANGE: "LOCALHOST"}, 0, "does not use Fast DDS"),
        ({RANGE: "OFF"}, 2, "OFF"),
        ({RANGE: "LOCALHOST", "ROS_STATIC_PEERS": "192.0.2.7"}, 2, "ROS_STATIC_PEERS"),
        ({RANGE: "LOCALHOST", "ROS_STATIC_PEERS": "localhost;robot"}, 3, "ROS_STATIC_PEERS"),
        ({"FASTRTPS_DEFAULT_PROFILES_FILE": "/users.xml"}, 2, "FASTRTPS_DEFAULT_PROFILES_FILE"),
        ({"FASTRTPS_DEFAULT_PROFILES_FILE": "/users.xml"}, 3, "FASTRTPS_DEFAULT_PROFILES_FILE"),
        ({"FASTDDS_DEFAULT_PROFILES_FILE": "/users.xml", RANGE: "LOCALHOST"}, 3, "FASTDDS_DEFAULT_PROFILES_FILE"),
        ({"FASTDDS_BUILTIN_TRANSPORTS": "UDPv4"}, 2, "FASTDDS_BUILTIN_TRANSPORTS"),
        ({"ROS_DISCOVERY_SERVER": "192.0.2.7:11811", RANGE: "LOCALHOST"}, 3, "ROS_DISCOVERY_SERVER"),
        ({"ROS2_EASY_MODE": "192.0.2.7"}, 3, "ROS2_EASY_MODE"),
    ],
)
def test_what_the_user_has_set_is_left_alone(environment: dict[str, str], version: int, reason: str) -> None:
    choice = fastdds.choose(version, environment)
    assert choice.profile is None
    assert not choice.confines
    assert reason in choice.reason


@pytest.mark.parametrize(
    ("environment", "version"),
    [
        ({"FASTDDS_DEFAULT_PROFILES_FILE": "/users.xml"}, 2),
        ({"FASTDDS_BUILTIN_TRANSPORTS": "UDPv4", RANGE: "LOCALHOST"}, 2),
    ],
)
def test_a_setting_that_fast_dds_does_not_read_is_none(environment: dict[str, str], version: int) -> None:
    """Fast DDS 2 does not know the variable of Fast DDS 3, and with LOCALHOST rmw_fastrtps chooses the transports."""
    assert fastdds.choose(version, environment).profile is not None


@pytest.mark.parametrize("version", [2, 3])
def test_a_profile_in_the_working_directory_is_the_users(version: int, elsewhere: Path) -> None:
    other = fastdds.LOCAL_PROFILE[5 - version]
    (elsewhere / other).write_text("<dds/>", encoding="utf-8")
    assert fastdds.choose(version, {}).profile is not None
    (elsewhere / fastdds.LOCAL_PROFILE[version]).write_text("<dds/>", encoding="utf-8")
    assert fastdds.LOCAL_PROFILE[version] in fastdds.choose(version, {}).reason
    assert fastdds.choose(version, {"SKIP_DEFAULT_XML_FILE": "1"}).profile is not None


@pytest.mark.parametrize("name", [fastdds.LOCALHOST_PROFILE, fastdds.SUBNET_PROFILE])
def test_a_profile_of_a_parent_process_is_no_setting_of_the_user(name: str) -> None:
    path = str(resources.find("config", name))
    inherited = {fastdds.PROFILE_VARIABLE[2]: path, fastdds.OURS_VARIABLE: path}
    for discovery_range, wanted in (("LOCALHOST", fastdds.LOCALHOST_PROFILE), ("SUBNET", fastdds.SUBNET_PROFILE)):
        choice = fastdds.choose(2, inherited | {RANGE: discovery_range})
        assert choice.profile == resources.find("config", wanted)


def test_whoever_names_a_profile_that_ships_is_never_opened_to_the_network_by_us() -> None:
    """A shell where doctor's line for the driver was copied, and from which our nodes are started too."""
    copied = {fastdds.PROFILE_VARIABLE[2]: str(resources.find("config", fastdds.LOCALHOST_PROFILE))}
    assert fastdds.choose(2, copied | {RANGE: "LOCALHOST"}).confines
    assert fastdds.choose(2, copied).profile is None  # what was named is used as it is
    copied = {fastdds.PROFILE_VARIABLE[2]: str(resources.find("config", fastdds.SUBNET_PROFILE))}
    assert fastdds.choose(2, copied | {RANGE: "LOCALHOST"}).confines


def test_an_installation_without_its_profiles_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The range is then rclpy's: the network must not be opened for a profile that is missing."""
    monkeypatch.setattr(resources, "_candidates", lambda: [tmp_path])
    choice = fastdds.choose(2, {RANGE: "LOCALHOST"})
    assert choice.profile is None
    assert not choice.confines
    assert str(tmp_path) in choice.reason


def test_one_process_gives_fast_dds_one_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads profiles once. A later LOCALHOST must not open SUBNET on the strength of a profile that is not read."""
    monkeypatch.setattr(fastdds, "_process", fastdds._Process())
    subnet = fastdds.choose(2, {RANGE: "SUBNET"})
    assert fastdds._of_this_process(subnet) == subnet
    assert fastdds._of_this_process(subnet) == subnet
    later = fastdds._of_this_process(fastdds.choose(2, {RANGE: "LOCALHOST"}))
    assert later.profile is None
    assert not later.confines


def test_sockets_that_other_machines_reach_are_found() -> None:
    import socket

    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as everywhere,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as loopback,
    ):
        for bound, address in ((everywhere, "0.0.0.0"), (loopback, "127.0.0.1")):
            bound.bind((address, 0))
        port = everywhere.getsockname()[1]
        domain = (port - fastdds.FIRST_PORT) // fastdds.PORTS_OF_A_DOMAIN
        assert f"0.0.0.0:{port}" in fastdds.exposed_sockets(domain)
        assert not [text for text in fastdds.exposed_sockets(domain) if text.startswith("127.")]
        assert ("127.0.0.1", loopback.getsockname()[1], "") in local_addresses()
        assert fastdds.exposed_sockets(domain + 1) == []


@pytest.mark.parametrize("name", [fastdds.LOCALHOST_PROFILE, fastdds.SUBNET_PROFILE])
def test_the_profiles_hold_what_the_docs_say(name: str) -> None:
    root = ElementTree.parse(resources.find("config", name)).getroot()

    def text(tag: str) -> str:
        found = root.find(f".//{NAMESPACE}{tag}")
        assert found is not None, tag
        return str(found.text)

    assert int(text("segment_size")) == 8 << 20
    assert int(text("maxMessageSize")) == 2 << 20
    assert int(text("sendBufferSize")) == int(text("receiveBufferSize")) == 4 << 20
    assert text("useBuiltinTransports") == "false"
    confined = [address.text for address in root.iter(f"{NAMESPACE}address")]
    assert set(confined) == ({"127.0.0.1"} if name == fastdds.LOCALHOST_PROFILE else set())
