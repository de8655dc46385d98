"""LeRobot's `diffusion`: Diffusion Policy with a ResNet and the 1-D U-Net, as our family of the same name.

The networks are those of `models.resnet` and `models.conditional_unet1d`. Two layouts differ. The U-Net's condition has
the state first and then the images, ours has it last, so its columns change places. The horizon begins at the oldest
observation, so a chunk is the part of it that begins at the newest.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.limits import STEPS
from auras_ros.policies.loaders import lerobot_manifest
from auras_ros.policies.loaders.diffusion import FINAL_GROUPS, published_plan, reorder, resnet_name
from auras_ros.policies.loaders.lerobot import BURIED, LeRobotFolder
from auras_ros.policies.loaders.robot import Robot
from auras_ros.policies.loaders.translated import Translated, renamed, wanted

BACKBONES: dict[str, dict[str, Any]] = {
    "resnet18": {"width": 64, "depth": [2, 2, 2, 2]},
    "resnet34": {"width": 64, "depth": [3, 4, 6, 3]},
}
STRIDE = 32  # of the ResNet
GRID = "pool.pos_grid"
KEYS = {
    "horizon", "n_action_steps", "vision_backbone", "resize_shape", "crop_ratio", "crop_shape", "crop_is_random",
    "use_group_norm", "spatial_softmax_num_keypoints", "use_separate_rgb_encoder_per_camera", "down_dims",
    "kernel_size", "n_groups", "diffusion_step_embed_dim", "use_film_scale_modulation", "noise_scheduler_type",
    "num_train_timesteps", "beta_schedule", "prediction_type", "clip_sample", "clip_sample_range",
    "num_inference_steps",
}  # fmt: skip
LATER = {"resize_shape", "crop_ratio"}  # without them nothing is resized
IGNORED = {"beta_start", "beta_end", "do_mask_loss_for_padding"}  # squared cosine does not use the betas
SCHEDULERS = {"DDPM": "ddpm", "DDIM": "ddim"}


def translate(folder: LeRobotFolder, robot: Robot) -> Translated:
    """Raises CheckpointError, naming the file and the key, or the file and the tensor."""
    folder.check_steps()
    if not folder.cameras or folder.state is None:
        raise folder.refused("input_features: a policy without images or state is not supported")
    crop = _crop(folder)
    manifest = _manifest(folder, robot, crop)
    tensors = {name.replace("_orig_mod.", ""): tensor for name, tensor in folder.tensors.items()}  # of torch.compile
    _check_grids(folder, tensors, crop or folder.cameras[0].shape[1:])
    named, origin = renamed(wanted(manifest, folder.file), tensors, folder.weights, _source_of, _is_ignored)
    states, features = folder.state.shape[0], manifest["encoder"]["features"] * len(folder.cameras)
    columns = [*range(states, states + features), *range(states)]  # theirs is the state, then the images
    reorder(named, manifest["network"], manifest["observation"]["history"], columns)
    return Translated(manifest, named, origin)


def _manifest(folder: LeRobotFolder, robot: Robot, crop: tuple[int, int] | None) -> dict[str, Any]:
    history, horizon, executed = folder.count("n_obs_steps"), folder.count("horizon"), _executed(folder)
    cameras = tuple(lerobot_manifest.camera(folder, robot, feature, crop) for feature in folder.cameras)
    return lerobot_manifest.manifest(
        folder,
        robot,
        "diffusion",
        encoder=_encoder(folder),
        network=_network(folder),
        horizon=horizon,
        observation=lerobot_manifest.observation(folder, robot, history, cameras),
        plans=_plans(folder),
        prediction=folder.get("prediction_type", ("epsilon", "sample")),
        training_steps=folder.count("num_train_timesteps", STEPS),
        executed=executed,
    )


def _executed(folder: LeRobotFolder) -> list[int]:
    """[first, count] of the horizon: from the newest observation's instant on, as many as the reference executes."""
    first, count = folder.count("n_obs_steps") - 1, folder.count("n_action_steps")
    left = folder.count("horizon") - first
    if count > left:
        raise folder.refused(f"n_action_steps: {count}, but the horizon leaves {left}")
    return [first, count]


def _encoder(folder: LeRobotFolder) -> dict[str, Any]:
    keypoints = folder.count("spatial_softmax_num_keypoints")
    described = {
        "type": "resnet18",
        "features": 2 * keypoints,
        "pool": "spatial_softmax",
        "keypoints": keypoints,
        "norm": "group" if folder.get("use_group_norm", (True, False)) else "batch",
        "activation": "relu",
        **BACKBONES[folder.get("vision_backbone", tuple(BACKBONES))],
    }
    if folder.get("use_separate_rgb_encoder_per_camera", (True, False)):
        described["separate"] = len(folder.cameras)
    return described


