"""LOCALHOST keeps everything of ours on the loopback device, and nobody on another machine gets in."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from auras_ros import ros
from auras_ros.cli.doctor.machine import default_interface
from auras_ros.ros.dds import discovery, loopback
from auras_ros.ros.dds.participant import Participant
from auras_ros.ros.msg import String
from tests.ros.conftest import PATIENCE_S, ROOT
from tests.ros.sockets import local_addresses

ATTACK = Path(__file__).parent / "children" / "other_machine.py"

MANY = "<Compatibility><ManySocketsMode>many</ManySocketsMode></Compatibility>"
MONITOR = "<Internal><MonitorPort>0</MonitorPort></Internal>"
INTERFACE = '<General><Interfaces><NetworkInterface autodetermine="true"/></Interfaces></General>'


def uri(elements: str) -> str:
    return f"<CycloneDDS><Domain>{elements}</Domain></CycloneDDS>"


def untied(opened: list[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
    return [(a, p, d) for a, p, d in opened if not a.startswith("127.") and d != "lo"]


def test_every_socket_is_on_loopback_or_tied_to_it(context: ros.Context) -> None:
    """Guards: libddsc binds to every address, whichever interface it is told to use."""
    before = local_addresses()
    assert context.participant.gid
    opened = [each for each in local_addresses() if each not in before]
    assert len(opened) >= 3
    assert untied(opened) == []


@pytest.mark.parametrize("elements", [MANY, MONITOR, INTERFACE], ids=["many", "monitor", "interface"])
def test_what_a_cyclonedds_uri_opens_beside_is_tied_too_and_nodes_find_each_other(
    elements: str, request: pytest.FixtureRequest, spawn: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket of each participant's own, a port that tells any caller of the traffic, and the socket that sends by
    another interface, which hears as well."""
    if elements == INTERFACE and not discovery._own_address_as_peer():
        pytest.skip("this machine has no network interface")
    monkeypatch.setenv("CYCLONEDDS_URI", uri(elements))
    before = local_addresses()
    node: ros.Node = request.getfixturevalue("node")
    heard: list[str] = []
    node.create_subscription(String, "/uri", lambda message: heard.append(message.data), 10)
    child = spawn("listener", "other", "/uri")

    def hears() -> bool:
        child.stdin.write("found\n")
        child.stdin.flush()
        return "found" in heard

    request.getfixturevalue("spin_until")(hears)
    opened = [each for each in local_addresses() if each not in before]
    assert len(opened) >= 4  # one more than without the variable
    assert untied(opened) == []


LO = '<NetworkInterface name="lo"/>'
LO_IN_FULL = '<NetworkInterface name="lo" priority="default" multicast="true"/>'
FORMS = {
    "lo": uri(f"<General><Interfaces>{LO}</Interfaces></General>"),
    "lo in full": uri(f"<General><Interfaces>{LO_IN_FULL}</Interfaces></General>"),
    "lo by its address": '<General><Interfaces><NetworkInterface address="127.0.0.1"/></Interfaces></General>',
    "lo by the old element": "<General><NetworkInterfaceAddress>lo</NetworkInterfaceAddress></General>",
    "lo in elements closed as Cyclone DDS allows": f"<General><Interfaces>{LO}</></>",
    "lo and another": f'<General><Interfaces>{LO}<NetworkInterface name="OTHER"/></Interfaces></General>',
    "another": '<General><Interfaces><NetworkInterface name="OTHER"/></Interfaces></General>',
    "autodetermine": uri(INTERFACE),
    "a file's URI": "file://FILE",
    "a file's path": "FILE",
    "several, separated by commas": "<Discovery><MaxAutoParticipantIndex>90</MaxAutoParticipantIndex></Discovery>,FILE,"
    "<Internal><SPDPResponseMaxDelay>0s</SPDPResponseMaxDelay></Internal>",
    "an interface that may be absent": uri(
        '<General><Interfaces><NetworkInterface name="nowhere0" presence_required="false"/></Interfaces></General>'
    ),
}


def in_form(form: str, folder: Path) -> str:
    """CYCLONEDDS_URI in this form; the file, where it names one, selects lo."""
    text = FORMS[form]
    if "OTHER" in text or "autodetermine" in text:
        other = default_interface()
        if not other:
            pytest.skip("this machine has no network interface")
        text = text.replace("OTHER", other)
    file = folder / "cyclonedds.xml"
    file.write_text(f'<?xml version="1.0"?>\n{FORMS["lo in full"]}\n')
    return text.replace("FILE", str(file))


