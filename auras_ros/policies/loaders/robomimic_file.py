"""What a robomimic checkpoint holds: configuration, weights, what was observed, and where it was trained.

The file is a pickle of plain values and tensors, the configuration in it is JSON. Both are read as data and never
executed (`inert`). What this package does not build is refused by its key.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.json_file import JSON_BYTES, parse_json
from auras_ros.checkpoints.torch_file import LazyTensors, TorchFile
from auras_ros.policies.loaders.ckpt_config import CkptConfig, plain
from auras_ros.policies.loaders.ckpt_encoder import ROBOMIMIC, ShapeMeta, ShapeMetaEntry
from auras_ros.values import shown

KEYS = {"model", "config", "algo_name", "env_metadata", "shape_metadata"}
OTHERS = ("depth", "scan")  # modalities that are not built
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
    """The task of the training. metadata: what the file says of its simulator."""

    path: Path
    metadata: Any
    states: tuple[ShapeMetaEntry, ...]
    cameras: tuple[str, ...]


def trained_in(path: Path) -> TrainedIn:
    """Raises CheckpointError, naming the key."""
    with TorchFile(path) as file:
        source = read(file)
        inputs = source.inputs()
        cameras = tuple(camera.name for camera in inputs.cameras)
        return TrainedIn(path, source.payload.get("env_metadata"), inputs.states, cameras)
