"""Where a command of hours will write: looked at before it begins."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from auras_ros.evaluate.report import unwritable


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