def _network(folder: LeRobotFolder) -> dict[str, Any]:
    return {
        "type": "conditional_unet1d",
        "down_dims": folder.get("down_dims"),
        "kernel": folder.count("kernel_size"),
        "groups": folder.count("n_groups"),
        "step_width": folder.count("diffusion_step_embed_dim"),
        "film": "scale_shift" if folder.get("use_film_scale_modulation", (True, False)) else "shift",
        "final_groups": FINAL_GROUPS,
    }


def _plans(folder: LeRobotFolder) -> dict[str, dict[str, Any]]:
    """Only the reference's own sampling; the plan's name gives sampler and steps."""
    folder.get("beta_schedule", ("squaredcos_cap_v2",))
    sampler = SCHEDULERS[folder.get("noise_scheduler_type", tuple(SCHEDULERS))]
    given = folder.config.get("num_inference_steps") is not None
    steps = folder.count("num_inference_steps" if given else "num_train_timesteps")
    clip = None
    if folder.get("clip_sample", (True, False)):
        clip = folder.get("clip_sample_range")
        if isinstance(clip, bool) or not isinstance(clip, int | float) or not 0 < clip <= sys.float_info.max:
            raise folder.refused(f"clip_sample_range: {clip!r} is not a number above zero")
    return published_plan(sampler, steps, clip)


def _crop(folder: LeRobotFolder) -> tuple[int, int] | None:
    """The part of an image that the network sees, (height, width); None for all of it."""
    sizes = {feature.shape for feature in folder.cameras}
    if len(sizes) > 1:
        raise folder.refused(f"input_features: images of different sizes: {sorted(sizes)}")
    size, resize, crop = folder.cameras[0].shape[1:], folder.pair("resize_shape"), folder.pair("crop_shape")
    if resize is not None and resize != size:
        raise folder.refused(
            f"resize_shape: {list(resize)} is not supported for images of {list(size)}: the "
            f"reference resizes normalised values with antialiasing"
        )
    ratio = folder.config.get("crop_ratio", 1.0)
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 1:
        raise folder.refused(f"crop_ratio: {ratio!r} is not a share of an image, above 0 up to 1")
    if resize is not None:  # the reference then takes the crop from the ratio, not from crop_shape
        crop = None if ratio == 1 else (max(1, int(size[0] * ratio)), max(1, int(size[1] * ratio)))
    if crop is not None and (crop[0] > size[0] or crop[1] > size[1]):
        raise folder.refused(f"crop_shape: {list(crop)} does not fit in images of {list(size)}")
    return crop


def _check_grids(folder: LeRobotFolder, tensors: Mapping[str, Tensor], size: tuple[int, ...]) -> None:
    """Check the stored grid of keypoint places. It gives the image size of training, as coarsely as the ResNet: sizes
    with the same grid cannot be told apart."""
    height, width = (-(-side // STRIDE) for side in size)
    rows, columns = (torch.linspace(-1, 1, side, dtype=torch.float64) for side in (height, width))
    grid = torch.stack([columns.repeat(height), rows.repeat_interleave(width)], -1)
    for name, tensor in tensors.items():
        if name.endswith(GRID) and not (
            tensor.shape == grid.shape and torch.allclose(tensor.double(), grid, rtol=0, atol=1e-5)
        ):
            raise CheckpointError(
                f"{folder.weights}: tensor '{name}' is not the grid of {height} x {width} places that images of "
                f"{size[0]} x {size[1]} have"
            )


def _source_of(name: str) -> str:
    """LeRobot's name of one of our tensors."""
    part, _, rest = name.partition(".")
    if part == "network":
        rest = re.sub(r"\.blocks\.([01])\.block\.", lambda at: f".conv{int(at[1]) + 1}.block.", rest)
        return "diffusion.unet." + re.sub(r"^((?:down|up)_modules\.\d+\.2)\.conv\.", r"\1.", rest)
    camera = re.match(r"each\.(\d+)\.", rest)
    if camera:
        rest = rest[camera.end() :]
    rest = re.sub(r"^project\.", "out.", resnet_name(rest, "backbone."))
    return f"diffusion.rgb_encoder.{camera[1] + '.' if camera else ''}{rest}"


def _is_ignored(source: str) -> bool:
    """Tensors that are computed here, or count batches of the training."""
    return source.endswith((GRID, "num_batches_tracked")) or source.startswith(BURIED)
