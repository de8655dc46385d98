"""Tensors of a foreign folder, and its digest: only files that the loader reads are opened."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from auras_ros.checkpoints import files
from auras_ros.checkpoints.errors import CheckpointError

TERABYTE = 1 << 40


@pytest.mark.parametrize("name", ["x.dat", "x", "x.SAFETENSORS", "x.safetensors.bak"])
def test_tensors_are_read_from_safetensors_alone(name: str, tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / name)
    with pytest.raises(CheckpointError, match=f"{name}: tensors are read from files that end in .safetensors"):
        files.read_weights(tmp_path / name)


def test_what_is_no_file_is_refused_before_it_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match=r"config\.json: is not a regular file"):
        files.digest(tmp_path, ["config.json"])


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, TERABYTE)


UNREAD: dict[str, Callable[[Path], object]] = {
    "weights": lambda folder: sparse(folder / "other.safetensors"),
    "text": lambda folder: sparse(folder / "other.json"),
    "template": lambda folder: sparse(folder / "other.jinja"),
    "pipe": lambda folder: os.mkfifo(folder / "pipe.json"),
    "device": lambda folder: (folder / "zero.safetensors").symlink_to("/dev/zero"),
    "folder": lambda folder: (folder / "folder.json").mkdir(),
    "circle": lambda folder: (folder / "circle.json").symlink_to("circle.json"),
}


@pytest.mark.parametrize("kind", UNREAD)
def test_a_file_that_no_loader_reads_is_not_opened(kind: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    alone = files.digest(tmp_path, ["config.json", "missing.json"])
    UNREAD[kind](tmp_path)
    assert files.digest(tmp_path, ["config.json", "missing.json"]) == alone
    (tmp_path / "config.json").write_text("{ }")
    assert files.digest(tmp_path, ["config.json", "missing.json"]) != alone


def test_a_text_file_that_is_too_large_to_be_read_is_not_hashed(tmp_path: Path) -> None:
    sparse(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match=rf"config\.json: {TERABYTE} bytes, expected \d+ at most"):
        files.digest(tmp_path, ["config.json"])
