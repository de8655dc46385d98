"""Where a button's state comes from: keys of a terminal, lines of a program, events of a gamepad."""

from __future__ import annotations

import os
import pty
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from auras_ros.nodes.button.inputs import JOYSTICK_EVENT, ButtonInput, ButtonState
from auras_ros.nodes.button.settings import ButtonSettings
from auras_ros.parameters import ParameterError


class Stdin:
    """Standard input on a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)


def states(source: ButtonInput) -> list[bool]:
    return [state.pressed for state in source.states]


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The end to write to."""
    reading, writing = os.pipe()
    monkeypatch.setattr(sys, "stdin", Stdin(reading))
    yield writing
    os.close(reading)


def test_lines_press_and_release_and_anything_else_is_a_press(pipe: int) -> None:
    os.write(pipe, b"1\n0\nPressed \nreleased\r\ntrue\nfalse\n\nwhatever\n0\n\xff\xfe\n0")
    os.close(pipe)
    wanted = [True, False, True, False, True, False, True, True, False, True]
    assert states(ButtonInput(ButtonSettings(input="lines"))) == wanted, "the last line has no end: it does not count"


def test_nothing_is_known_before_the_first_line(pipe: int) -> None:
    os.close(pipe)
    assert states(ButtonInput(ButtonSettings())) == []


def test_a_line_that_is_too_long_is_a_press(pipe: int) -> None:
    os.write(pipe, b"0\n" + b"0" * 20000 + b"\n")
    os.close(pipe)
    released, *rest = states(ButtonInput(ButtonSettings(input="lines")))
    assert not released
    assert rest
    assert all(rest)


def test_a_terminal_is_read_key_by_key_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, terminal = pty.openpty()
    monkeypatch.setattr(sys, "stdin", Stdin(terminal))
    before = termios.tcgetattr(terminal)
    source = ButtonInput(ButtonSettings())
    assert next(source.states) == ButtonState(False, "any key presses, r releases, Ctrl-C presses and ends")
    for key, pressed in ((b" ", True), (b"r", False), (b"x", True), (b"\x1b", True), (b"R", False)):
        os.write(keyboard, key)
        assert next(source.states).pressed is pressed, key
    source.close()
    assert termios.tcgetattr(terminal) == before
    os.close(keyboard)
    with pytest.raises((OSError, StopIteration)):  # the terminal was closed
        next(source.states)
    os.close(terminal)


def test_a_keyboard_needs_a_terminal(pipe: int) -> None:
    with pytest.raises(ParameterError, match="keyboard needs a terminal"):
        ButtonInput(ButtonSettings(input="keyboard"))
    os.close(pipe)


def gamepad(folder: Path, *events: tuple[int, int, int], button: int = -1) -> list[bool]:
    """The states of a gamepad whose device tells these events (value, type, number) and is then unplugged."""
    device = folder / "js0"
    device.write_bytes(b"".join(JOYSTICK_EVENT.pack(0, *event) for event in events))
    settings = ButtonSettings(input="gamepad", gamepad_device=str(device), gamepad_button=button)
    return states(ButtonInput(settings))


def test_any_button_of_a_gamepad_presses_until_all_are_up(tmp_path: Path) -> None:
    events = [(0, 0x81, 0), (0, 0x81, 1), (1, 1, 0), (1, 1, 1), (0, 1, 0), (0, 1, 1)]
    assert gamepad(tmp_path, *events) == [False, False, True, True, True, False]


def test_one_button_of_a_gamepad_can_be_chosen_and_axes_are_none(tmp_path: Path) -> None:
    assert gamepad(tmp_path, (0, 0x81, 3), (1, 1, 0), (1, 2, 3), (1, 1, 3), button=3) == [False, True]


def test_a_gamepad_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="js9"):
        ButtonInput(ButtonSettings(input="gamepad", gamepad_device=str(tmp_path / "js9")))
