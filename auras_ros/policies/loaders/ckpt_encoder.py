"""The two image encoders of diffusion_policy checkpoints, as our ResNet: their inputs, the order and the names.

`robomimic`: robomimic's observation encoder (the hybrid policies): a ResNet, spatial softmax, a linear layer and ReLU
for each camera; features are in the order of shape_meta. robomimic's own files have the same one. `multi_image`: a
ResNet with an average pool for each camera or one for all; cameras first, then states, each sorted by name. Of weights
only the sizes are read here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.torch_file import LazyTensors
from auras_ros.policies.loaders.ckpt_config import CkptConfig
from auras_ros.policies.loaders.diffusion import resnet_name

ROBOMIMIC, MULTI_IMAGE = "robomimic", "multi_image"
SHARED = "rgb"  # the one network of all cameras
ENCODER = "obs_encoder."


@dataclass(frozen=True)
class ShapeMetaEntry:
    """One observation of shape_meta. shape: [3, height, width] of a camera, [n] of a state."""

    name: str
    shape: tuple[int, ...]

    @property
    def is_camera(self) -> bool:
        return len(self.shape) == 3


@dataclass(frozen=True)
class ShapeMeta:
    """Entries in the order in which the encoder joins them for one instant. shared: one network for all cameras."""

    kind: str
    features: tuple[ShapeMetaEntry, ...]
    shared: bool = False

    @property
    def cameras(self) -> tuple[ShapeMetaEntry, ...]:
        return tuple(feature for feature in self.features if feature.is_camera)

    @property
    def states(self) -> tuple[ShapeMetaEntry, ...]:
        return tuple(feature for feature in self.features if not feature.is_camera)

    @property
    def state_size(self) -> int:
        return sum(math.prod(feature.shape) for feature in self.states)

    def columns(self, features: int) -> list[int]:
        """Where each number of one instant of ours (cameras, then states) is in theirs. features: of one camera."""
        places, at = dict[str, range](), 0
        for feature in self.features:
            places[feature.name] = range(at, at + (features if feature.is_camera else math.prod(feature.shape)))
            at = places[feature.name].stop
        return [place for feature in (*self.cameras, *self.states) for place in places[feature.name]]

    def source_of(self, name: str) -> str:
        """The file's name of a tensor of our encoder ("backbone.conv1.weight", with several "each.0.backbone...")."""
        camera = re.match(r"each\.(\d+)\.", name)
        rest = name[camera.end() :] if camera else name
        key = SHARED if self.shared else self.cameras[int(camera[1]) if camera else 0].name
        if self.kind == MULTI_IMAGE:
            return f"{ENCODER}key_model_map.{key}.{rest.removeprefix('backbone.')}"
        rest = re.sub(r"^project\.", "nets.3.", resnet_name(rest, "backbone.nets."))
        return f"{ENCODER}obs_nets.{key}.{rest}"


def is_ignored(source: str) -> bool:
    """Tensors that repeat another one, follow from the sizes, or count batches of the training."""
    twice = re.match(rf"{ENCODER}obs_nets\.[^.]+\.nets\.(0\.nets|1)\.", source)
    return twice is not None or source.endswith((".pos_x", ".pos_y", ".temperature", ".num_batches_tracked"))


def read_inputs(policy: CkptConfig, kind: str) -> ShapeMeta:
    """Raises CheckpointError, naming the key."""
    observed = policy.object("shape_meta").object("obs")
    features = [_feature(observed.object(str(name)), str(name)) for name in observed.values]
    shared = False
    if kind == MULTI_IMAGE:
        cameras = sorted((f for f in features if f.is_camera), key=lambda f: f.name)
        features = [*cameras, *sorted((f for f in features if not f.is_camera), key=lambda f: f.name)]
        shared = policy.object("obs_encoder").get("share_rgb_model", False, (True, False))
    made = ShapeMeta(kind, tuple(features), shared)
    if not made.cameras or not made.states:
        raise CheckpointError(f"{policy.path}: {observed.where}: a policy without images or state is not supported")
    return made


def _feature(described: CkptConfig, name: str) -> ShapeMetaEntry:
    kind = described.get("type", "low_dim", ("rgb", "low_dim"))
    shape = tuple(described.counts("shape"))
    if (kind == "rgb") != (len(shape) == 3) or (kind == "rgb" and shape[0] != 3) or len(shape) not in (1, 3):
        raise described.refused("shape", list(shape), "[3, height, width] for rgb, [n] for low_dim")
    return ShapeMetaEntry(name, shape)


def described(inputs: ShapeMeta, tensors: LazyTensors, source_of: Callable[[str], str]) -> dict[str, Any]:
    """The encoder of our manifest. Sizes come from the weights: the configuration does not hold all of them. source_of:
    the file's name of a tensor of our encoder."""
    prefix = "" if inputs.shared or len(inputs.cameras) == 1 else "each.0."

    def size(name: str) -> int:
        return tensors.side(source_of(prefix + name), 0)

    widths = [size(f"backbone.layer{layer}.0.conv1.weight") for layer in (1, 2, 3, 4)]
    batch = source_of(f"{prefix}backbone.bn1.running_mean") in tensors
    encoder: dict[str, Any] = {"type": "resnet18", "width": widths, "norm": "batch" if batch else "group"}
    if inputs.kind == MULTI_IMAGE:
        encoder |= {"features": widths[-1], "pool": "average"}
    else:
        encoder |= {"features": size("project.weight"), "keypoints": size("pool.nets.weight"), "activation": "relu"}
    return encoder | ({"separate": len(inputs.cameras)} if prefix else {})


def crops(policy: CkptConfig, inputs: ShapeMeta) -> Mapping[str, tuple[int, int] | None]:
    """The centre of each camera's image that the network sees, (height, width); None: the whole image."""
    asks = policy if inputs.kind == ROBOMIMIC else policy.object("obs_encoder")
    if inputs.kind == MULTI_IMAGE:
        for camera in inputs.cameras:
            resize = _size(asks, "resize_shape", camera)
            if resize not in (None, camera.shape[1:]):
                raise asks.refused("resize_shape", asks.get("resize_shape"), f"the size of '{camera.name}', or null")
    found = {camera.name: _size(asks, "crop_shape", camera) for camera in inputs.cameras}
    for camera in inputs.cameras:
        part = found[camera.name]
        if part is not None and (part[0] > camera.shape[1] or part[1] > camera.shape[2]):
            raise asks.refused(
                "crop_shape", asks.get("crop_shape"), f"at most {list(camera.shape[1:])}, '{camera.name}'"
            )
    return found


def _size(asks: CkptConfig, key: str, camera: ShapeMetaEntry) -> tuple[int, int] | None:
    """A pair for all cameras, or one for each by its name."""
    value = asks.get(key, None)
    if value is None:
        return None
    if isinstance(value, Mapping):
        asks, key = asks.object(key), camera.name
    height, width = asks.counts(key, 2)
    return height, width
