"""What an unprivileged process of the same machine, or of the robot's network, can do to an emergency stop's button.

Each attack is a context manager: it lasts for a block, in which the button is pressed.
"""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from auras_ros.live.soak import rtps
from auras_ros.live.soak.harness import SoakHarness
from auras_ros.live.soak_wire.button_process import ButtonProcess
from auras_ros.nodes.common.stop_signature import SIGNED
from auras_ros.ros import QoSProfile, ReliabilityPolicy
from auras_ros.ros.msg import Bool

TOPIC = "pendant/stop"  # not emergency_stop: the soak itself publishes that
FALSE = b"\x00\x01\x00\x00\x00\x00\x00\x00"  # Bool(data=False), with its encapsulation
FORGED_HZ = 100.0
OLD_NUMBERS = range(1, 40)
VOLATILE = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)


@dataclass(frozen=True)
class Target:
    """What an attack is given: the loop, the button, and the ROS domain."""

    harness: SoakHarness
    button: ButtonProcess
    domain: int

    def writers(self) -> list[bytes]:
        """The GUIDs of the button's writers, as discovery tells them to everybody."""
        infos = [
            info
            for topic in (TOPIC, f"{TOPIC}/{SIGNED}")
            for info in self.harness.witness.get_publishers_info_by_topic(topic)
        ]
        return [bytes(info.endpoint_gid)[:16] for info in infos]

    def send(self, make: Callable[[bytes], list[bytes]]) -> None:
        """Send what is made for each of the button's writers, to everybody but this process, which is to judge."""
        packets = [packet for guid in self.writers() for packet in make(guid)]
        rtps.send(packets, self.domain, spared=rtps.own_ports())

    @contextmanager
    def sending(self, make: Callable[[bytes, int], list[bytes]], rate_hz: float) -> Iterator[None]:
        """Send what is made for each of the button's writers and for each number from 0 on, in a thread."""
        writers = self.writers()
        spared = rtps.own_ports()
        ended = threading.Event()

        def repeat() -> None:
            for number in itertools.count():
                packets = [packet for guid in writers for packet in make(guid, number)]
                rtps.send(packets, self.domain, spared=spared)
                if ended.wait(1.0 / rate_hz):
                    return

        thread = threading.Thread(target=repeat, name="attack", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


Attack = Callable[[Target], AbstractContextManager[Any]]


@dataclass(frozen=True)
class WireCase:
    """name: of the attack. presses: the button is pressed; otherwise what the attack does to it counts as the press.
    needs_key: without signed words this attack succeeds. hangs_fast_dds: an actuator on Fast DDS hangs, stops, is ended
    and started again."""

    name: str
    attack: Attack
    presses: bool = True
    needs_key: bool = False
    hangs_fast_dds: bool = False


def no_attack(target: Target) -> AbstractContextManager[None]:
    return nullcontext()


@contextmanager
def heartbeat(target: Target) -> Iterator[None]:
    """One packet in the button's name: all it said and will say is older than what exists."""
    target.send(lambda guid: [rtps.heartbeat(guid, rtps.FAR, rtps.FAR)])
    yield


@contextmanager
def gap(target: Target) -> Iterator[None]:
    """One packet in the button's name: all it will say is irrelevant."""
    target.send(lambda guid: [rtps.gap(guid, 1, rtps.FAR)])
    yield


@contextmanager
def old_releases(target: Target) -> Iterator[None]:
    """False with the sequence numbers that the button used first, again and again."""
    with target.sending(lambda guid, _: [rtps.data(guid, old, FALSE) for old in OLD_NUMBERS], rate_hz=4.0):
        yield


@contextmanager
def false_in_its_name(target: Target) -> Iterator[None]:
    """False a hundred times a second with the button's coming sequence numbers, so that its own words are taken for
    repetitions."""

    def forge(guid: bytes, number: int) -> list[bytes]:
        far = rtps.FAR + number
        return [rtps.heartbeat(guid, far, far, 2**30 + number), rtps.data(guid, far, FALSE)]

    with target.sending(forge, FORGED_HZ):
        yield


@contextmanager
def false_from_another_writer(target: Target) -> Iterator[None]:
    """False a hundred times a second, from a publisher of its own."""
    topic = (Bool, TOPIC, VOLATILE)
    harness = target.harness
    with harness.publisher(topic) as own, harness.timer(1.0 / FORGED_HZ, lambda: own.publish(Bool(data=False))):
        yield


@contextmanager
def button_stopped(target: Target) -> Iterator[None]:
    """SIGSTOP: it is there, and says nothing."""
    target.button.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        target.button.signal(signal.SIGCONT)


@contextmanager
def link_cut(target: Target) -> Iterator[None]:
    """SIGKILL: no packet comes any more, and none said goodbye. Another button comes after it."""
    target.button.kill()
    try:
        yield
    finally:
        target.button.start()


CASES = (
    WireCase("no attack", no_attack),
    WireCase("heartbeat", heartbeat, hangs_fast_dds=True),
    WireCase("gap", gap, hangs_fast_dds=True),
    WireCase("old releases", old_releases),
    WireCase("false in its name", false_in_its_name, needs_key=True, hangs_fast_dds=True),
    WireCase("false from another writer", false_from_another_writer),
    WireCase("button stopped", button_stopped, presses=False),
    WireCase("link cut", link_cut, presses=False),
)
