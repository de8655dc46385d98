"""A checkpoint's JSON: read as `auras_ros.json_file` reads it, refused as everything in a checkpoint is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from auras_ros import json_file
from auras_ros.policies.tensors import CheckpointError


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object in which no key stands twice. Raises CheckpointError."""
    try:
        return json_file.read_json(path)
    except json_file.JsonFileError as error:
        raise CheckpointError(str(error)) from error
