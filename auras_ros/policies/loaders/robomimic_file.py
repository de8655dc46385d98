"""What a robomimic checkpoint holds: configuration, weights, what was observed, and where it was trained.

The file is a pickle of plain values and tensors, the configuration in it is JSON. Both are read as data and never
executed (`inert`). What this package does not build is refused by its key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.json_file import JSON_BYTES, parse_json
from auras_ros.checkpoints.limits import shown
from auras_ros.checkpoints.torch_file import LazyTensors, TorchFile
from auras_ros.policies.loaders.ckpt_config import CkptConfig, plain
from auras_ros.policies.loaders.ckpt_encoder import ROBOMIMIC, ShapeMeta, ShapeMetaEntry

KEYS = {"model", "config", "algo_name", "env_metadata", "shape_metadata"}
OTHERS = ("depth", "scan")  # modalities that are not built
ROBOSUITE_1_5 = "1.5."  # how its versions begin
PARTS = (("offset", "scale"), ("mean", "std"))  # of statistics; the second pair until robomimic 0.3


@dataclass(frozen=True)
class RobomimicFile:
    """payload: the pickle's own values. config: the training's configuration."""

    file: TorchFile
    payload: CkptConfig
    config: CkptConfig

    @property
    def path(self) -> Path:
        return self.file.path

    def tensors(self) -> LazyTensors:
        """The weights that play: the moving average's if there are any."""
        model = self.payload.object("model").values
        if "nets" not in model:  # robomimic 0.3
            return self.file.tensors(model)
        states = CkptConfig(self.path, "payload.model", model)
        return self.file.tensors(states.object("nets" if states.get("ema", None) is None else "ema").values)

    def inputs(self) -> ShapeMeta:
        """What the policy sees, in the order in which its encoder joins it. Raises CheckpointError, naming the key."""
        modalities = self.config.object("observation").object("modalities")
        goal, seen = modalities.object("goal"), modalities.object("obs")
        for owner, names in ((goal, goal.values), (seen, OTHERS)):
            for name in names:
                if owner.get(str(name), []) != []:
                    raise owner.refused(str(name), owner.get(str(name)), "none")
        kinds = {name: kind for kind in ("low_dim", "rgb") for name in _names(seen, kind)}
        shapes = self.payload.object("shape_metadata").object("all_shapes")
        for name in kinds:
            shapes.get(name)  # raises if it is missing
        features = tuple(_entry(shapes, name, kinds[name]) for name in shapes.values if name in kinds)
        return ShapeMeta(ROBOMIMIC, features)

    @property
    def actions(self) -> int:
        return self.payload.object("shape_metadata").count("ac_dim")

    def statistics(self, key: str, name: str, size: int) -> tuple[Tensor, Tensor]:
        """(offset, scale) of an observation or an action, float64 [size]: value = offset + scale * network's. 0 and 1
        if the file has none."""
        if self.payload.get(key, None) is None:
            return torch.zeros(size, dtype=torch.float64), torch.ones(size, dtype=torch.float64)
        told = self.payload.object(key).object(name)
        offset, scale = next((pair for pair in PARTS if pair[0] in told.values), PARTS[0])
        found = _numbers(told, offset, size), _numbers(told, scale, size)
        if not bool((found[1] > 0).all()):
            raise told.refused(scale, told.get(scale), "numbers above zero")
        return found


def read(file: TorchFile) -> RobomimicFile:
    """Raises CheckpointError if it is not a checkpoint of robomimic."""
    with refusing(file.path, ValueError):
        values = plain(file.value)
    if not isinstance(values, dict) or not values.keys() >= KEYS:
        missing = ", ".join(sorted(KEYS - set(values if isinstance(values, dict) else ())))
        raise CheckpointError(f"{file.path}: is not a checkpoint of robomimic: it has no {missing}")
    payload = CkptConfig(file.path, "payload", values)
    text = payload.text("config")
    if len(text) > JSON_BYTES:
        raise CheckpointError(f"{file.path}: payload.config: {len(text)} characters, expected {JSON_BYTES} at most")
    return RobomimicFile(file, payload, CkptConfig(file.path, "config", parse_json(text, f"{file.path}: config")))


