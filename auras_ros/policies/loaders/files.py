"""Reads the files of a foreign folder: JSON and safetensors, never a pickle. Every error names the file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from torch import Tensor

from auras_ros.policies.tensors import PICKLE_SUFFIXES, CheckpointError, read_tensors, sha256

DIGESTED = ("*.json", "*.safetensors")  # what decides what a foreign folder does


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises CheckpointError."""
    if not path.is_file():
        raise CheckpointError(f"{path}: file not found")
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path}: expected an object, got {type(raw).__name__}")
    return raw


def read_weights(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, on the CPU. Raises CheckpointError; pickles beside it are named."""
    if not path.is_file():
        pickles = sorted(each.name for each in path.parent.glob("*") if each.suffix in PICKLE_SUFFIXES)
        hint = f"; {pickles[0]} is a pickle and is refused" if pickles else ""
        raise CheckpointError(f"{path}: file not found{hint}")
    return read_tensors(path)


def digest(source: Path) -> str:
    """What a foreign source is, hex: of the file, or of all files of a folder that say what it does."""
    if source.is_file():
        return sha256(source)
    files = sorted(path for pattern in DIGESTED for path in source.glob(pattern))
    return hashlib.sha256("".join(f"{path.name} {sha256(path)}\n" for path in files).encode()).hexdigest()
