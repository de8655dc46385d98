"""Readers that broken or forged packets made deaf hear again by themselves: on whatever backend this run speaks.

Guards: one RTPS packet in a publisher's name ends a subscription for good, though discovery shows both as alive.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from auras_ros import ros
from auras_ros.exit_status import BROKEN
from auras_ros.live.soak import rtps
from auras_ros.nodes.common.diagnostics import Diagnostics, Level
from auras_ros.nodes.common.qos import LATCHED
from auras_ros.ros.msg import JointState, String
from auras_ros.ros.srv import Trigger
from auras_ros.ros.wait_guard import POLL_S, STUCK_POLLS
from tests.conftest import held_domain

DOMAINS = range(40, 50)
PATIENCE_S = 20.0
# The bound is 5 s; this machine may be busy.
RECOVERY_S = 15.0
# Fast DDS looks at every number up to the one that a heartbeat claims, so a larger one would stop it for hours.
FAR = 10**6
ENTITY_KEYS = range(0x100)  # of a participant's first publishers and clients
MANY_MESSAGES = 10
RELIABLE = ros.QoSProfile(depth=10)
PROFILES = {"reliable": RELIABLE, "best effort": ros.qos_profile_sensor_data}


class Listener:
    """A node with a periodic topic, a rare one and a service, as ours have them; and its talker, another process."""

    def __init__(self, context: ros.Context, profile: ros.QoSProfile) -> None:
        self.node = ros.Node("listener", context=context)
        self.states = 0
        self.prompts: list[str] = []
        self.asked = False
        self.diagnostics = Diagnostics(self.node, "test")
        qos = self.diagnostics.qos
        qos.create_subscription(JointState, "joint_states", self._on_states, profile, raw=True, periodic=True)
        qos.create_subscription(String, "prompt", lambda message: self.prompts.append(message.data), LATCHED)
        self.node.create_service(Trigger, "again", self._on_request)
        self._executor = ros.SingleThreadedExecutor(context=context)
        self._executor.add_node(self.node)
        self.talker = subprocess.Popen(
            [sys.executable, "-m", "tests.portability.children.states_talker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.line() == "ready"

    def _on_request(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self.asked = True
        return response

    def _on_states(self, payload: Any) -> None:
        self.states += 1

    def line(self) -> str:
        assert self.talker.stdout is not None
        return self.talker.stdout.readline().strip()

    def say(self, line: str) -> None:
        assert self.talker.stdin is not None
        self.talker.stdin.write(line + "\n")
        self.talker.stdin.flush()

    def spin_until(self, condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> None:
        end_s = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < end_s, f"not in time: {what}"
            self._executor.spin_once(timeout_sec=0.02)

    def spin(self, duration_s: float) -> None:
        end_s = time.monotonic() + duration_s
        while time.monotonic() < end_s:
            self._executor.spin_once(timeout_sec=0.02)

    def hear(self, what: str, patience_s: float = PATIENCE_S) -> None:
        """Until so many more joint states came that their reader is not deaf."""
        self.states = 0
        self.spin_until(lambda: self.states >= MANY_MESSAGES, what, patience_s)

    def talker_guid(self) -> bytes:
        (info,) = self.node.get_publishers_info_by_topic("joint_states")
        return bytes(info.endpoint_gid)[:16]

    def counts(self) -> tuple[int, int]:
        return self.diagnostics.qos.readers.counts()["joint_states"]

    def close(self) -> None:
        self.talker.kill()
        self.talker.communicate()
        self._executor.shutdown()
        self.node.destroy_node()


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    with held_domain(DOMAINS) as number:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(number))
        yield number


@pytest.fixture
def context(domain: int) -> Iterator[ros.Context]:
    made = ros.Context()
    ros.init(args=[], context=made, domain_id=domain)
    yield made
    ros.try_shutdown(context=made)


@pytest.fixture(params=list(PROFILES))
def listener(context: ros.Context, request: pytest.FixtureRequest) -> Iterator[Listener]:
    made = Listener(context, PROFILES[request.param])
    try:
        made.say("prompt first")
        made.hear("the talker")
        made.spin_until(lambda: made.prompts == ["first"], "a prompt")
        yield made
    finally:
        made.close()


def forged(guid: bytes) -> list[bytes]:
    """Packets in the name of a publisher, and of every other publisher and client that its participant may have."""
    packets = []
    for key in ENTITY_KEYS:
        writer = guid[: rtps.PREFIX_BYTES] + bytes((0, key >> 8, key & 0xFF, 0x03))
        packets.append(rtps.heartbeat(writer, FAR, FAR))
    return [*packets, rtps.data(guid, FAR, b"\x00\x01\x00\x00" + bytes(4))]


def test_all_that_forged_packets_made_deaf_hears_again(listener: Listener, domain: int) -> None:
    rtps.send(forged(listener.talker_guid()), domain)
    listener.spin_until(lambda: listener.counts()[1] == 1, "the deaf reader is noticed", RECOVERY_S)
    listener.hear("joint states after the forged packets", RECOVERY_S)
    listener.say("prompt second")
    listener.spin_until(lambda: "second" in listener.prompts, "a prompt after them")
    assert listener.prompts == ["first", "second"], "a new reader delivers no message again"
    listener.say("ask")
    listener.spin_until(lambda: listener.asked, "a request after them")
    listener.spin(0.5)  # the answer goes out
    assert listener.line() == "answered"
    report = listener.diagnostics._check_readers()
    assert report.level is Level.OK
    assert report.values["joint_states deaf"] == 1


def test_a_publisher_that_is_heard_keeps_its_reader(listener: Listener) -> None:
    listener.spin(2.5)
    assert listener.counts() == (0, 0)


@pytest.mark.skipif(ros.BACKEND == "rclpy", reason="Fast DDS hangs: test_a_hung_middleware_ends_its_process")
def test_after_a_storm_of_mutated_packets_everything_goes_on(listener: Listener, domain: int) -> None:
    guid = listener.talker_guid()
    originals = [*rtps.captured_packets(domain, 1.0), *rtps.discovery_packets(guid)]
    for info in listener.node.get_publishers_info_by_topic("joint_states"):
        originals += rtps.writer_packets(bytes(info.endpoint_gid)[:16])
    for info in listener.node.get_publishers_info_by_topic("prompt"):
        originals += rtps.writer_packets(bytes(info.endpoint_gid)[:16])
    rtps.send(rtps.mutated_packets(originals, seed=1, count=3000), domain)
    listener.hear("joint states after the storm", RECOVERY_S)
    assert listener.talker.poll() is None


@pytest.mark.skipif(ros.BACKEND != "rclpy", reason="Cyclone DDS does not hang")
def test_a_hung_middleware_ends_its_process(context: ros.Context, domain: int) -> None:
    """Fast DDS counts up to the number in a forged heartbeat. A new process is needed, and the supervisor starts it."""
    observer = ros.Node("observer", context=context)
    started: list[subprocess.Popen[str]] = []
    try:
        for name in ("states_talker", "states_node"):
            command = [sys.executable, "-m", f"tests.portability.children.{name}"]
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        talker, victim = started
        assert victim.stdout is not None
        assert victim.stdout.readline().strip() == "heard"
        end_s = time.monotonic() + PATIENCE_S
        while not (infos := observer.get_publishers_info_by_topic("joint_states")):
            assert time.monotonic() < end_s, "the talker is not discovered"
            time.sleep(0.05)
        guid = bytes(infos[0].endpoint_gid)[:16]
        with pytest.raises(subprocess.TimeoutExpired):  # a healthy one is left alone, though it mostly waits
            victim.wait(timeout=STUCK_POLLS * POLL_S + 3.0)
        rtps.send([rtps.heartbeat(guid, rtps.FAR, rtps.FAR)], domain)
        assert victim.wait(timeout=3 * PATIENCE_S) == BROKEN
        assert talker.poll() is None
    finally:
        for child in started:
            child.kill()
            child.communicate()
        observer.destroy_node()
