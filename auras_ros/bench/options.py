"""Options that benches share, with their checks."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TypeVar

from auras_ros.device import make_device

Value = TypeVar("Value", int, float, str)
Options = argparse.ArgumentParser | argparse._ArgumentGroup


def listed(kind: type[Value]) -> Callable[[str], list[Value]]:
    """An argparse type: values with commas between them."""

    def parse(text: str) -> list[Value]:
        try:
            return [kind(part) for part in text.split(",")]
        except ValueError:
            what = "whole numbers" if kind.__name__ == "int" else "numbers"
            raise argparse.ArgumentTypeError(f"expected {what} with commas between them, got {text!r}") from None

    return parse


def amount(text: str) -> float:
    """An argparse type: a number from 0 on. Without an end a window would last for ever, and `nan` is no end."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number from 0 on, got {text!r}")
    return number


def add_device(options: Options) -> None:
    options.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="default: a GPU if there")


def add_windows(options: Options, *, rounds: int = 5, minutes: float | None = 10.0, seconds: float = 0.5) -> None:
    """Of contenders that are measured in interleaved rounds, a window each."""
    options.add_argument("--rounds", type=int, default=rounds, help=f"of all contenders, interleaved ({rounds})")
    if minutes is not None:
        add_minutes(options, minutes)
    options.add_argument("--chunks", type=int, default=3, help="least chunks of a worker in a window (3)")
    options.add_argument("--seconds", type=amount, default=seconds, help=f"least length of a window ({seconds:g})")


def add_minutes(options: Options, minutes: float) -> None:
    help_ = f"what the whole bench may take: fewer rounds if need be, and parts without any are named ({minutes:g})"
    options.add_argument("--minutes", type=amount, default=minutes, help=help_)


def check_least(parser: argparse.ArgumentParser, options: argparse.Namespace, **least: int) -> None:
    """Ends the process with status 2, naming the option, for one below its least."""
    for name, value in least.items():
        if getattr(options, name) < value:
            parser.error(f"--{name.replace('_', '-')} must be at least {value}, got {getattr(options, name)}")


def kind_of(device: str) -> str:
    """`cpu` or `cuda`: what a device's name stands for here. Raises DeviceError."""
    made = make_device(device)
    made.close()
    return made.tensors.type