def _names(seen: CkptConfig, kind: str) -> list[str]:
    names = seen.get(kind, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise seen.refused(kind, names, "a list of names")
    return names


def _entry(shapes: CkptConfig, name: str, kind: str) -> ShapeMetaEntry:
    shape = tuple(shapes.counts(name))
    if len(shape) != (3 if kind == "rgb" else 1) or (kind == "rgb" and shape[0] != 3):
        raise shapes.refused(name, list(shape), "[3, height, width] for rgb, [n] for low_dim")
    return ShapeMetaEntry(name, shape)


def _numbers(told: CkptConfig, key: str, size: int) -> Tensor:
    """float64 [size], of a list of them or a list with that list in it."""
    value: Any = told.get(key)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    if not isinstance(value, list) or not all(isinstance(one, int | float) and abs(one) < 1e30 for one in value):
        raise told.refused(key, value, f"{size} numbers")
    if len(value) != size:
        raise CheckpointError(f"{told.path}: {told.where}.{key}: {len(value)} numbers {shown(value)}, expected {size}")
    return torch.tensor(value, dtype=torch.float64)


@dataclass(frozen=True)
class TrainedIn:
    """The task of the training, as its metadata tell it. version: of its simulator. absolute: actions are poses, not
    increments."""

    path: Path
    environment: str
    version: str
    robots: tuple[str, ...]
    control_hz: float
    absolute: bool
    states: tuple[ShapeMetaEntry, ...]
    cameras: tuple[str, ...]


def trained_in(path: Path) -> TrainedIn:
    """Raises CheckpointError, naming the key."""
    with TorchFile(path) as file:
        source = read(file)
        inputs, metadata = source.inputs(), source.payload.object("env_metadata")
        given = metadata.object("env_kwargs")
        robots = given.get("robots")
        robots = [robots] if isinstance(robots, str) else robots
        if not isinstance(robots, list) or not robots or not all(isinstance(name, str) for name in robots):
            raise given.refused("robots", robots, "names of robots")
        hertz = given.get("control_freq")
        if isinstance(hertz, bool) or not isinstance(hertz, int | float) or not 0 < hertz < 1e6:
            raise given.refused("control_freq", hertz, "a rate in Hz")
        version = metadata.get("env_version", None) or ""
        if not isinstance(version, str):
            raise metadata.refused("env_version", version, "text")
        frame = "base" if version.startswith(ROBOSUITE_1_5) else "world"  # robosuite's own, if it is not said
        kinds = {_is_absolute(each, len(robots), frame) for each in _controllers(given)}
        if len(kinds) != 1:
            raise CheckpointError(f"{path}: {given.where}.controller_configs: arms of different input types")
        return TrainedIn(
            path, metadata.text("env_name"), version, tuple(robots), hertz, kinds.pop(),
            inputs.states, tuple(camera.name for camera in inputs.cameras),
        )  # fmt: skip


def _controllers(given: CkptConfig) -> list[CkptConfig]:
    """The settings of each arm's controller: a composite one's have the arms in it."""
    configs = given.get("controller_configs")
    listed = configs if isinstance(configs, list) else [configs]
    made = list[CkptConfig]()
    for config in listed:
        if not isinstance(config, Mapping):
            raise given.refused("controller_configs", configs, "an object")
        one = CkptConfig(given.path, f"{given.where}.controller_configs", config)
        if "body_parts" in config:
            parts = one.object("body_parts")
            made += [parts.object(name) for name in ("right", "left") if name in parts.values]
        else:
            made.append(one)
    for each in made:
        each.get("type", allowed=("OSC_POSE",))
    if not made:
        raise given.refused("controller_configs", configs, "an arm's controller")
    return made


def _is_absolute(controller: CkptConfig, robots: int, frame: str) -> bool:
    """Poses count from the world; so do increments, but a single arm's base has the world's axes. frame: the one that
    they count from if the controller does not say it."""
    known = ("absolute", "delta")
    kind = controller.get("input_type", None, (*known, None))
    absolute = not controller.get("control_delta", True, (True, False)) if kind is None else kind == known[0]
    if (absolute or robots > 1) and controller.get("input_ref_frame", frame) != "world":
        raise controller.refused("input_ref_frame", controller.get("input_ref_frame", frame), "'world'")
    return absolute
