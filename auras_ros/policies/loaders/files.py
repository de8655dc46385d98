"""Reads the files of a foreign folder: JSON and safetensors, never a pickle. Every error names the file."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from torch import Tensor

from auras_ros.policies.tensors import PICKLE_SUFFIXES, CheckpointError, read_tensors, sha256

SAFETENSORS = ".safetensors"
DIGESTED = ("*.json", f"*{SAFETENSORS}")  # what decides what a foreign folder does: nothing else in it is read
JSON_BYTES = 16 << 20  # an index of a thousand shards has a tenth of it


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object in which no key stands twice. Raises CheckpointError."""
    if not path.is_file():
        raise CheckpointError(f"{path}: file not found")
    if path.stat().st_size > JSON_BYTES:
        raise CheckpointError(f"{path}: {path.stat().st_size} bytes, expected {JSON_BYTES} at most")

    def unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):  # which of them is meant, nobody can say; json itself takes the last
            twice, times = Counter(name for name, _ in pairs).most_common(1)[0]
            raise CheckpointError(f"{path}: key '{twice}' stands there more than once ({times} times)")
        return made

    try:
        raw = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unambiguous)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, a whole number of thousands of digits
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
    check_suffix(path)
    return read_tensors(path)


def check_suffix(path: Path) -> None:
    """That weights or statistics have the ending by which `digest` finds them. Raises CheckpointError; a pickle's
    ending is refused as such by `tensors.check_file`."""
    if path.suffix != SAFETENSORS and path.suffix.lower() not in PICKLE_SUFFIXES:
        raise CheckpointError(f"{path}: tensors are read from files that end in {SAFETENSORS}, which the digest covers")


def digest(source: Path) -> str:
    """What a foreign source is, hex: of the file, or of all files of a folder that say what it does."""
    if source.is_file():
        return sha256(source)
    files = sorted(path for pattern in DIGESTED for path in source.glob(pattern))
    return hashlib.sha256("".join(f"{path.name} {sha256(path)}\n" for path in files).encode()).hexdigest()
