"""Where a command of hours will write: looked at before it begins, and named where it fails all the same."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from auras_ros.report.result import unwritable


def check_outputs(parser: argparse.ArgumentParser, files: Mapping[str, Path | None]) -> None:
    """Ends the process with status 2 where a file cannot be written, or two options name the same one. files: by their
    options, None for those that are not asked for."""
    taken: dict[Path, str] = {}
    for option, path in files.items():
        if path is None:
            continue
        if why := unwritable(path):
            parser.error(f"{option}: {why}")
        other = taken.setdefault(path.resolve(), option)
        if other != option:
            parser.error(f"{option}: {path} is that of {other}")


def make_folder(parser: argparse.ArgumentParser, option: str, folder: Path) -> None:
    """Ends the process with status 2 where it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"{option}: {error.filename or folder}: {error.strerror}")


@contextmanager
def term_interrupts() -> Iterator[None]:
    """SIGTERM is Ctrl-C meanwhile: what was measured until then is shown and kept."""
    if threading.current_thread() is not threading.main_thread():  # where signals cannot be set
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def written(path: Path, write: Callable[[Path], None]) -> None:
    """Write it and say so. An OSError is raised again with the file's name: a full disk gives none by itself."""
    try:
        write(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    print(f"written: {path}", flush=True)
