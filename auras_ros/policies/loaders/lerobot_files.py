"""The features of a LeRobot config.json, and the steps of its processors' files. It reads and decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.files import read_weights
from auras_ros.checkpoints.json_file import read_json
from auras_ros.checkpoints.limits import WIDTH
from auras_ros.values import shown

RELATIVE_ACTIONS, ABSOLUTE_ACTIONS = "relative_actions_processor", "absolute_actions_processor"
FORMER_NAMES = {"delta_actions_processor": RELATIVE_ACTIONS}  # of LeRobot 0.5.1


@dataclass(frozen=True)
class PolicyFeature:
    """One input or output. kind: VISUAL, STATE, ENV or ACTION."""

    name: str
    kind: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ProcessorStep:
    """One step of a processor: its registered name (the newest, where releases differ), its settings, and the tensors
    of its state file."""

    name: str
    config: Mapping[str, Any]
    state: Mapping[str, Tensor]
    file: Path  # of its state, or of the step itself if it has none
    processor: Path  # the file of the step itself

    @property
    def is_on(self) -> bool:
        """Whether the reference runs it."""
        return self.config.get("enabled") is not False


def read_features(config: Mapping[str, Any], key: str, file: Path) -> tuple[PolicyFeature, ...]:
    """Features in the order of config.json. Raises CheckpointError."""
    raw = config.get(key)
    if not isinstance(raw, dict) or not raw:
        raise CheckpointError(
            f"{file}: {key}: expected an object of features; update an older folder with LeRobot's own migration"
        )
    features = []
    for name, told in raw.items():
        kind, shape = (told.get("type"), told.get("shape")) if isinstance(told, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(shape, list) or any(type(n) is not int or n < 1 for n in shape):
            raise CheckpointError(f"{file}: {key}: '{name}': expected type and shape, got {told!r}")
        if max(shape, default=0) > WIDTH:
            raise CheckpointError(f"{file}: {key}: '{name}': shape: {shown(max(shape))} is more than {WIDTH}")
        features.append(PolicyFeature(name, kind, tuple(shape)))
    return tuple(features)


def read_steps(file: Path) -> tuple[ProcessorStep, ...]:
    """The steps of a processor, in order, with the tensors of their state files. Raises CheckpointError."""
    raw = read_json(file).get("steps")
    if not isinstance(raw, list) or not all(isinstance(step, dict) for step in raw):
        raise CheckpointError(f"{file}: steps: expected a list of objects")
    steps = []
    for step in raw:
        name, state = step.get("registry_name", step.get("class")), step.get("state_file")
        if not isinstance(name, str):
            raise CheckpointError(f"{file}: a step has no registry_name")
        if state is not None and (not isinstance(state, str) or Path(state).name != state):
            raise CheckpointError(f"{file}: step '{name}': state_file: {state!r} is not a file of this folder")
        config = step.get("config") or {}
        if not isinstance(config, dict):
            raise CheckpointError(f"{file}: step '{name}': config: expected an object, got {config!r}")
        tensors = {} if state is None else read_weights(file.parent / state)
        name = FORMER_NAMES.get(name, name)
        steps.append(ProcessorStep(name, config, tensors, file if state is None else file.parent / state, file))
    return tuple(steps)
