"""Keeps a domain's sockets from the network: they are tied to the loopback device.

Cyclone DDS binds what it receives on to every address, whichever interface it is told to use: anybody who names us
as a peer gets in. It has no setting against that, so the kernel is asked (SO_BINDTODEVICE). A socket that is tied
to `lo` hears what was sent to 127.0.0.0/8 on this machine, and nothing else.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

DEVICE = b"lo"
_DESCRIPTORS = Path("/proc/self/fd")
_EVERYWHERE = ("0.0.0.0", "::")


def sockets() -> dict[str, int]:
    """This process's sockets: the kernel's name for each -> one of its descriptors. Empty without /proc."""
    found = {}
    for entry in _DESCRIPTORS.iterdir() if _DESCRIPTORS.is_dir() else []:
        try:
            target = str(entry.readlink())
        except OSError:
            continue  # closed since: another thread's, or the listing's own
        if target.startswith("socket:"):
            found[target] = int(entry.name)
    return found


def tie(before: dict[str, int]) -> None:
    """Tie the datagram sockets that were opened after `before` and listen on every address. OSError where the kernel
    refuses."""
    if not _DESCRIPTORS.is_dir() or not hasattr(socket, "SO_BINDTODEVICE"):
        raise OSError("only Linux, with /proc, ties sockets to a device: set ROS_AUTOMATIC_DISCOVERY_RANGE=SUBNET")
    for name, descriptor in sockets().items():
        if name in before:
            continue
        with socket.socket(fileno=os.dup(descriptor)) as each:
            inet = each.family in (socket.AF_INET, socket.AF_INET6)
            if inet and each.type == socket.SOCK_DGRAM and each.getsockname()[0] in _EVERYWHERE:
                _tie(each)


def _tie(each: socket.socket) -> None:
    try:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, DEVICE + b"\0")
    except PermissionError as error:
        remedy = "it needs Linux 5.7 or CAP_NET_RAW; otherwise set ROS_AUTOMATIC_DISCOVERY_RANGE=SUBNET and a firewall"
        raise OSError(f"a socket may not be tied to {DEVICE.decode()} ({error.strerror}): {remedy}") from error
