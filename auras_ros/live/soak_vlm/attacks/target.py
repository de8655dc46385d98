"""What an attack is told about the server, and how one runs in a process of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Event

from auras_ros.live.soak_vlm.client import HOST

CONNECT_S = 5.0
AGAIN_S = 0.05  # before an attack whose connection broke is called again
NICE = 19  # the clients that are measured share the core with the attack, and come first


@dataclass(frozen=True)
class AttackTarget:
    """The server under attack, on this machine."""

    port: int
    # The server's token. An attack before the token does not send it.
    token: str
    # When the attack ends, by time.monotonic(), which all processes of a machine share.
    end_s: float

    def is_running(self) -> bool:
        """Whether the attack goes on."""
        return time.monotonic() < self.end_s

    def connect(self, timeout_s: float = CONNECT_S) -> socket.socket:
        """A new connection. Raises OSError."""
        return socket.create_connection((HOST, self.port), timeout_s)


# An attack returns when the target is no longer running, or earlier: it is then called again. It may raise OSError, as
# a server that defends itself closes connections.
Attack = Callable[[AttackTarget], None]


def run_attack(attack: Attack, target: AttackTarget, cores: frozenset[int], is_begun: Event) -> None:
    """The main function of an attack's process. cores: those of the clients. is_begun: set when the attack begins."""
    os.sched_setaffinity(0, cores)
    os.nice(NICE)
    is_begun.set()
    while target.is_running():
        with contextlib.suppress(OSError):
            attack(target)
        time.sleep(AGAIN_S)
