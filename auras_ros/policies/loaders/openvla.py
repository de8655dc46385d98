"""Hugging Face folders of OpenVLA (Kim et al. 2024): config.json, safetensors in shards, statistics, tokenizer.

The folder's code is not read. What it does is in `models.openvla`, `checkpoints.hf_config` and here: which statistics
undo the normalisation, how the processor changes an image, the form of the prompt. Other settings are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from auras_ros.action import ChannelKind
from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.hf_config import openvla_config
from auras_ros.checkpoints.hf_names import TensorNameError, openvla_rule
from auras_ros.checkpoints.json_file import read_json
from auras_ros.checkpoints.manifest import FORMAT, ROBOT
from auras_ros.checkpoints.shards import Shards
from auras_ros.checkpoints.tokenizer import TOKENIZER
from auras_ros.models.action_tokens import BINS, ActionStatistics
from auras_ros.models.openvla import OpenVlaConfig
from auras_ros.policies.loaders.openvla_picture import FILE as PREPROCESSOR
from auras_ros.policies.loaders.openvla_picture import camera, zoom
from auras_ros.policies.loaders.openvla_prompt import prompt
from auras_ros.policies.loaders.robot import Robot
from auras_ros.policies.loaders.translated import Translated, wanted

CONFIG, STATISTICS = "config.json", "dataset_statistics.json"
BOS = 1  # Llama's, if `text_config` has none
KINDS = (ChannelKind.DELTA_PREVIOUS, ChannelKind.DELTA_ORIGIN, ChannelKind.VELOCITY)
SET_POINTS = (ChannelKind.GRIPPER, ChannelKind.ABSOLUTE)
MODULE = "prefix.model."  # the model's place in our family
ARCHITECTURES = ("no-align+fused-gelu-mlp",)
OTHER_HEADS = ("action_head*", "noisy_action_projector*", "proprio_projector*")  # OpenVLA-OFT's, beside the same model
KEYS = {"zoom", "prompt_ids", "prompt_limit"}  # of robot.json's `openvla`


def translate(source: Path, robot: Robot) -> Translated:
    """The folder in our terms, for this robot. Raises CheckpointError."""
    file = source / CONFIG
    values = read_json(file)
    _check(source, values, robot)
    with refusing(file, ValueError):
        config = openvla_config(values)
    found = _statistics(source, values, robot)
    lower, upper = _range(found)
    robot.check(
        actions=len(lower), state=None if robot.state is None else len(robot.state), cameras=["image"], source=source
    )
    _check_kinds(found, robot)
    network = {
        "dinov2": asdict(config.dinov2),
        "siglip": asdict(config.siglip),
        "language": asdict(config.language),
        "vocabulary": config.language.vocabulary - _whole(values, "pad_to_multiple_of", 64, file),
        **prompt(source, robot, _whole(values["text_config"], "bos_token_id", BOS, file)).to_network(),
    }
    manifest = {
        "format": FORMAT,
        "name": source.resolve().name,
        "type": "openvla",
        "encoder": {},
        "network": network,
        "horizon": 1,
        "observation": {
            "cameras": [camera(source, values, config.dinov2.image_px, robot)],
            "state": None if robot.state is None else {"names": list(robot.state)},
            "history": 1,
            "dt_ms": robot.dt_ms,
        },
        "action": robot.contract.to_dict(),
        "statistics": {"kind": "min_max", "lower": lower, "upper": upper},
        "plans": {"greedy": {}},
    }
    shards = Shards(source)
    named = shards.renamed(_names(shards, config))
    origin = {name: shards.origin(_published(name)) for name in wanted(manifest, file)}
    origin |= {name: named.origin(name) for name in named}
    text_files = {CONFIG, STATISTICS, PREPROCESSOR, TOKENIZER, ROBOT}
    return Translated(manifest, named, origin, frozenset(text_files | shards.file_names()))


def _names(shards: Shards, config: OpenVlaConfig) -> dict[str, str]:
    """Our name -> the folder's, without tensors that are not needed. Raises CheckpointError."""
    rule, found = openvla_rule(config), dict[str, str]()
    for name in shards:
        try:
            place = rule(name)
        except TensorNameError as error:
            raise CheckpointError(f"{shards.origin(name)} belongs to no part of this policy: {error}") from error
        if place is None:
            continue
        ours = MODULE + place
        if ours in found:
            raise CheckpointError(f"{shards.origin(name)} repeats '{found[ours]}' under another name")
        found[ours] = name
    return found


