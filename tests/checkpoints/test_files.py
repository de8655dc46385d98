"""Tensors of a foreign folder: only what its digest covers is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from auras_ros.checkpoints import files
from auras_ros.checkpoints.errors import CheckpointError


@pytest.mark.parametrize("name", ["x.dat", "x", "x.SAFETENSORS", "x.safetensors.bak"])
def test_tensors_are_read_from_what_the_digest_covers(name: str, tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / name)
    with pytest.raises(CheckpointError, match=f"{name}: tensors are read from files that end in .safetensors"):
        files.read_weights(tmp_path / name)


def test_what_is_no_file_is_refused_before_it_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match=r"config\.json: is no file"):
        files.digest(tmp_path)
