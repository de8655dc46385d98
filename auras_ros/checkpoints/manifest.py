"""Reads the two files that define a policy's numbers: our policy.json, and robot.json beside another library's files.

Agent and actuator use this one reader, so both refuse the same files. It needs neither policies nor torch. Only the
outermost keys are checked.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Any

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.json_file import read_json
from auras_ros.spelling import hint

MANIFEST, ROBOT = "policy.json", "robot.json"
FORMAT = "auras-policy/1"
KEYS = {
    "format",
    "name",
    "type",
    "encoder",
    "network",
    "horizon",
    "observation",
    "action",
    "statistics",
    "plans",
    "weights",
}
OPTIONAL = {"prediction", "training_steps", "executed"}  # see `Trained`; the first checkpoints have none of them
ROBOT_KEYS = {"dt_ms", "action"}
ROBOT_OPTIONAL = {"name", "state", "cameras", "prompt", "plans", "unnorm_key", "openvla", "lerobot_version"}
PAGE = "docs/checkpoints.md"


def read_policy(path: Path) -> dict[str, Any]:
    """A `policy.json`. Raises CheckpointError, naming file and key."""
    raw = read_json(path)
    if raw.get("format") != FORMAT:
        raise CheckpointError(f"{path}: format is not '{FORMAT}'")
    _refuse(path, raw, KEYS, OPTIONAL)
    return raw


def read_robot(path: Path) -> dict[str, Any]:
    """A `robot.json`. Raises CheckpointError, naming file and key."""
    raw = read_json(path)
    _refuse(path, raw, ROBOT_KEYS, ROBOT_OPTIONAL)
    return raw


def _refuse(path: Path, raw: dict[str, Any], required: Set[str], optional: Set[str]) -> None:
    known = sorted(required | optional)
    for key in sorted(raw.keys() - known):
        raise CheckpointError(f"{path}: key '{key}' is unknown{hint(key, known, show_all=True)}")
    for key in sorted(required - raw.keys()):
        raise CheckpointError(f"{path}: key '{key}' is missing, see {PAGE}")
