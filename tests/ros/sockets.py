"""What the kernel says of this process's sockets that take something in."""

from __future__ import annotations

import os
import socket
from pathlib import Path

UNCONNECTED, LISTENING = "07", "0A"  # of UDP and of TCP


def local_addresses() -> list[tuple[str, int, str]]:
    """(address, port, device that it is tied to or '') of each UDP socket of this process and of each TCP socket that
    waits for connections, as /proc/net has them."""
    listed = {}
    lines = [line for table in ("udp", "tcp") for line in Path("/proc/net", table).read_text().splitlines()[1:]]
    for fields in map(str.split, lines):
        if fields[3] not in (UNCONNECTED, LISTENING):
            continue
        address, port = fields[1].split(":")
        listed[f"socket:[{fields[9]}]"] = (socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16))
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            name = os.readlink(entry)
        except FileNotFoundError:
            continue  # the listing's own
        if name in listed:
            try:
                with socket.socket(fileno=os.dup(int(entry.name))) as each:
                    device = each.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)
            except OSError:
                continue  # closed meanwhile, by a thread of libddsc
            found.append((*listed[name], device.rstrip(b"\0").decode()))
    return found
