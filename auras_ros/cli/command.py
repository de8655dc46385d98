"""What the commands have in common: the form of their help, the status of an interrupt, messages, signals."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from auras_ros.arguments import CommandParser

INTERRUPTED = 130  # exit status


def command_parser(name: str, description: str | None, example: str) -> CommandParser:
    """The parser of `auras NAME`; the lines of both texts stay as they are."""
    return CommandParser(f"auras {name}", description, example)


@contextmanager
def refused_settings(parser: argparse.ArgumentParser, option: str = "") -> Iterator[None]:
    """A ValueError inside, such as SettingsError or PlanError, exits with status 2. option: that it is about."""
    try:
        yield
    except ValueError as error:
        parser.error(f"{option}: {error}" if option else str(error))


def print_errors(error: Exception) -> None:
    """A line for each problem."""
    _print("error", str(error).splitlines())


def print_warnings(warnings: Iterable[str]) -> None:
    _print("warning", warnings)


def _print(kind: str, lines: Iterable[str]) -> None:
    for line in lines:
        print(f"{kind}: {line}", file=sys.stderr, flush=True)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """SIGINT and SIGTERM are only noted, so that the run ends in an orderly way. Yields those that came so far."""
    stopping: list[int] = []
    with _handled(lambda number, frame: stopping.append(number), signal.SIGINT, signal.SIGTERM):
        yield stopping


@contextmanager
def term_interrupts() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C meanwhile, so that the measurements until then are shown and stored."""
    main = threading.current_thread() is threading.main_thread()  # handlers cannot be set in another thread
    with _handled(signal.default_int_handler, *([signal.SIGTERM] if main else [])):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], object], *signals: int) -> Iterator[None]:
    previous = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
