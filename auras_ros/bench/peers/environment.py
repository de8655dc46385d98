"""LeRobot's own environment, made with pip; LeRobot is not a dependency of this package.

LeRobot 0.4.4 requires a torch before 2.11. Here it gets the same torch as this package, so that two libraries are
compared and not two versions of torch: first those of its requirements that its diffusion policy imports, then LeRobot
itself without dependencies. A folder with other contents is refused.
"""

from __future__ import annotations

import subprocess
import sys
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
    steps = commands(folder)
    told = "\n".join(" ".join(step[1:]) for step in steps[1:]) + "\n"
    done = folder / DONE
    if done.is_file() and done.read_text(encoding="utf-8") == told:
        return python_of(folder)
    if folder.exists() and any(folder.iterdir()) and not (folder / BEGUN).is_file():
        raise SetupError(f"{folder}: has other contents; give a folder that is empty or does not exist")
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        raise SetupError(f"LeRobot 0.4.4 does not run on Python {sys.version_info[0]}.{sys.version_info[1]}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / BEGUN).write_text("LeRobot's environment, made by auras bench peers\n", encoding="utf-8")
    for step in steps:
        progress(f"{folder}: {' '.join(step[1:4])} ...")
        _run(step)
    done.write_text(told, encoding="utf-8")
    return python_of(folder)


def _run(step: list[str]) -> None:
    done = subprocess.run(step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        last = "\n".join(f"  {line}" for line in done.stdout.splitlines()[-LINES:])
        raise SetupError(f"{' '.join(step)}: ended with status {done.returncode}\n{last}")
