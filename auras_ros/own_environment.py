"""A Python environment beside ours, made with venv and pip: for what needs other versions than we do.

A folder with other contents is refused. What was begun and not finished is gone on with.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

DONE = "auras-environment.txt"  # the installed packages, written last
LINES = 8


class SetupError(RuntimeError):
    """An environment that cannot be made; the text has the reason."""


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


@dataclass(frozen=True)
class OwnEnvironment:
    """what: for errors. steps: the commands that make it. begun: a file that marks a folder as ours. pythons: the first
    and the last version on which it runs."""

    what: str
    folder: Path
    steps: Sequence[Sequence[str]]
    begun: str
    pythons: tuple[tuple[int, int], tuple[int, int]]

    @property
    def told(self) -> str:
        """What `DONE` contains once it is made."""
        return "".join(" ".join(map(_without_place, step[1:])) + "\n" for step in self.steps[1:])

    @property
    def made(self) -> bool:
        """Whether all these steps were done there."""
        done = self.folder / DONE
        return done.is_file() and done.read_text(encoding="utf-8") == self.told


def make(wanted: OwnEnvironment, progress: Callable[[str], None]) -> Path:
    """The environment's Python, after all steps if they have not been done there. Raises SetupError."""
    folder, begun = wanted.folder, wanted.folder / wanted.begun
    if wanted.made:
        return python_of(folder)
    if folder.exists() and any(folder.iterdir()) and not begun.is_file():
        raise SetupError(f"{folder}: has other contents; give a folder that is empty or does not exist")
    first, last = wanted.pythons
    if not first <= sys.version_info[:2] <= last:
        bounds = f"{first[0]}.{first[1]} to {last[0]}.{last[1]}"
        raise SetupError(f"{wanted.what} needs Python {bounds}, this is {sys.version_info[0]}.{sys.version_info[1]}")
    folder.mkdir(parents=True, exist_ok=True)
    begun.write_text(f"{wanted.what}'s environment, made by auras\n", encoding="utf-8")
    for step in wanted.steps:
        progress(f"{folder}: {' '.join(step[1:4])} ...")
        run(step)
    (folder / DONE).write_text(wanted.told, encoding="utf-8")
    return python_of(folder)


def _without_place(word: str) -> str:
    """A file of this package by its name: another checkout makes the same environment."""
    return Path(word).name if Path(word).is_absolute() else word


def run(step: Sequence[str]) -> None:
    """Raises SetupError with the last lines of a command that fails."""
    try:
        done = subprocess.run(step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except OSError as error:
        raise SetupError(f"{step[0]}: {error.strerror}") from error
    if done.returncode:
        last = "\n".join(f"  {line}" for line in done.stdout.splitlines()[-LINES:])
        raise SetupError(f"{' '.join(step)}: ended with status {done.returncode}\n{last}")
