"""Which keys of a LeRobot config.json count: those of training do not, and none counts that is null or off.

LeRobot adds keys with every release and reads each folder that lacks them. A key that nobody here knows is refused
only if its value asks for something.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.policies.loaders.lerobot_version import KNOWN

COMMON = frozenset({"type", "n_obs_steps", "input_features", "output_features", "normalization_mapping"})
# Keys about training, storage or compilation, or repeated elsewhere; they change no action.
TRAINING = frozenset({
    "device", "use_amp", "use_peft", "push_to_hub", "repo_id", "private", "tags", "license", "pretrained_path",
    "pretrained_revision", "drop_n_last_frames", "compile_model", "compile_mode", "pretrained_backbone_weights",
    "gradient_checkpointing",
})  # fmt: skip
TRAINING_PREFIXES = ("optimizer_", "scheduler_")
SWITCH = "enabled"  # of settings that are an object


def is_off(value: Any) -> bool:
    """Whether a value asks for nothing: null, false, empty, or an object that is switched off."""
    if isinstance(value, Mapping) and value.get(SWITCH) is False:
        return True
    return value is None or value is False or value in ("", [], {})


def is_of_training(key: str) -> bool:
    """Whether a key changes no action, whatever its value."""
    return key in TRAINING or key.startswith(TRAINING_PREFIXES)


def check_keys(
    config: Mapping[str, Any], file: Path, known: Collection[str], ignored: Collection[str], later: Collection[str]
) -> tuple[str, ...]:
    """Check that config.json has all `known` keys but those of `later`, and no other that asks for something. ignored:
    keys of this type's training. Returns the keys that nobody here knows and that are off. Raises CheckpointError,
    which names all keys that are not known."""
    others = sorted(config.keys() - set(known) - set(ignored) - COMMON)
    unknown = [key for key in others if not is_of_training(key)]
    if asking := [key for key in unknown if not is_off(config[key])]:
        raise CheckpointError(f"{file}: {_listed(asking, 'is', 'are')} not known: {_effect(asking)}; {KNOWN}")
    if missing := sorted(({*known, *COMMON} - set(later)) - config.keys()):
        pronoun = "it" if len(missing) == 1 else "them"
        raise CheckpointError(
            f"{file}: {_listed(missing, 'is', 'are')} missing: actions depend on {pronoun}, and nothing is guessed"
        )
    return tuple(unknown)


def _listed(keys: Collection[str], one: str, several: str) -> str:
    names = ", ".join(f"'{key}'" for key in keys)
    return f"key {names} {one}" if len(keys) == 1 else f"keys {names} {several}"


def _effect(keys: Collection[str]) -> str:
    return "what it does is not supported" if len(keys) == 1 else "what they do is not supported"
