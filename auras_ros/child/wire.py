"""The wire to a child process: messages of JSON, with at most one array behind each.

Both ends import this module, the one in an environment of its own too: it needs numpy alone. No message is a pickle.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

LENGTH = struct.Struct("<I")
KINDS = "biuf"  # of an array's numbers

Message = dict[str, Any]


def encoded(message: Message, array: NDArray[Any] | None = None) -> bytes:
    """What is sent of a message. Raises TypeError or ValueError for what JSON does not have."""
    if array is not None:
        message = {**message, "array": [array.dtype.str, array.shape]}
    text = json.dumps(message).encode()
    return LENGTH.pack(len(text)) + text + (b"" if array is None else array.tobytes())


def send(link: socket.socket, data: bytes, looks: int) -> None:
    """All of it. looks: so many timeouts of the link in a row end it. Raises OSError, TimeoutError."""
    rest, left = memoryview(data), looks
    while rest:
        try:
            rest = rest[link.send(rest) :]
        except TimeoutError:
            left -= 1
            if left == 0:
                raise
        else:
            left = looks


def receive(link: socket.socket, looks: int = 1) -> tuple[Message, NDArray[Any] | None]:
    """What was `encoded`, in an array that may be written to. looks: so many timeouts of the link in a row end it.

    Raises EOFError or OSError if the other end is gone, TimeoutError, and ValueError for what is no message.
    """
    (length,) = LENGTH.unpack(_exactly(link, LENGTH.size, looks))
    message: Message = json.loads(_exactly(link, length, looks))
    if "array" not in message:
        return message, None
    kind, shape = np.dtype(message["array"][0]), tuple(message["array"][1])
    if kind.kind not in KINDS:
        raise ValueError(f"an array of {kind}")
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    return message, np.frombuffer(_exactly(link, size, looks), kind).reshape(shape)


def _exactly(link: socket.socket, size: int, looks: int) -> bytearray:
    data, got, left = bytearray(size), 0, looks
    while got < size:
        try:
            read = link.recv_into(memoryview(data)[got:])
        except TimeoutError:
            left -= 1
            if left == 0:
                raise
            continue
        if read == 0:
            raise EOFError
        got, left = got + read, looks
    return data
