"""robomimic's checkpoints (Mandlekar et al. 2021) with our networks: diffusion policy, and behaviour cloning.

Translated are `diffusion_policy` with its U-Net, and `bc` whose network looks at one instant and gives one action, or
a mixture of them. Observations are numbers, images of ResNet18 with spatial softmax, or both. The others are played by
robomimic itself (`robomimic_own`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.manifest import FORMAT
from auras_ros.checkpoints.torch_file import LazyTensors, TorchFile
from auras_ros.observation import CameraSpec, Crop, ObservationSpec, Resize, SpecError, StateSpec
from auras_ros.policies.loaders.ckpt_config import CkptConfig
from auras_ros.policies.loaders.ckpt_encoder import ENCODER, ShapeMeta, is_ignored
from auras_ros.policies.loaders.ckpt_encoder import described as describe_encoder
from auras_ros.policies.loaders.diffusion import reorder
from auras_ros.policies.loaders.robomimic_file import RobomimicFile, read
from auras_ros.policies.loaders.robomimic_network import UNET, cloning, diffusion, modes
from auras_ros.policies.loaders.robot import Robot
from auras_ros.policies.loaders.translated import Translated, renamed, wanted

DIFFUSION, CLONING = "diffusion_policy", "bc"
OBSERVATIONS = {  # what the encoder's tensors are under
    DIFFUSION: "policy.obs_encoder.nets.obs.",
    CLONING: "policy.nets.encoder.nets.obs.",
}
MLP, HEAD = "policy.nets.mlp._model.", "policy.nets.decoder.nets."
SPREAD = f"{HEAD}scale."  # of a mixture's modes, which is not used where it is played


@dataclass(frozen=True)
class RobomimicSource:
    """A file that was read: its algorithm is one of OBSERVATIONS."""

    file: RobomimicFile
    algorithm: str
    algo: CkptConfig
    tensors: LazyTensors
    inputs: ShapeMeta

    @property
    def path(self) -> Path:
        return self.file.path

    def name(self, ours: str) -> str:
        """The file's name of one of our tensors."""
        part, _, rest = ours.partition(".")
        if part == "encoder":
            return self.encoder_name(rest)
        if self.algorithm == DIFFUSION:
            return UNET + rest
        kind, _, rest = rest.partition(".")
        if kind == "layers":
            number, _, parameter = rest.partition(".")
            return f"{MLP}{2 * int(number)}.{parameter}"
        return f"{HEAD}{'action' if kind == 'mean' and not modes(self.algo) else kind}.{rest}"

    def encoder_name(self, ours: str) -> str:
        return OBSERVATIONS[self.algorithm] + self.inputs.source_of(ours).removeprefix(ENCODER)

    def ignored(self, name: str) -> bool:
        return is_ignored(ENCODER + name.removeprefix(OBSERVATIONS[self.algorithm])) or name.startswith(SPREAD)


def translate(path: Path, robot: Robot) -> Translated:
    """Raises CheckpointError, naming the file and the key, or the file and the tensor."""
    with TorchFile(path) as file:
        source = _source(read(file))
        manifest = _manifest(source, robot)
        names = wanted(manifest, path)
        source.tensors.check_bytes(source.name(name) for name in names)
        tensors, origin = renamed(names, source.tensors, path, source.name, source.ignored)
        for name in source.tensors:
            if name.endswith(".temperature") and not bool((source.tensors[name] == 1).all()):
                raise CheckpointError(f"{path}: tensor '{name}': a temperature other than 1 is not supported")
        columns = source.inputs.columns(manifest["encoder"].get("features", 0))
        if source.algorithm == DIFFUSION:
            reorder(tensors, manifest["network"], manifest["observation"]["history"], columns)
        else:
            _reorder_first(tensors, columns)
        return Translated(manifest, tensors, origin)


def _source(file: RobomimicFile) -> RobomimicSource:
    algorithm = file.payload.get("algo_name", allowed=tuple(OBSERVATIONS))
    algo = file.config.object("algo")
    return RobomimicSource(file, algorithm, algo, file.tensors(), file.inputs())


def _reorder_first(tensors: dict[str, Tensor], columns: list[int]) -> None:
    """The first layer's inputs from the file's order of an instant's features to ours, if they are as many."""
    first = "network.layers.0.weight"
    if tensors[first].ndim == 2 and tensors[first].shape[1] == len(columns):
        tensors[first] = tensors[first][:, torch.tensor(columns)]


