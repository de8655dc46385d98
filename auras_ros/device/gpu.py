"""The one owner of each GPU's SMs in a process.

Splits of a GPU that are made apart overlap: each begins with all of its SMs. So a process divides a GPU once, and
whoever needs a part of it asks the owner.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from auras_ros.device.lane import DeviceError

_LOCK = threading.Lock()
_OWNERS: dict[int, str] = {}


@contextmanager
def owning(index: int, owner: str) -> Iterator[None]:
    """GPU number `index` is `owner`'s until the block ends. Raises DeviceError, naming the owner, if it has one."""
    with _LOCK:
        if index in _OWNERS:
            raise DeviceError(f"cuda:{index}: {owner!r} cannot divide it: {_OWNERS[index]!r} has divided it already")
        _OWNERS[index] = owner
    try:
        yield
    finally:
        with _LOCK:
            del _OWNERS[index]
