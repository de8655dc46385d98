"""The button's parameters."""

from __future__ import annotations

from dataclasses import dataclass

from auras_ros.parameters import ParameterError, parameter

AUTO = "auto"
KEYBOARD = "keyboard"
LINES = "lines"
GAMEPAD = "gamepad"
INPUTS = (AUTO, KEYBOARD, LINES, GAMEPAD)


@dataclass(frozen=True)
class ButtonSettings:
    """Parameters of the button. Raises ParameterError for an unknown value."""

    topic: str = parameter("emergency_stop", "topic of this button: one of the actuator's emergency_stops")
    actuators: tuple[str, ...] = parameter(("actuator",), "actuators whose challenges are answered, with a key")
    rate_hz: float = parameter(20.0, "how often the state is repeated", 5.0, 50.0)
    emergency_stop_key_file: str = parameter(
        "", "file of 32 bytes (mode 0600) that the actuator has too; empty: none", names_files=True
    )
    input: str = parameter(
        AUTO,
        "keyboard: a key presses, r releases; lines: 1 and 0, or pressed and released, on standard input; gamepad; "
        "auto: keyboard in a terminal, else lines",
    )
    gamepad_device: str = parameter("/dev/input/js0", "the gamepad's device")
    gamepad_button: int = parameter(-1, "number of the gamepad's button; -1: any of them", -1, 255)

    def __post_init__(self) -> None:
        if self.input not in INPUTS:
            raise ParameterError(f"button: input: must be one of {', '.join(INPUTS)}, got {self.input!r}")
        if not self.actuators:
            raise ParameterError("button: actuators: names none")
