"""diffusion_policy's `.ckpt` (Chi et al. 2023) as our diffusion family: hybrid U-Net, hybrid transformer, image U-Net.

The file is a pickle of the training's configuration and its weights. It is read as data and never executed (`inert`):
what a pickle could run stays a name. Weights are the moving average's if there is one, as in the reference's
evaluation. A chunk is the part of the horizon that begins at the newest observation, with as many actions as the
reference executes; images are cropped at the centre.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.limits import HISTORY, HORIZON, STEPS
from auras_ros.checkpoints.manifest import FORMAT
from auras_ros.checkpoints.torch_file import LazyTensors, TorchFile
from auras_ros.observation import CameraSpec, ObservationSpec, Resize, SpecError, StateSpec
from auras_ros.policies.loaders.ckpt_config import CkptConfig, plain
from auras_ros.policies.loaders.ckpt_encoder import MULTI_IMAGE, ROBOMIMIC, ShapeMeta, crops, is_ignored, read_inputs
from auras_ros.policies.loaders.ckpt_encoder import described as describe_encoder
from auras_ros.policies.loaders.ckpt_network import described as describe_network
from auras_ros.policies.loaders.ckpt_network import plans
from auras_ros.policies.loaders.diffusion import center, reorder
from auras_ros.policies.loaders.robot import Robot
from auras_ros.policies.loaders.translated import Translated, renamed, wanted

PACKAGE = "diffusion_policy.policy."
POLICIES = {  # encoder of each supported policy
    "diffusion_unet_hybrid_image_policy.DiffusionUnetHybridImagePolicy": ROBOMIMIC,
    "diffusion_transformer_hybrid_image_policy.DiffusionTransformerHybridImagePolicy": ROBOMIMIC,
    "diffusion_unet_image_policy.DiffusionUnetImagePolicy": MULTI_IMAGE,
}
STATES = ("ema_model", "model")  # the first one that exists
NORMALIZER = "normalizer.params_dict."
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
IDENTITY = "the identity: this encoder has no linear layer"
RGB = 3


@dataclass(frozen=True)
class Source:
    """The content of a file: its policy's configuration and its tensors."""

    file: TorchFile
    target: str
    policy: CkptConfig
    tensors: LazyTensors
    inputs: ShapeMeta

    @property
    def path(self) -> Path:
        return self.file.path


def translate(path: Path, robot: Robot) -> Translated:
    """Raises CheckpointError, naming the file and the key, or the file and the tensor."""
    with TorchFile(path) as file:
        source = _source(file)
        manifest = _manifest(source, robot)
        names, features = wanted(manifest, path), manifest["encoder"]["features"]
        made = [name for name in names if source.inputs.kind == MULTI_IMAGE and ".project." in name]
        stored = [name for name in names if name not in made]
        source.tensors.check_bytes(_name(source, name) for name in stored)
        tensors, origin = renamed(stored, source.tensors, path, lambda name: _name(source, name), _is_ignored)
        for name in source.tensors:
            if name.endswith(".temperature") and not bool((source.tensors[name] == 1).all()):
                raise CheckpointError(f"{path}: tensor '{name}': a temperature other than 1 is not supported")
        for name in made:
            tensors[name] = torch.eye(features) if name.endswith("weight") else torch.zeros(features)
            origin[name] = f"{path}: {IDENTITY}"
        reorder(tensors, manifest["network"], manifest["observation"]["history"], source.inputs.columns(features))
        return Translated(manifest, tensors, origin)


def _source(file: TorchFile) -> Source:
    """Raises CheckpointError if it is not a checkpoint of a supported policy."""
    with refusing(file.path, ValueError):
        payload = plain(file.value)
    if not isinstance(payload, dict) or not {"cfg", "state_dicts"} <= payload.keys():
        raise CheckpointError(f"{file.path}: is not a checkpoint of diffusion_policy: no 'cfg' and 'state_dicts'")
    top = CkptConfig(file.path, "payload", payload)
    weights = top.object("state_dicts").values
    state = next((name for name in STATES if isinstance(weights.get(name), dict)), None)
    if state is None:
        raise CheckpointError(f"{file.path}: state_dicts: has neither {' nor '.join(STATES)}")
    policy = top.object("cfg").object("policy")
    target = policy.text("_target_")
    if target.removeprefix(PACKAGE) not in POLICIES:
        known = ", ".join(name.rpartition(".")[2] for name in POLICIES)
        raise CheckpointError(f"{file.path}: {policy.where}._target_: '{target}' is not supported; expected {known}")
    target = target.removeprefix(PACKAGE)
    return Source(file, target, policy, file.tensors(weights[state]), read_inputs(policy, POLICIES[target]))


