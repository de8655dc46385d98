"""Checks the steps of a LeRobot processor: which, in what order, and that their settings agree with config.json.

If a step is missing, moved or set differently, the network would see other numbers than in training. This module reads
no file and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.policies.loaders.lerobot_files import PolicyFeature, ProcessorStep
from auras_ros.policies.loaders.lerobot_version import KNOWN

RENAME, DEVICE = "rename_observations_processor", "device_processor"
HARMLESS = {RENAME, "to_batch_processor", DEVICE}  # they change no value, at any place


def check_order(file: Path, steps: Sequence[ProcessorStep], wanted: Sequence[str]) -> None:
    """Check that the steps are those of `wanted`, each once, in this order, with harmless ones anywhere between; steps
    that are off count as absent. Raises CheckpointError, which names all steps that are not supported."""
    order = ", ".join(wanted)
    running = [step.name for step in steps if step.is_on]
    if others := [name for name in running if name not in {*HARMLESS, *wanted}]:
        listed = ", ".join(sorted({*HARMLESS, *wanted}))
        names = ", ".join(f"'{name}'" for name in dict.fromkeys(others))
        subject = f"step {names} is" if len(others) == 1 else f"steps {names} are"
        raise CheckpointError(f"{file}: {subject} not supported; expected {listed}; {KNOWN}")
    found = [name for name in running if name in wanted]
    for name in wanted:
        if name not in found:
            raise CheckpointError(f"{file}: step '{name}' is missing; expected, in this order: {order}")
        if found.count(name) > 1:
            raise CheckpointError(f"{file}: step '{name}' is given more than once")
    if found != list(wanted):
        raise CheckpointError(f"{file}: steps {', '.join(found)}; expected, in this order: {order}")


def check_harmless(steps: Iterable[ProcessorStep]) -> dict[str, str]:
    """Check that the steps of HARMLESS change no value. Returns their renames: feature -> its name before. Raises
    CheckpointError."""
    renamed: dict[str, str] = {}
    for step in steps:
        if step.name == DEVICE and (kind := step.config.get("float_dtype")) not in (None, "float32"):
            raise CheckpointError(f"{step.processor}: step '{step.name}': float_dtype: {kind!r} is not supported")
        if step.name == RENAME:
            names = step.config.get("rename_map", {})
            if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
                raise CheckpointError(
                    f"{step.processor}: step '{step.name}': rename_map: {names!r} is not a map of names"
                )
            renamed.update({feature: given for given, feature in names.items()})
    return renamed


def mode_of(feature: PolicyFeature, config: Mapping[str, Any], key: str, file: Path) -> str:
    """The normalisation of a kind of feature; if there is none, that must be written too. Raises CheckpointError."""
    modes = config.get(key)
    if not isinstance(modes, dict) or not isinstance(modes.get(feature.kind), str):
        raise CheckpointError(f"{file}: {key}: '{feature.kind}' is missing; without normalisation it is IDENTITY")
    return str(modes[feature.kind])


def check_listed(feature: PolicyFeature, step: ProcessorStep, mode: str, config: Path) -> None:
    """Check that the step's own list has the feature, with the kind that it has in `config`: the reference does not
    normalise a feature that is not listed. Actions are always normalised. Raises CheckpointError."""
    listed = step.config.get("features")
    told = listed.get(feature.name) if isinstance(listed, dict) else None
    where = f"{step.processor}: step '{step.name}': features"
    if told is None and feature.kind != "ACTION" and mode != "IDENTITY":
        raise CheckpointError(f"{where}: '{feature.name}' is missing, though {feature.kind} is {mode}")
    if told is not None and (not isinstance(told, dict) or told.get("type") != feature.kind):
        raise CheckpointError(f"{where}: '{feature.name}' is {told!r}, but {config} has type {feature.kind}")
