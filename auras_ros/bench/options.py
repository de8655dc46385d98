"""Common options of benches, with their checks."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TypeVar

from auras_ros.device import make_device

Value = TypeVar("Value", int, float, str)
Options = argparse.ArgumentParser | argparse._ArgumentGroup


def listed(kind: type[Value]) -> Callable[[str], list[Value]]:
    """An argparse type: values separated by commas."""

    def parse(text: str) -> list[Value]:
        try:
            return [kind(part) for part in text.split(",")]
        except ValueError:
            what = "whole numbers" if kind.__name__ == "int" else "numbers"
            raise argparse.ArgumentTypeError(f"expected {what} separated by commas, got {text!r}") from None

    return parse


def amount(text: str) -> float:
    """An argparse type: a finite number, not negative. Without a finite length a window would never end."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text!r}")
    return number


def add_device(options: Options) -> None:
    options.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="default: a GPU if any")


def add_windows(options: Options, *, rounds: int = 5, minutes: float | None = 10.0, seconds: float = 0.5) -> None:
    """Options of competitors that are measured in interleaved rounds, with a window each."""
    options.add_argument("--rounds", type=int, default=rounds, help=f"interleaved rounds of all competitors ({rounds})")
    if minutes is not None:
        add_minutes(options, minutes)
    options.add_argument("--chunks", type=int, default=3, help="least chunks of a worker in a window (3)")
    options.add_argument("--seconds", type=amount, default=seconds, help=f"least seconds of a window ({seconds:g})")


def add_minutes(options: Options, minutes: float) -> None:
    help_ = f"time limit of the whole bench: with fewer rounds if needed; skipped parts are named ({minutes:g})"
    options.add_argument("--minutes", type=amount, default=minutes, help=help_)


def check_least(parser: argparse.ArgumentParser, options: argparse.Namespace, **least: int) -> None:
    """Exits with status 2, naming the option, if a value is below its minimum."""
    for name, value in least.items():
        if getattr(options, name) < value:
            parser.error(f"--{name.replace('_', '-')} must be at least {value}, got {getattr(options, name)}")


def kind_of(device: str) -> str:
    """`cpu` or `cuda`: the kind of a device by its name. Raises DeviceError."""
    made = make_device(device)
    made.close()
    return made.tensors.type
