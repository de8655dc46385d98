"""Output files of long commands: checked before the work begins, and named in the error if writing fails later."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from auras_ros.report.result import unwritable


def check_outputs(parser: argparse.ArgumentParser, files: Mapping[str, Path | None]) -> None:
    """Exits with status 2 if a file cannot be written, or two options name the same one. files: option -> path, or None
    if the option is not given."""
    taken: dict[Path, str] = {}
    for option, path in files.items():
        if path is None:
            continue
        if why := unwritable(path):
            parser.error(f"{option}: {why}")
        other = taken.setdefault(path.resolve(), option)
        if other != option:
            parser.error(f"{option}: {path} is also that of {other}")


def make_folder(parser: argparse.ArgumentParser, option: str, folder: Path) -> None:
    """Exits with status 2 if the folder cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"{option}: {error.filename or folder}: {error.strerror}")


def written(path: Path, write: Callable[[Path], None]) -> None:
    """Write the file and print its path. An OSError is raised again with the file's name, which a full disk's lacks."""
    try:
        write(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    print(f"written: {path}", flush=True)
