"""Discovery settings of our own layer that cannot work: a node ends with status 2 and one line that says why."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator

import pytest

from auras_ros.nodes.actuator import node as actuator
from auras_ros.ros.dds import loopback
from auras_ros.ros.dds.library import DdsError
from auras_ros.sim.bridge import node as bridge


@pytest.fixture(autouse=True)
def _signals(domain: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The nodes' `main` runs in this process here: it takes the signals, and they are given back."""
    monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("name", "value"),
    [("ROS_AUTOMATIC_DISCOVERY_RANGE", "EVERYWHERE"), ("CYCLONEDDS_URI", "<a"), ("CYCLONEDDS_URI", "x")],
)
def test_discovery_that_cannot_be_used_is_named(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.delenv("ROS_LOCALHOST_ONLY", raising=False)
    monkeypatch.setenv(name, value)
    assert actuator.main(["actuator", "--ros-args", "-p", "checkpoint:=pusht"]) == 2
    assert f"error: {name} is '{value}'" in capfd.readouterr().err  # after what Cyclone DDS says itself


def test_a_machine_that_cannot_keep_localhost_is_named(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended in a traceback, and the supervisor started it again for ever. A device that is not there stands for a
    kernel that ties no socket."""
    monkeypatch.setattr(loopback, "DEVICE", b"no_such_device")
    for node in (actuator, bridge):
        assert node.main([node.__name__, "--ros-args"]) == 2
        error = capfd.readouterr().err
        assert error.startswith("error: domain ")
        assert "LOCALHOST is set and cannot be ensured" in error
        assert error.count("\n") == 1


def test_a_peer_whose_name_does_not_exist_is_named(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended in SIGABRT, from the middleware. A name server that does not answer may do so at the next start."""
    answers = [socket.gaierror(socket.EAI_NONAME, "no such name"), socket.gaierror(socket.EAI_AGAIN, "not now")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: (_ for _ in ()).throw(answers.pop(0)))
    monkeypatch.setenv("ROS_STATIC_PEERS", "10.0.0.7:7400;robto")
    assert actuator.main(["actuator", "--ros-args"]) == 2
    assert capfd.readouterr().err == "error: ROS_STATIC_PEERS names 'robto': no such name\n"
    with pytest.raises(DdsError, match="ROS_STATIC_PEERS cannot be looked up: not now"):
        actuator.main(["actuator", "--ros-args"])