@pytest.mark.parametrize("form", FORMS)
def test_a_cyclonedds_uri_that_selects_interfaces_works_beside_localhost(
    form: str,
    request: pytest.FixtureRequest,
    spawn: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Guards: "the same interface may not be selected twice", where a robot's shell names lo for all of ROS. Nodes
    find each other, and no socket is open to the network."""
    monkeypatch.setenv("CYCLONEDDS_URI", in_form(form, tmp_path))
    before = local_addresses()
    node: ros.Node = request.getfixturevalue("node")
    heard: list[str] = []
    node.create_subscription(String, "/form", lambda message: heard.append(message.data), 10)
    child = spawn("listener", "other", "/form")

    def hears() -> bool:
        child.stdin.write("found\n")
        child.stdin.flush()
        return "found" in heard

    request.getfixturevalue("spin_until")(hears)
    opened = [each for each in local_addresses() if each not in before]
    assert len(opened) >= 3
    assert untied(opened) == []


@pytest.mark.parametrize("reach", ["SUBNET", "SYSTEM_DEFAULT"])
def test_a_cyclonedds_uri_with_lo_is_used_as_it_is_on_another_range(
    reach: str, domain: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", reach)
    monkeypatch.setenv("CYCLONEDDS_URI", FORMS["lo"])
    Participant(domain).close()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"<General><Interfaces>{LO}{LO}</Interfaces></General>", "lo: the same interface may not be selected twice"),
        ('<General><Interfaces><NetworkInterface name="nowhere0"/></Interfaces></General>', "nowhere0: does not match"),
        ("file:///nowhere.xml", "can't open configuration file file:///nowhere.xml"),
    ],
    ids=["lo twice", "an interface that is not there", "a file that is not there"],
)
def test_a_cyclonedds_uri_that_cannot_be_used_is_refused_with_the_reason_once(
    text: str, reason: str, domain: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CYCLONEDDS_URI", text)
    before = local_addresses()
    with pytest.raises(discovery.ConfigurationError, match=r"CYCLONEDDS_URI is .* refuses; the line above"):
        Participant(domain)
    assert capfd.readouterr().err.count(reason) == 1
    assert local_addresses() == before


def test_a_cyclonedds_uri_that_lo_cannot_be_added_to_is_refused(domain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards: a node on LOCALHOST that finds nobody and says nothing."""
    other = default_interface()
    if not other:
        pytest.skip("this machine has no network interface")
    old = f"<General><NetworkInterfaceAddress>{other}</NetworkInterfaceAddress></General>"
    monkeypatch.setenv("CYCLONEDDS_URI", old)
    before = local_addresses()
    with pytest.raises(discovery.ConfigurationError, match="lo, which LOCALHOST needs, cannot be added"):
        Participant(domain)
    assert local_addresses() == before


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
    with pytest.raises(discovery.ConfigurationError, match="LOCALHOST is set and cannot be ensured"):
        Participant(domain)
    assert local_addresses() == before


def test_a_participant_whose_own_socket_cannot_be_tied_is_not_left(
    domain: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CYCLONEDDS_URI", uri(MANY))
    first = Participant(domain)
    try:
        before = local_addresses()
        monkeypatch.setattr(loopback, "DEVICE", b"no_such_device")
        with pytest.raises(discovery.ConfigurationError, match="LOCALHOST is set and cannot be ensured"):
            Participant(domain)
        deadline_s = time.monotonic() + PATIENCE_S
        while local_addresses() != before:  # libddsc closes it in a thread of its own
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
    finally:
        first.close()


def test_a_socket_that_can_be_tied_to_nothing_is_refused() -> None:
    """None that libddsc opens today: its own transport on Ethernet is refused as a configuration."""
    before = loopback.sockets()
    try:
        frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    except PermissionError:
        pytest.skip("CAP_NET_RAW is needed to open one")
    with frames, pytest.raises(OSError, match="frames of the network"):
        loopback.tie(before)


def test_another_threads_call_of_a_server_is_left_alone() -> None:
    """One that was opened meanwhile: tied, it would lose its way to the server."""
    before = loopback.sockets()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
        try:
            caller.connect((discovery.DISCOVERY_GROUP, 1))  # sends nothing
        except OSError:
            pytest.skip("this machine has no network interface")
        loopback.tie(before)
        assert caller.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16) == b""


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
