"""Reads a JSON object from an untrusted file or text: bounded in size, duplicate keys refused.

It needs neither policies nor torch, so agent and actuator read a file in the same way.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from auras_ros.checkpoints.errors import CheckpointError, refusing

JSON_BYTES = 16 << 20  # ten times an index of a thousand shards


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object without duplicate keys. Raises CheckpointError."""
    if not path.is_file():
        raise CheckpointError(f"{path}: file not found")
    if path.stat().st_size > JSON_BYTES:
        raise CheckpointError(f"{path}: {path.stat().st_size} bytes, expected {JSON_BYTES} at most")
    with refusing(f"{path}: not JSON", ValueError):  # not UTF-8
        text = path.read_text(encoding="utf-8")
    return parse_json(text, path)


def parse_json(text: str, path: Path | str) -> dict[str, Any]:
    """The same of a text. path: its place, for errors. Raises CheckpointError."""

    def unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):  # it is unclear which one is meant; json itself takes the last
            twice, times = Counter(name for name, _ in pairs).most_common(1)[0]
            raise CheckpointError(f"{path}: key '{twice}' is given more than once ({times} times)")
        return made

    with refusing(f"{path}: not JSON", ValueError, RecursionError):  # also a number of thousands of digits
        raw = json.loads(text, object_pairs_hook=unambiguous)
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path}: expected an object, got {type(raw).__name__}")
    return raw
