"""LeRobot's own environment, made with pip; LeRobot is not a dependency of this package.

LeRobot 0.4.4 requires a torch before 2.11. Here it gets the same torch as this package, so that two libraries are
compared and not two versions of torch: first those of its requirements that its diffusion policy imports, then LeRobot
itself without dependencies.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from auras_ros.own_environment import OwnEnvironment, make, python_of
from auras_ros.report.result import Say

LEROBOT = "lerobot==0.4.4"  # one of the releases that our loader was compared with
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
PYTHONS = ((3, 10), (3, 13))  # LeRobot 0.4.4 and its requirements have wheels for these


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
