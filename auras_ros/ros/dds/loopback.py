"""Keeps a domain's sockets from the network: they are tied to the loopback device.

Cyclone DDS binds what it receives on to every address, whichever interface it is told to use: anybody who names us
as a peer gets in. It has no setting against that, so the kernel is asked (SO_BINDTODEVICE). A socket that is tied
to `lo` hears what was sent to 127.0.0.0/8 on this machine, and nothing else.

So with every socket that is not on 127.0.0.1 alone: Cyclone DDS 11 hears by those that it sends with, too, and a
CYCLONEDDS_URI may name another interface, or ask for a socket of each participant's own or a monitor's port. The one
on 127.0.0.1 is left: what it sends to eth0's address has to look there as if it came by eth0.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

DEVICE = b"lo"
_DESCRIPTORS = Path("/proc/self/fd")


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
    """Tie the sockets that were opened after `before` and that another machine may send to. OSError where the kernel
    refuses, or where one is of a kind that is tied to nothing."""
    if not _DESCRIPTORS.is_dir() or not hasattr(socket, "SO_BINDTODEVICE"):
        raise OSError("only Linux, with /proc, ties sockets to a device: set ROS_AUTOMATIC_DISCOVERY_RANGE=SUBNET")
    for name, descriptor in sockets().items():
        if name in before:
            continue
        with socket.socket(fileno=os.dup(descriptor)) as each:
            if each.family == socket.AF_PACKET:
                raise OSError("a socket takes whole frames of the network: see CYCLONEDDS_URI")
            if each.family in (socket.AF_INET, socket.AF_INET6) and _takes_in(each):
                _tie(each)


def _takes_in(each: socket.socket) -> bool:
    """Whether another machine may send to it: not on a loopback address, and no caller with its one peer, which is
    another thread's."""
    address = each.getsockname()[0]
    if address.startswith("127.") or address == "::1":
        return False
    if each.type == socket.SOCK_STREAM:
        return bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    try:
        each.getpeername()
    except OSError:
        return True
    return False


def _tie(each: socket.socket) -> None:
    try:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, DEVICE + b"\0")
    except PermissionError as error:
        remedy = "it needs Linux 5.7 or CAP_NET_RAW; otherwise set ROS_AUTOMATIC_DISCOVERY_RANGE=SUBNET and a firewall"
        raise OSError(f"a socket may not be tied to {DEVICE.decode()} ({error.strerror}): {remedy}") from error