def _published(name: str) -> str:
    """The folder's name of one of our tensors, for errors."""
    rest = re.sub(r"^vision\.", "vision_backbone.", name.removeprefix(MODULE))
    rest = re.sub(r"^language\.(?!lm_head)", "language_model.model.", rest)
    rest = re.sub(r"^language\.", "language_model.", rest)
    if rest.startswith("vision_backbone."):
        rest = rest.replace(".layers.", ".blocks.").replace(".gamma", ".scale_factor")
    return rest


def _check(source: Path, values: Mapping[str, Any], robot: Robot) -> None:
    """Check settings that are not in the networks' configuration."""
    file = source / CONFIG
    if values.get("n_action_bins", BINS) != BINS:
        raise CheckpointError(f"{file}: n_action_bins: {values['n_action_bins']!r} is not supported; expected {BINS}")
    kind = values.get("arch_specifier", ARCHITECTURES[0])
    if kind not in ARCHITECTURES:
        raise CheckpointError(f"{file}: arch_specifier: {kind!r} is not supported; expected {', '.join(ARCHITECTURES)}")
    for pattern in OTHER_HEADS:
        for other in sorted(source.glob(pattern)):
            raise CheckpointError(f"{other}: the folder has another action head, which is not supported (OpenVLA-OFT)")
    for key in sorted(robot.openvla.keys() - KEYS):
        raise CheckpointError(f"{robot.path}: openvla: key '{key}' is unknown; known: {', '.join(sorted(KEYS))}")
    zoom(robot)


def _check_kinds(found: ActionStatistics, robot: Robot) -> None:
    """Check that the contract has the kinds of OpenVLA's actions: relative motion, and a set point of the gripper,
    which the statistics' mask excludes. Raises CheckpointError, naming the channel."""
    for channel, normalised in zip(robot.contract.channels, found.mask, strict=True):
        supported = (*KINDS, ChannelKind.GRIPPER) if normalised else SET_POINTS
        if channel.kind not in supported:
            meaning = "how far to move" if normalised else "a set point (their mask is false: the gripper)"
            listed = ", ".join(kind.value for kind in supported)
            raise CheckpointError(
                f"{robot.path}: action: channel '{channel.name}': kind '{channel.kind.value}', but by its statistics "
                f"OpenVLA's action is {meaning}; expected {listed}"
            )


def _range(found: ActionStatistics) -> tuple[list[float], list[float]]:
    """What -1 and 1 of each action mean; -1 and 1 if it was not normalised."""
    lower = [low if normalised else -1.0 for low, normalised in zip(found.q01, found.mask, strict=True)]
    upper = [high if normalised else 1.0 for high, normalised in zip(found.q99, found.mask, strict=True)]
    return lower, upper


def _statistics(source: Path, values: Mapping[str, Any], robot: Robot) -> ActionStatistics:
    """The statistics of the chosen data set. Raises CheckpointError."""
    file, sets = source / CONFIG, values.get("norm_stats")
    if (source / STATISTICS).is_file():  # only those of the fine-tuning
        file = source / STATISTICS
        sets = read_json(file)
    if not isinstance(sets, dict) or not sets:
        raise CheckpointError(f"{file}: norm_stats: missing, and no {STATISTICS} either")
    listed, key = ", ".join(sets), robot.unnorm_key
    if key is None and len(sets) > 1:
        raise CheckpointError(
            f"{robot.path}: unnorm_key: missing: {file} has statistics of several data sets: {listed}"
        )
    key = next(iter(sets)) if key is None else key
    if key not in sets:
        raise CheckpointError(f"{robot.path}: unnorm_key: '{key}' is not one of {listed} ({file})")
    action = sets[key].get("action") if isinstance(sets[key], dict) else None
    if not isinstance(action, dict):
        raise CheckpointError(f"{file}: {key}: action: missing")
    try:
        return ActionStatistics.of(action)
    except OverflowError as error:
        raise CheckpointError(f"{file}: {key}: action statistics: q01, q99: a number is too large: {error}") from error
    except ValueError as error:
        names = ", ".join(f"{i} is {name}" for i, name in enumerate(robot.contract.names))
        raise CheckpointError(f"{file}: {key}: {error} ({names})") from error


def _whole(values: Mapping[str, Any], key: str, default: int, file: Path) -> int:
    value = values.get(key, default)
    if type(value) is not int or value < 0:
        raise CheckpointError(f"{file}: {key}: {value!r} is not a whole number")
    return value
