"""Keeps a domain's sockets from the network: they are bound to the loopback device.

Cyclone DDS binds its receiving sockets to every address, whichever interface it is told to use: any process that
names us as a peer can reach us. It has no setting against that, so the kernel's SO_BINDTODEVICE is used. A socket
bound to `lo` receives packets to 127.0.0.0/8 on this machine, and nothing else.

This is done to every socket that is not bound to 127.0.0.1: Cyclone DDS 11 also receives on the sockets that it sends
with, and a CYCLONEDDS_URI may name another interface, or ask for a socket for each participant, or a monitor's port.
The one on 127.0.0.1 is not changed: its packets to eth0's address have to look there as if they came by eth0.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

DEVICE = b"lo"
_DESCRIPTORS = Path("/proc/self/fd")


def sockets() -> dict[str, int]:
    """This process's sockets: the kernel's name of each -> one of its descriptors. Empty without /proc."""
    found = {}
    for entry in _DESCRIPTORS.iterdir() if _DESCRIPTORS.is_dir() else []:
        try:
            target = str(entry.readlink())
        except OSError:
            continue  # closed meanwhile: another thread's, or the one of the listing itself
        if target.startswith("socket:"):
            found[target] = int(entry.name)
    return found


def tie(before: dict[str, int]) -> None:
    """Bind to `lo` the sockets that were opened after `before` and that another machine may send to. Raises OSError if
    the kernel refuses, or if a socket is of a kind that cannot be bound to a device."""
    if not _DESCRIPTORS.is_dir() or not hasattr(socket, "SO_BINDTODEVICE"):
        raise OSError("only Linux with /proc binds sockets to a device: set ROS_AUTOMATIC_DISCOVERY_RANGE=SUBNET")
    for name, descriptor in sockets().items():
        if name in before:
            continue
        with socket.socket(fileno=os.dup(descriptor)) as each:
            if each.family == socket.AF_PACKET:
                raise OSError("a socket receives whole frames of the network: see CYCLONEDDS_URI")
            if each.family in (socket.AF_INET, socket.AF_INET6) and _takes_in(each):
                _tie(each)


def is_used(before: dict[str, int]) -> bool:
    """Whether Cyclone DDS uses the loopback interface: it sends there by a socket on its address. `before`: the sockets
    that were open before the domain was created."""
    for name, descriptor in sockets().items():
        if name in before:
            continue
        with socket.socket(fileno=os.dup(descriptor)) as opened:
            if opened.family in (socket.AF_INET, socket.AF_INET6) and _is_on_loopback(opened):
                return True
    return False


def _is_on_loopback(opened: socket.socket) -> bool:
    address = opened.getsockname()[0]
    return bool(address.startswith("127.") or address == "::1")


def _takes_in(each: socket.socket) -> bool:
    """Whether another machine may send to it: it is not on a loopback address, and not connected to a single peer (such
    a socket is another thread's)."""
    if _is_on_loopback(each):
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
        raise OSError(f"a socket cannot be bound to {DEVICE.decode()} ({error.strerror}): {remedy}") from error
