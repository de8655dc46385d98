"""Two machines on one: this network namespace, and another one at the other end of a virtual cable.

The other machine names this one as its peer and publishes. Here, one node listens on SUBNET and one on LOCALHOST.
When SUBNET has heard the other machine for three of its announcements, LOCALHOST is told something by a third node
of this machine: what it hears first is printed. Run it under `unshare --user --map-root-user --net`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE, THERE = "10.99.0.1", "10.99.0.2"
LISTENER = str(Path(__file__).parent / "listener.py")
MESSAGES = 40  # at 10 Hz: the attacker has announced itself three times and more
FAR, NEAR = "from another machine", "from this machine"


class Node:
    """A listener as a process, here or inside another namespace, and what it has heard."""

    def __init__(self, name: str, inside: int | None = None, **environment: str) -> None:
        self.heard: list[str] = []
        self.process = subprocess.Popen(
            [*enter(inside), sys.executable, LISTENER, name, "attacked"], env=os.environ | environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.heard.extend(line.strip() for line in iter(self.process.stdout.readline, ""))

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()


def enter(inside: int | None) -> list[str]:
    return ["nsenter", "--net", "--target", str(inside)] if inside else []


def ip(words: str, *, inside: int | None = None) -> None:
    subprocess.run([*enter(inside), "ip", *words.split()], check=True)


def plug_in(other: int) -> None:
    """A cable between this namespace and that of the process `other`."""
    while os.readlink(f"/proc/{other}/ns/net") == os.readlink("/proc/self/ns/net"):
        time.sleep(0.01)  # it has not left for its own namespace yet
    ip("link set lo up")
    ip("link add cable type veth peer name far")
    ip(f"link set far netns {other}")
    ip(f"addr add {HERE}/24 dev cable")
    ip("link set cable up")
    ip("link set lo up", inside=other)
    ip(f"addr add {THERE}/24 dev far", inside=other)
    ip("link set far up", inside=other)


def main() -> None:
    other = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    nodes: list[Node] = []
    try:
        plug_in(other.pid)
        ours = Node("ours", ROS_AUTOMATIC_DISCOVERY_RANGE="LOCALHOST")
        open_one = Node("open", ROS_AUTOMATIC_DISCOVERY_RANGE="SUBNET")
        attacker = Node("attacker", other.pid, ROS_AUTOMATIC_DISCOVERY_RANGE="SUBNET", ROS_STATIC_PEERS=HERE)
        nodes += [ours, open_one, attacker]
        while len(open_one.heard) < MESSAGES:
            attacker.say(FAR)
            time.sleep(0.1)
        near = Node("near", ROS_AUTOMATIC_DISCOVERY_RANGE="LOCALHOST")
        nodes.append(near)
        while NEAR not in ours.heard:
            near.say(NEAR)
            time.sleep(0.1)
        print(f"on SUBNET: {open_one.heard[0]}\non LOCALHOST: {ours.heard[0]}", flush=True)
    finally:
        for node in nodes:
            node.process.kill()
            node.process.wait()
        other.kill()
        other.wait()


main()