def _manifest(source: Source, robot: Robot) -> dict[str, Any]:
    policy, inputs = source.policy, source.inputs
    action = policy.object("shape_meta").object("action").counts("shape", 1)[0]
    listed = ", ".join(f"{feature.name} ({feature.shape[0]})" for feature in inputs.states)
    robot.check(
        actions=action,
        state=inputs.state_size,
        cameras=[camera.name for camera in inputs.cameras],
        source=f"{source.path}, whose states are {listed},",
    )
    history, horizon = policy.count("n_obs_steps", most=HISTORY), policy.count("horizon", most=HORIZON)
    executed = [history - 1, policy.count("n_action_steps")]
    if sum(executed) > horizon:
        raise policy.refused("n_action_steps", executed[1], f"at most {horizon - executed[0]} in the horizon")
    scheduler = policy.object("noise_scheduler")
    return {
        "format": FORMAT,
        "name": source.path.stem,
        "type": "diffusion",
        "encoder": describe_encoder(inputs, source.tensors, inputs.source_of),
        "network": describe_network(policy, source.tensors),
        "horizon": horizon,
        "observation": _observation(source, robot, history),
        "action": robot.contract.to_dict(),
        "statistics": _statistics(source, action),
        "plans": plans(policy),
        "prediction": scheduler.get("prediction_type", "epsilon", ("epsilon", "sample")),
        "training_steps": scheduler.count("num_train_timesteps", most=STEPS),
        "executed": executed,
    }


def _observation(source: Source, robot: Robot, history: int) -> dict[str, Any]:
    inputs, windows = source.inputs, crops(source.policy, source.inputs)
    with refusing(source.path, SpecError):
        cameras = tuple(
            _camera(source, robot, feature.name, feature.shape[1:], windows[feature.name]) for feature in inputs.cameras
        )
        linear = [_linear(source, feature.name, feature.shape[0]) for feature in inputs.states]
        scale, offset = (torch.cat([each[i] for each in linear]) for i in (0, 1))
        first, second = (-offset / scale).tolist(), (1 / scale).tolist()
        state = StateSpec(robot.state or (), "mean_std", tuple(first), tuple(second))
        return ObservationSpec(cameras, state, history, robot.dt_ms).to_dict()


def _camera(source: Source, robot: Robot, name: str, size: tuple[int, ...], crop: tuple[int, int] | None) -> CameraSpec:
    """Images of another size than in training are resized to that first. Raises SpecError."""
    height, width = size
    real = robot.camera(name, height, width)
    scale, offset = (float(each) for each in _linear(source, name, 1))
    mean, std = [-offset / scale] * RGB, [1 / scale] * RGB
    encoder = source.policy.object("obs_encoder") if source.inputs.kind == MULTI_IMAGE else None
    if encoder is not None and encoder.get("imagenet_norm", False, (True, False)):
        mean = [m + s * own for m, s, own in zip(mean, std, IMAGENET[0], strict=True)]
        std = [s * own for s, own in zip(std, IMAGENET[1], strict=True)]
    return CameraSpec(
        real.name, real.height, real.width,
        resize=None if (real.height, real.width) == (height, width) else Resize(height, width),
        crop=center(crop, height, width),
        order="resize_then_crop", mean=(mean[0], mean[1], mean[2]), std=(std[0], std[1], std[2]),
    )  # fmt: skip


def _statistics(source: Source, actions: int) -> dict[str, Any]:
    """What -1 and 1 of the network mean; the file's normalisation is value * scale + offset."""
    scale, offset = _linear(source, "action", actions)
    return {"kind": "min_max", "lower": ((-1 - offset) / scale).tolist(), "upper": ((1 - offset) / scale).tolist()}


def _linear(source: Source, name: str, size: int) -> tuple[Tensor, Tensor]:
    """(scale, offset) of a feature, float64 [size]. Raises CheckpointError, naming the tensor."""
    found = []
    for part in ("scale", "offset"):
        key = f"{NORMALIZER}{name}.{part}"
        if key not in source.tensors:
            raise CheckpointError(f"{source.path}: tensor '{key}' is missing: the statistics of '{name}' are not known")
        if source.tensors.shape(key) != (size,):
            shape = list(source.tensors.shape(key))
            raise CheckpointError(f"{source.path}: tensor '{key}' has shape {shape}, expected {[size]}")
        values = source.tensors[key].double()
        if part == "scale" and not bool((values > 0).all()):
            raise CheckpointError(f"{source.path}: tensor '{key}': {values.tolist()} is not above zero")
        found.append(values)
    return found[0], found[1]


def _name(source: Source, name: str) -> str:
    """The file's name of one of our tensors."""
    part, _, rest = name.partition(".")
    return source.inputs.source_of(rest) if part == "encoder" else f"model.{rest}"


def _is_ignored(source: str) -> bool:
    """Tensors that are read already, mask attention as ours do, or only hold the device."""
    known = source.startswith(NORMALIZER) or source.endswith("_dummy_variable")
    return known or source in ("model.mask", "model.memory_mask") or is_ignored(source)
