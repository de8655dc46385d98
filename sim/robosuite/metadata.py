"""What robomimic's metadata say of a task: `env_args` of a data set, or `env_metadata` of a checkpoint.

Both are one JSON object: the environment, robosuite's version, and the keywords with which it is made. Only the file is
read here; `robomimic` makes the world.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from auras_ros.parameters import ParameterError
from auras_ros.text_file import MEBIBYTE, read_text_file

ROBOSUITE_1_5 = "1.5."  # how its versions begin
ROBOSUITE = 1  # a type of robomimic's environments; the others are no robosuite
ARM, FRAME = "OSC_POSE", "input_ref_frame"
LIFT: dict[str, Any] = {  # as robomimic's data sets have it
    "env_name": "Lift",
    "env_version": "1.4.1",
    "type": ROBOSUITE,
    "env_kwargs": {
        "control_freq": 20,
        "controller_configs": {
            "type": ARM,
            "input_max": 1,
            "input_min": -1,
            "output_max": [0.05, 0.05, 0.05, 0.5, 0.5, 0.5],
            "output_min": [-0.05, -0.05, -0.05, -0.5, -0.5, -0.5],
            "kp": 150,
            "damping": 1,
            "impedance_mode": "fixed",
            "kp_limits": [0, 300],
            "damping_limits": [0, 10],
            "position_limits": None,
            "orientation_limits": None,
            "uncouple_pos_ori": True,
            "control_delta": True,
            "interpolation": None,
            "ramp_ratio": 0.2,
        },
        "robots": ["Panda"],
        "reward_shaping": True,
    },
}


@dataclass(frozen=True)
class TaskMetadata:
    """environment: robomimic's metadata, with a list of robots and controllers as robosuite 1.5 has them. version: of
    the robosuite in which they were written. absolute: actions are poses. frame: what they count from, world or a
    robot's base."""

    environment: dict[str, Any]
    version: str
    robots: tuple[str, ...]
    control_dt_ms: int
    absolute: bool
    frame: str
    cameras: tuple[str, ...]


def read(path: str) -> TaskMetadata:
    """Of a JSON file; of Lift if the path is empty. Raises ParameterError, naming file and key."""
    return _read(path, Path(path).stat().st_mtime_ns if path and Path(path).is_file() else 0)


@lru_cache(maxsize=16)
def _read(path: str, changed_ns: int) -> TaskMetadata:
    try:
        given = json.loads(read_text_file(Path(path), MEBIBYTE)) if path else LIFT
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(path, str(error)) from None
    return parse(given, path or "Lift")


def parse(metadata: Any, where: str) -> TaskMetadata:
    """The same of the JSON object. where: its place, for errors."""
    given = deepcopy(metadata)
    if not isinstance(given, dict) or not isinstance(given.get("env_kwargs"), dict) or "env_name" not in given:
        raise _refused(where, "no object with env_name and env_kwargs")
    if given.get("type", ROBOSUITE) != ROBOSUITE:
        raise _refused(where, f"type {given['type']!r} is not robosuite's")
    options = given["env_kwargs"]
    given |= {"type": ROBOSUITE, "lang": None}
    robots = options.get("robots")
    robots = [robots] if isinstance(robots, str) else robots
    if not isinstance(robots, list) or len(robots) not in (1, 2) or not all(isinstance(each, str) for each in robots):
        raise _refused(where, f"robots: {robots!r} is not one or two names of robots")
    options["robots"] = robots
    rate = options.get("control_freq", 20)
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 1 <= rate <= 1000 or 1000 % rate:
        raise _refused(where, f"control_freq: {rate!r} has no period of whole ms")
    version = str(given.get("env_version") or "")
    arms = _arms(options.get("controller_configs"), where)
    kinds = {_completed(arm, "base" if version.startswith(ROBOSUITE_1_5) else "world", where) for arm in arms}
    if len(kinds) != 1:
        raise _refused(where, "controller_configs: arms of different kinds")
    absolute, frame = kinds.pop()
    cameras = options.get("camera_names") or ["agentview", *(f"robot{n}_eye_in_hand" for n in range(len(robots)))]
    cameras = [cameras] if isinstance(cameras, str) else cameras
    if not isinstance(cameras, list) or not all(isinstance(name, str) for name in cameras):
        raise _refused(where, f"camera_names: {cameras!r} is no list of names")
    return TaskMetadata(given, version, tuple(robots), round(1000 / rate), absolute, frame, tuple(cameras))


def _arms(configs: Any, where: str) -> list[dict[str, Any]]:
    """The settings of each arm's controller: a composite one's have the arms in it."""
    found = list[dict[str, Any]]()
    for config in configs if isinstance(configs, list) else [configs]:
        parts = config.get("body_parts") if isinstance(config, dict) else None
        if isinstance(parts, dict):
            found += [parts[name] for name in ("right", "left") if isinstance(parts.get(name), dict)]
        elif isinstance(config, dict):
            found.append(config)
    if not found or any(each.get("type") != ARM for each in found):
        raise _refused(where, f"controller_configs: only {ARM} is known")
    return found


def _completed(arm: dict[str, Any], frame: str, where: str) -> tuple[bool, str]:
    """Whether its actions are poses, and their frame. What robosuite has named anew since is written as it takes it
    now. frame: where none is said."""
    kind = arm.get("input_type") or ("delta" if arm.get("control_delta", True) else "absolute")
    if kind not in ("delta", "absolute"):
        raise _refused(where, f"input_type: {kind!r} is neither delta nor absolute")
    absolute = kind == "absolute"
    arm.setdefault(FRAME, frame)
    arm["input_type"] = kind
    arm.pop("control_delta", None)
    if absolute and arm[FRAME] != "world":
        raise _refused(where, f"{FRAME}: poses in '{arm[FRAME]}', not in 'world'")
    return absolute, str(arm[FRAME])


def _refused(where: str, why: str) -> ParameterError:
    return ParameterError(f"robomimic: metadata: {where}: {why}")
