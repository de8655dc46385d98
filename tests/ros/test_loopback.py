"""LOCALHOST keeps everything of ours on the loopback device, and nobody on another machine gets in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from auras_ros import ros
from auras_ros.ros.dds import discovery, loopback
from auras_ros.ros.dds.participant import Participant
from tests.ros.conftest import ROOT
from tests.ros.sockets import local_addresses

ATTACK = Path(__file__).parent / "children" / "other_machine.py"


def test_every_socket_is_on_loopback_or_tied_to_it(context: ros.Context) -> None:
    """Guards: libddsc binds to every address, whichever interface it is told to use."""
    before = local_addresses()
    assert context.participant.gid
    opened = [each for each in local_addresses() if each not in before]
    assert len(opened) >= 3
    assert [(a, p, d) for a, p, d in opened if not a.startswith("127.") and d != "lo"] == []


@pytest.mark.parametrize("reach", ["SUBNET", "SYSTEM_DEFAULT"])
def test_another_range_ties_nothing(reach: str, domain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", reach)
    before = local_addresses()
    participant = Participant(domain)
    try:
        opened = [each for each in local_addresses() if each not in before]
        assert opened
        assert {device for _, _, device in opened} == {""}
    finally:
        participant.close()


def test_a_kernel_that_refuses_ends_the_start_and_leaves_no_domain(
    domain: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "DEVICE", b"no_such_device")
    before = local_addresses()
    with pytest.raises(discovery.ConfigurationError, match="LOCALHOST was asked for and cannot be kept"):
        Participant(domain)
    assert local_addresses() == before


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}, True), ({"ROS_LOCALHOST_ONLY": "1"}, True),
        ({"ROS_AUTOMATIC_DISCOVERY_RANGE": "OFF"}, True), ({}, False),
        ({"ROS_AUTOMATIC_DISCOVERY_RANGE": "SYSTEM_DEFAULT"}, False),
        ({"ROS_LOCALHOST_ONLY": "1", "ROS_STATIC_PEERS": "127.0.0.2;localhost"}, True),
        ({"ROS_LOCALHOST_ONLY": "1", "ROS_STATIC_PEERS": "localhost;10.0.0.7"}, False),
        ({"ROS_LOCALHOST_ONLY": "1", "ROS_STATIC_PEERS": "robot"}, False),
    ],
)  # fmt: skip
def test_who_is_kept_on_loopback(environment: dict[str, str], expected: bool) -> None:
    assert discovery.loopback_alone(environment) is expected
    assert ('name="lo"' in discovery.configuration(environment)) is expected


def no_namespaces() -> str:
    """Why this machine lets no test make two hosts of its own; empty where it does."""
    if not all(shutil.which(each) for each in ("unshare", "ip", "nsenter")):
        return "unshare, nsenter and ip are not all installed"
    tried = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "ip", "link", "add", "cable", "type", "veth",
         "peer", "name", "far"],
        capture_output=True, text=True,
    )  # fmt: skip
    return f"no network namespace may be made here: {tried.stderr.strip()}" if tried.returncode else ""


def test_another_machine_that_names_us_as_its_peer_is_not_let_in() -> None:
    """A namespace of its own stands for the other machine. A node on SUBNET beside ours hears it, so it was there."""
    if reason := no_namespaces():
        pytest.skip(reason)
    command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, str(ATTACK)]
    ran = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    heard = dict(line.split(": ", 1) for line in ran.stdout.splitlines())
    assert heard["on SUBNET"] == "from another machine"
    assert heard["on LOCALHOST"] == "from this machine"
