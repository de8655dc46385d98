"""rclpy.signals. Installed handlers shut every context down, and then do what was done before."""

from __future__ import annotations

import signal
from enum import IntEnum
from types import FrameType
from typing import Any

from rclpy_recording import changed


class SignalHandlerOptions(IntEnum):
    NO = 0
    SIGINT = 1
    SIGTERM = 2
    ALL = 3


_before: dict[int, Any] = {}


def _handle(number: int, frame: FrameType | None) -> None:
    from .utilities import try_shutdown

    try_shutdown()
    if callable(_before[number]):
        _before[number](number, frame)


def install_signal_handlers(options: SignalHandlerOptions = SignalHandlerOptions.ALL) -> None:
    for bit, number in ((1, signal.SIGINT), (2, signal.SIGTERM)):
        if options & bit and number not in _before:
            _before[number] = signal.signal(number, _handle)


def uninstall_signal_handlers() -> None:
    while _before:
        signal.signal(*_before.popitem())
    with changed:
        changed.notify_all()
