"""What a folder may tell robomimic beside weights: checked here, since robomimic evaluates some of it as Python.

Names of classes are those of its own encoders, and no others; sizes are bounded; nothing is downloaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from auras_ros.checkpoints.limits import check_sizes
from auras_ros.values import shown

ALGORITHMS = ("bc", "bcq", "cql", "iql", "td3_bc")
OBSERVED, ACTED = "obs_normalization_stats", "action_normalization_stats"
KEYS = {"algo_name", "config", "shape_metadata", OBSERVED, ACTED}
MODALITIES = ("low_dim", "rgb")
BACKBONES = ("ResNet18Conv", "ResNet50Conv", "ShallowConv")
CLASSES = {  # keys of the configuration, wherever they are in it
    "core_class": (None, "VisualCore", "ScanCore"),
    "backbone_class": BACKBONES,
    "visual_core": BACKBONES,  # as it was called before robomimic 0.2
    "pool_class": (None, "SpatialSoftmax", "SpatialMeanPool"),
    "obs_randomizer_class": (None, "CropRandomizer", "ColorRandomizer", "GaussianNoiseRandomizer"),
}
PRETRAINED = "pretrained"


@dataclass(frozen=True)
class CheckpointText:
    """shapes: of the observations, in robomimic's order. actions: how many numbers one has. history: instants that the
    policy is shown: a recurrent one gets the newest and the one before, by which its process knows what came before."""

    shapes: Mapping[str, list[int]]
    actions: int
    history: int


def read(text: Any) -> CheckpointText:
    """Raises ValueError or TypeError, naming the key."""
    told = _object(json.loads(text) if isinstance(text, str) else text, "checkpoint")
    for key in sorted(map(str, told.keys() - KEYS)):
        raise ValueError(f"checkpoint: '{key}' is unknown")
    if told.get("algo_name") not in ALGORITHMS:
        raise ValueError(f"checkpoint: algo_name: {shown(told.get('algo_name'))} is not one of {', '.join(ALGORITHMS)}")
    metadata = _object(told.get("shape_metadata"), "checkpoint: shape_metadata")
    shapes, actions = _object(metadata.get("all_shapes"), "shape_metadata.all_shapes"), metadata.get("ac_dim")
    if not all(map(is_shape, shapes.values())) or type(actions) is not int:
        raise ValueError("checkpoint: shape_metadata: all_shapes and ac_dim are no sizes")
    config = told.get("config")
    return CheckpointText(shapes, actions, _history(json.loads(config) if isinstance(config, str) else config))


def _history(config: Any) -> int:
    """Of a configuration that may be used. Raises ValueError or TypeError."""
    config = _object(config, "checkpoint: config")
    _check(config, "config")
    algo = _object(config.get("algo"), "config.algo")
    check_sizes("config.algo", "", algo, 0)
    modalities = _object(_object(config.get("observation"), "config.observation").get("modalities"), "modalities")
    for part, kinds in modalities.items():
        for kind, names in _object(kinds, f"modalities.{part}").items():
            if names and (part != "obs" or kind not in MODALITIES):
                raise ValueError(f"config.observation.modalities.{part}.{kind}: {shown(names)} is not supported")
    recurrent = bool(_object(algo.get("rnn") or {}, "config.algo.rnn").get("enabled"))
    stack = _object(config.get("train"), "config.train").get("frame_stack", 1)
    if type(stack) is not int or stack < 1 or (recurrent and stack > 1):
        raise ValueError(f"config.train.frame_stack: {shown(stack)} is not supported; a recurrent policy has 1")
    return 2 if recurrent else stack


def _check(value: Any, where: str) -> None:
    if isinstance(value, Mapping):
        for key, each in value.items():
            place = f"{where}.{key}"
            if key in CLASSES and not any(type(each) is type(one) and each == one for one in CLASSES[key]):
                raise ValueError(f"{place}: {shown(each)} is not one of {', '.join(map(str, CLASSES[key]))}")
            if key == PRETRAINED and each not in (False, None):
                raise ValueError(f"{place}: {shown(each)} downloads weights; expected false")
            _check(each, place)
    elif isinstance(value, list):
        for each in value:
            _check(each, where)


def without_downloads(value: Any) -> Any:
    """The configuration with no network that is pretrained: the file's weights come anyway."""
    if isinstance(value, Mapping):
        return {key: False if key == PRETRAINED else without_downloads(each) for key, each in value.items()}
    return [without_downloads(each) for each in value] if isinstance(value, list) else value


def is_shape(shape: object) -> bool:
    return isinstance(shape, list) and all(type(side) is int and side >= 0 for side in shape)


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{where}: {shown(value)} is not an object")
    return value
