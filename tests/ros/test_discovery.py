"""The discovery variables mean what they mean in ROS 2."""

from __future__ import annotations

import socket

import pytest

from auras_ros.ros.dds import discovery


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "SUBNET"), ({"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}, "LOCALHOST"),
        ({"ROS_LOCALHOST_ONLY": "1"}, "LOCALHOST"), ({"ROS_LOCALHOST_ONLY": "0"}, "SUBNET"),
        ({"ROS_LOCALHOST_ONLY": "1", "ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET"}, "LOCALHOST"),
    ],
)  # fmt: skip
def test_range(environment: dict[str, str], expected: str) -> None:
    assert discovery.discovery_range(environment) == expected


def test_localhost_uses_no_multicast_and_large_fragments() -> None:
    text = discovery.configuration({"ROS_LOCALHOST_ONLY": "1"})
    for part in ("<AllowMulticast>false", "FragmentSize>65000B", 'Peer address="localhost"',
                 "<MaxAutoParticipantIndex>120<"):  # fmt: skip
        assert part in text


def test_static_peers_are_asked_in_localhost_too_by_fragments_that_a_network_carries() -> None:
    text = discovery.configuration({"ROS_LOCALHOST_ONLY": "1", "ROS_STATIC_PEERS": "10.0.0.1;host"})
    for part in ("<AllowMulticast>false", 'Peer address="localhost"', 'Peer address="10.0.0.1"', 'Peer address="host"'):
        assert part in text
    assert "FragmentSize" not in text


def test_the_own_address_is_asked_for_some_seconds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards: 121 failed sends a second, each a line, once a laptop has moved to another network."""
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: None)
    monkeypatch.setattr(socket.socket, "getsockname", lambda self: ("10.0.0.9", 1))
    peer = '<Peer address="10.0.0.9" PruneDelay="5s"/>'
    assert peer in discovery.configuration({"ROS_LOCALHOST_ONLY": "1"})
    assert peer not in discovery.configuration({})

    def no_route(self: socket.socket, address: object) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", no_route)
    assert discovery.configuration({"ROS_LOCALHOST_ONLY": "1"}).count("<Peer ") == 1


def test_subnet_keeps_multicast_and_small_fragments() -> None:
    text = discovery.configuration({})
    assert "AllowMulticast" not in text
    assert "FragmentSize" not in text


def test_the_users_configuration_comes_last() -> None:
    assert discovery.configuration({"CYCLONEDDS_URI": "file:///mine.xml"}).endswith(",file:///mine.xml")


def test_system_default_says_nothing_but_how_often_it_is_announced() -> None:
    given = {"ROS_AUTOMATIC_DISCOVERY_RANGE": "SYSTEM_DEFAULT", "CYCLONEDDS_URI": "x"}
    ours, _, users = discovery.configuration(given).rpartition(",")
    assert users == "x"
    assert discovery.ANNOUNCE in ours
    assert not any(word in ours for word in ("Peer ", "Multicast", "Interface", "ParticipantIndex"))


def test_bad_values_are_named() -> None:
    with pytest.raises(ValueError, match="ROS_AUTOMATIC_DISCOVERY_RANGE"):
        discovery.discovery_range({"ROS_AUTOMATIC_DISCOVERY_RANGE": "PLANET"})
    for bad in ("-1", "233", "x", "1.0"):
        with pytest.raises(ValueError, match="ROS_DOMAIN_ID"):
            discovery.domain_id({"ROS_DOMAIN_ID": bad})
    assert discovery.domain_id({"ROS_DOMAIN_ID": ""}) == 0
