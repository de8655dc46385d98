"""Where a button's state comes from: a keyboard, lines on standard input, or a gamepad.

Each input is a generator of states, read in a thread of its own. When it ends, for whatever reason, the button counts
as pressed: nobody could press it any more.
"""

from __future__ import annotations

import os
import struct
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from auras_ros.nodes.button.settings import AUTO, GAMEPAD, KEYBOARD, LINES, ButtonSettings
from auras_ros.parameters import ParameterError

PRESSED_WORDS = ("1", "pressed", "true", "down")
RELEASED_WORDS = ("0", "released", "false", "up")
RELEASE_KEYS = b"rR"
MAX_LINE_BYTES = 4096
# An event of Linux's joystick interface: time in ms, value, type, number.
JOYSTICK_EVENT = struct.Struct("IhBB")
JOYSTICK_BUTTON = 0x01
JOYSTICK_INITIAL = 0x80  # added to the type of the events that tell the state at opening


@dataclass(frozen=True)
class ButtonState:
    """A state and why, for the log."""

    pressed: bool
    why: str


class ButtonInput:
    """`states` waits for each state; before the first one nothing is known, and a button says nothing. `close` undoes
    what was done to the terminal."""

    def __init__(self, settings: ButtonSettings) -> None:
        """Raises ParameterError, OSError."""
        kind = settings.input
        if kind == AUTO:
            kind = KEYBOARD if sys.stdin.isatty() else LINES
        self._terminal: tuple[int, list[Any]] | None = None
        if kind == KEYBOARD:
            if not sys.stdin.isatty():
                raise ParameterError("button: input: keyboard needs a terminal, and standard input is none: use lines")
            descriptor = sys.stdin.fileno()
            self._terminal = (descriptor, termios.tcgetattr(descriptor))
            tty.setcbreak(descriptor)
            self.states = _keyboard(descriptor)
        elif kind == GAMEPAD:
            self.states = _gamepad(os.open(settings.gamepad_device, os.O_RDONLY), settings.gamepad_button)
        else:
            self.states = _lines(sys.stdin.fileno())

    def close(self) -> None:
        if self._terminal is not None:
            with suppress(termios.error):  # a terminal that is gone
                termios.tcsetattr(self._terminal[0], termios.TCSANOW, self._terminal[1])


def _keyboard(descriptor: int) -> Iterator[ButtonState]:
    """Every key presses, but r, which releases."""
    yield ButtonState(False, "any key presses, r releases, Ctrl-C presses and ends")
    while key := os.read(descriptor, 1):
        pressed = key not in RELEASE_KEYS
        yield ButtonState(pressed, "a key was pressed" if pressed else "released with r")


def _lines(descriptor: int) -> Iterator[ButtonState]:
    """One state in each line, as a program that reads a GPIO pin may write it."""
    rest = b""
    while received := os.read(descriptor, MAX_LINE_BYTES):
        *lines, rest = (rest + received).split(b"\n")
        for line in lines:
            yield _line_state(line)
        if len(rest) > MAX_LINE_BYTES:
            yield ButtonState(True, f"a line of more than {MAX_LINE_BYTES} bytes")
            rest = b""


def _line_state(line: bytes) -> ButtonState:
    word = line.decode(errors="replace").strip().lower()
    if word in RELEASED_WORDS:
        return ButtonState(False, f"the line {word!r}")
    if word in PRESSED_WORDS:
        return ButtonState(True, f"the line {word!r}")
    known = ", ".join(PRESSED_WORDS + RELEASED_WORDS)
    return ButtonState(True, f"the line {word[:80]!r} is none of {known}, so it counts as pressed")


def _gamepad(descriptor: int, number: int) -> Iterator[ButtonState]:
    """number: of the button; -1: any."""
    down: set[int] = set()
    try:
        while len(event := os.read(descriptor, JOYSTICK_EVENT.size)) == JOYSTICK_EVENT.size:
            _, value, kind, which = JOYSTICK_EVENT.unpack(event)
            if kind & ~JOYSTICK_INITIAL != JOYSTICK_BUTTON or number not in (-1, which):
                continue
            if value:
                down.add(which)
            else:
                down.discard(which)
            yield ButtonState(bool(down), f"button {which} of the gamepad is {'down' if value else 'up'}")
    finally:
        os.close(descriptor)
