"""The tiny LeRobot fixtures' backbones, made known to the loader, and ways to spoil a copy of a folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from torch import Tensor

from auras_ros.policies.loaders import lerobot_diffusion
from tests.policies.loaders.reference import DATA

TINY = {
    "resnet_narrow": {"width": [16, 16, 16, 16], "depth": [1, 1, 1, 1]},
    "resnet_tiny": {"width": [4, 8, 8, 16], "depth": [1, 2, 1, 1]},
    "resnet_least": {"width": [4, 8, 8, 16], "depth": [1, 1, 1, 1]},
}


@pytest.fixture
def tiny_backbones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside torchvision's, which have eleven million parameters."""
    for name, sizes in TINY.items():
        monkeypatch.setitem(lerobot_diffusion.BACKBONES, name, sizes)


def copied(name: str, to: Path) -> Path:
    """A copy of a fixture's folder that a test may spoil."""
    return Path(shutil.copytree(DATA / name, to / name))


def edit_json(path: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    values = json.loads(path.read_text(encoding="utf-8"))
    edit(values)
    path.write_text(json.dumps(values), encoding="utf-8")


def edit_tensors(path: Path, edit: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)
