"""Ways to spoil a checkpoint's folder, one file at a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from auras_ros.checkpoints.manifest import MANIFEST
from auras_ros.policies.checkpoint import GOLDEN, WEIGHTS

Tensors = dict[str, torch.Tensor]


def edit_manifest(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / MANIFEST
    manifest = json.loads(path.read_text())
    edit(manifest)
    path.write_text(json.dumps(manifest))


def sign(folder: Path) -> None:
    """Make the manifest's digest that of the weights, so that it is not the digest that a fault is found by."""
    digest = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    edit_manifest(folder, lambda manifest: manifest["weights"].update(sha256=digest))


def edit_weights(folder: Path, edit: Callable[[Tensors], Any]) -> None:
    tensors = load_file(folder / WEIGHTS)
    edit(tensors)
    save_file(tensors, folder / WEIGHTS)
    sign(folder)


def edit_golden(folder: Path, edit: Callable[[Tensors], Any]) -> None:
    tensors = load_file(folder / GOLDEN)
    edit(tensors)
    save_file(tensors, folder / GOLDEN)