def _manifest(source: RobomimicSource, robot: Robot) -> dict[str, Any]:
    check_robot(source.file, robot)
    own = diffusion(source.algo, source.tensors) if source.algorithm == DIFFUSION else cloning(source.algo)
    history = own.pop("history")
    train = source.file.config.object("train")
    if train.get("frame_stack", 1) != history:
        raise train.refused("frame_stack", train.get("frame_stack"), f"{history}, the instants that it sees")
    return {
        "format": FORMAT,
        "name": source.path.stem,
        "encoder": _encoder(source),
        "observation": _observation(source, robot, history),
        "action": robot.contract.to_dict(),
        "statistics": action_statistics(source.file),
        **own,
    }


def check_robot(file: RobomimicFile, robot: Robot) -> None:
    """Raises CheckpointError if this robot has other channels, joints or cameras."""
    inputs = file.inputs()
    listed = ", ".join(f"{feature.name} ({feature.shape[0]})" for feature in inputs.states) or "none"
    robot.check(
        actions=file.actions,
        state=inputs.state_size,
        cameras=[camera.name for camera in inputs.cameras],
        source=f"{file.path}, whose states are {listed},",
    )


def _encoder(source: RobomimicSource) -> dict[str, Any]:
    if not source.inputs.cameras:
        return {"type": "none"}
    rgb = source.file.config.object("observation").object("encoder").object("rgb")
    rgb.get("core_class", allowed=("VisualCore",))
    core = rgb.object("core_kwargs")
    core.get("backbone_class", "ResNet18Conv", ("ResNet18Conv",))
    core.get("pool_class", "SpatialSoftmax", ("SpatialSoftmax",))
    core.get("flatten", True, (True,))
    for part, key in (("backbone_kwargs", "input_coord_conv"), ("pool_kwargs", "output_variance")):
        if core.get(part, None) is not None:
            core.object(part).get(key, False, (False,))
    return describe_encoder(source.inputs, source.tensors, source.encoder_name)


def _observation(source: RobomimicSource, robot: Robot, history: int) -> dict[str, Any]:
    inputs = source.inputs
    if source.file.config.object("observation").object("encoder").object("low_dim").get("core_class", None) is not None:
        raise CheckpointError(
            f"{source.path}: config.observation.encoder.low_dim.core_class: a network is not supported"
        )
    if inputs.cameras and source.file.payload.get("obs_normalization_stats", None) is not None:
        raise CheckpointError(f"{source.path}: payload.obs_normalization_stats: of images are not supported")
    with refusing(source.path, SpecError):
        crop = _crop(source) if inputs.cameras else None
        cameras = tuple(camera_of(robot, each.name, each.shape[1:], crop) for each in inputs.cameras)
        return ObservationSpec(cameras, _state(source, robot), history, robot.dt_ms).to_dict()


def _state(source: RobomimicSource, robot: Robot) -> StateSpec | None:
    if not source.inputs.states:
        return None
    if source.file.payload.get("obs_normalization_stats", None) is None:
        return StateSpec(robot.state or ())
    linear = [
        source.file.statistics("obs_normalization_stats", feature.name, feature.shape[0])
        for feature in source.inputs.states
    ]
    offset, scale = (torch.cat([each[i] for each in linear]).tolist() for i in (0, 1))
    return StateSpec(robot.state or (), "mean_std", tuple(offset), tuple(scale))


def _crop(source: RobomimicSource) -> Crop | None:
    rgb = source.file.config.object("observation").object("encoder").object("rgb")
    if rgb.get("obs_randomizer_class", None, (None, "CropRandomizer")) is None:
        return None
    kwargs = rgb.object("obs_randomizer_kwargs")
    kwargs.get("pos_enc", False, (False,))
    return Crop(kwargs.count("crop_height", 76), kwargs.count("crop_width", 76))


def camera_of(robot: Robot, name: str, size: tuple[int, ...], crop: Crop | None = None) -> CameraSpec:
    """Images of another size than in training are resized to that first. Raises SpecError."""
    height, width = size
    real = robot.camera(name, height, width)
    return CameraSpec(
        real.name, real.height, real.width,
        resize=None if (real.height, real.width) == (height, width) else Resize(height, width),
        crop=crop, order="resize_then_crop",
    )  # fmt: skip


def action_statistics(file: RobomimicFile) -> dict[str, Any]:
    """What -1 and 1 of the network mean."""
    size, train = file.actions, file.config.object("train")
    names = train.get("action_keys", ["actions"])  # robomimic 0.3 has no such key
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise train.refused("action_keys", names, "one key of all actions")
    if train.get("action_config", None) is not None:
        train.object("action_config").object(names[0]).get("format", None, (None,))
    offset, scale = file.statistics("action_normalization_stats", names[0], size)
    return {"kind": "min_max", "lower": (offset - scale).tolist(), "upper": (offset + scale).tolist()}
