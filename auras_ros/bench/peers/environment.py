"""LeRobot's own environment, made with pip; LeRobot is not a dependency of this package.

LeRobot 0.4.4 requires a torch before 2.11. Here it gets the same torch as this package, so that two libraries are
compared and not two versions of torch: first those of its requirements that its diffusion policy imports, then LeRobot
itself without dependencies. A folder with other contents is refused.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from auras_ros.report.result import Say

LEROBOT = "lerobot==0.4.4"  # the version that our loader was checked against
REQUIREMENTS = (  # with the bounds of LeRobot 0.4.4
    "torchvision",
    "diffusers>=0.27.2,<0.36",
    "huggingface-hub>=0.34.2,<0.36",
    "accelerate>=1.10,<2",
    "datasets>=4,<5",
    "einops>=0.8,<0.9",
    "draccus==0.10.0",
    "gymnasium>=1.1.1,<2",
    "opencv-python-headless>=4.9,<4.13",
    "av>=15,<16",
    "jsonlines>=4,<5",
    "deepdiff>=7.0.1,<9",
    "imageio>=2.34,<3",
    "termcolor>=2.4,<4",
    "pyserial>=3.5,<4",
    "packaging>=24.2,<26",
    "setuptools>=71,<81",
    "safetensors",
)
BEGUN = "auras-lerobot.begun"
DONE = "auras-peers.txt"  # the installed packages, written last
PYTHONS = ((3, 10), (3, 13))  # LeRobot 0.4.4 and its requirements have wheels for these
LINES = 8


class SetupError(RuntimeError):
    """An environment that cannot be made; the text has the reason."""


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def commands(folder: Path) -> list[list[str]]:
    """The commands of `setup`, in order."""
    pip = [str(python_of(folder)), "-m", "pip", "install"]
    same = f"torch=={torch.__version__.partition('+')[0]}"
    return [
        [sys.executable, "-m", "venv", str(folder)],
        [*pip, same, *REQUIREMENTS],
        [*pip, "--no-deps", LEROBOT],
    ]


def setup(folder: Path, progress: Say) -> Path:
    """The environment's Python. Makes the environment if it does not exist, in a minute or more, depending on the
    connection. Raises SetupError."""
    return make(OwnEnvironment("LeRobot 0.4.4", folder, commands(folder), BEGUN, PYTHONS), progress)


@dataclass(frozen=True)
class OwnEnvironment:
    """An environment of a peer's own. what: for errors. steps: the commands that make it. begun: a file that marks a
    folder as ours. pythons: the first and the last version on which it runs."""

    what: str
    folder: Path
    steps: Sequence[Sequence[str]]
    begun: str
    pythons: tuple[tuple[int, int], tuple[int, int]]


def make(wanted: OwnEnvironment, progress: Say) -> Path:
    """The environment's Python, after all steps if they have not been done there. Raises SetupError."""
    folder, begun = wanted.folder, wanted.folder / wanted.begun
    told = "".join(" ".join(map(_without_place, step[1:])) + "\n" for step in wanted.steps[1:])
    done = folder / DONE
    if done.is_file() and done.read_text(encoding="utf-8") == told:
        return python_of(folder)
    if folder.exists() and any(folder.iterdir()) and not begun.is_file():
        raise SetupError(f"{folder}: has other contents; give a folder that is empty or does not exist")
    if not wanted.pythons[0] <= sys.version_info[:2] <= wanted.pythons[1]:
        raise SetupError(f"{wanted.what} does not run on Python {sys.version_info[0]}.{sys.version_info[1]}")
    folder.mkdir(parents=True, exist_ok=True)
    begun.write_text(f"{wanted.what}'s environment, made by auras bench\n", encoding="utf-8")
    for step in wanted.steps:
        progress(f"{folder}: {' '.join(step[1:4])} ...")
        _run(step)
    done.write_text(told, encoding="utf-8")
    return python_of(folder)


def _without_place(word: str) -> str:
    """A file of this package by its name: another checkout makes the same environment."""
    return Path(word).name if Path(word).is_absolute() else word


def _run(step: Sequence[str]) -> None:
    done = subprocess.run(step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        last = "\n".join(f"  {line}" for line in done.stdout.splitlines()[-LINES:])
        raise SetupError(f"{' '.join(step)}: ended with status {done.returncode}\n{last}")
