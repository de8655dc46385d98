"""Reads the weights of a foreign folder: safetensors, never a pickle. Every error names the file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.tensors import PICKLE_SUFFIXES, pickle_hint, read_tensors, sha256
from auras_ros.checkpoints.tokenizer import TOKENIZER_BYTES

SAFETENSORS = ".safetensors"


def read_weights(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, on the CPU. Raises CheckpointError, which names pickles beside the file."""
    if not path.is_file():
        raise CheckpointError(f"{path}: file not found{pickle_hint(path.parent)}")
    check_suffix(path)
    return read_tensors(path)


def check_suffix(path: Path) -> None:
    """Check that weights or statistics have the suffix of safetensors files. Raises CheckpointError; a pickle's suffix
    passes, because `tensors.check_file` refuses it."""
    if path.suffix != SAFETENSORS and path.suffix.lower() not in PICKLE_SUFFIXES:
        raise CheckpointError(f"{path}: tensors are read from files that end in {SAFETENSORS}, not in '{path.suffix}'")


def digest(source: Path, names: Iterable[str]) -> str:
    """SHA-256 of a foreign source, hex: of the file, or of those files of a folder that decide what it does.

    names: all files of the folder that its loader reads, also those that may be missing. Other files are not opened,
    whatever they are. Raises CheckpointError for a name that is no regular file, and for a text file that is too large
    to be read.
    """
    if source.is_file():
        return sha256(source)
    lines = list[str]()
    for name in sorted(set(names)):
        path = source / name
        if not path.exists():
            continue
        if not path.is_file():  # reading a pipe would wait without end
            raise CheckpointError(f"{path}: is not a regular file")
        size_bytes = path.stat().st_size
        if path.suffix != SAFETENSORS and size_bytes > TOKENIZER_BYTES:
            raise CheckpointError(f"{path}: {size_bytes} bytes, expected {TOKENIZER_BYTES} at most")
        lines.append(f"{name} {sha256(path)}\n")
    return hashlib.sha256("".join(lines).encode()).hexdigest()
