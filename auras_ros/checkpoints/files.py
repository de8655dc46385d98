"""Reads the weights of a foreign folder: safetensors, never a pickle. Every error names the file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.tensors import PICKLE_SUFFIXES, pickle_hint, read_tensors, sha256

SAFETENSORS = ".safetensors"
DIGESTED = (
    "*.json",
    "*.jinja",
    f"*{SAFETENSORS}",
)  # they decide what a foreign folder does; nothing else in it is read


def read_weights(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, on the CPU. Raises CheckpointError, which names pickles beside the file."""
    if not path.is_file():
        raise CheckpointError(f"{path}: file not found{pickle_hint(path.parent)}")
    check_suffix(path)
    return read_tensors(path)


def check_suffix(path: Path) -> None:
    """Check that weights or statistics have the suffix by which `digest` finds them. Raises CheckpointError; a pickle's
    suffix passes, because `tensors.check_file` refuses it."""
    if path.suffix != SAFETENSORS and path.suffix.lower() not in PICKLE_SUFFIXES:
        raise CheckpointError(f"{path}: tensors are read from files that end in {SAFETENSORS}, which the digest covers")


def digest(source: Path) -> str:
    """SHA-256 of a foreign source, hex: of the file, or of all files of a folder that decide what it does."""
    if source.is_file():
        return sha256(source)
    files = sorted(path for pattern in DIGESTED for path in source.glob(pattern))
    for path in files:
        if not path.is_file():  # a pipe is waited for without end
            raise CheckpointError(f"{path}: is no file")
    return hashlib.sha256("".join(f"{path.name} {sha256(path)}\n" for path in files).encode()).hexdigest()
