"""robomimic's checkpoints: what is wrong in a file, and what is not built, is refused by its name.

Guards: an algorithm that runs as if it were another; a key, a tensor or a statistic whose loss goes unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.policies.loaders.robomimic import translate
from tests.policies.loaders import robomimic_fixtures as made
from tests.policies.loaders.robomimic_fixtures import (
    CLONING_LOW_DIM,
    DIFFUSION_IMAGES,
    DIFFUSION_LOW_DIM,
    MIXTURE_IMAGES,
    nested,
)

Change = Callable[[dict[str, Any], dict[str, Any]], Any]

HEAD = "policy.nets.decoder.nets.action.bias"
POOL = "policy.nets.encoder.nets.obs.obs_nets.agentview_image.pool.temperature"
RGB = ("observation", "encoder", "rgb")


def _payload(**values: Any) -> Change:
    return lambda payload, config: payload.update(values)


def _weights(name: str, value: Any) -> Change:
    return lambda payload, config: payload["model"]["nets"].update({name: value})


def _statistics(**values: Any) -> Change:
    return lambda payload, config: payload["action_normalization_stats"]["actions"].update(values)


FAULTS: dict[str, tuple[str, Change, str]] = {
    "no metadata": (
        CLONING_LOW_DIM,
        lambda payload, config: payload.pop("env_metadata"),
        "is not a checkpoint of robomimic: it has no env_metadata",
    ),
    "another algorithm": (
        CLONING_LOW_DIM,
        _payload(algo_name="hbc"),
        "payload.algo_name: 'hbc' is not supported; expected 'diffusion_policy' or 'bc'",
    ),
    "recurrent": (
        CLONING_LOW_DIM,
        nested("algo", "rnn", "enabled", value=True),
        "config.algo.rnn.enabled: True is not supported; expected False; with `auras convert --inference robomimic`",
    ),
    "transformer": (CLONING_LOW_DIM, nested("algo", "transformer", "enabled", value=True), "algo.transformer.enabled"),
    "Gaussian": (CLONING_LOW_DIM, nested("algo", "gaussian", "enabled", value=True), "algo.gaussian.enabled: True is"),
    "noisy mixture": (
        MIXTURE_IMAGES,
        nested("algo", "gmm", "low_noise_eval", value=False),
        "algo.gmm.low_noise_eval: False is not supported",
    ),
    "goals": (
        CLONING_LOW_DIM,
        nested("observation", "modalities", "goal", "low_dim", value=["object"]),
        "observation.modalities.goal.low_dim: \\['object'\\] is not supported; expected none",
    ),
    "depth": (
        CLONING_LOW_DIM,
        nested("observation", "modalities", "obs", "depth", value=["agentview_depth"]),
        "modalities.obs.depth: \\['agentview_depth'\\] is not supported",
    ),
    "unknown observation": (
        CLONING_LOW_DIM,
        nested("observation", "modalities", "obs", "low_dim", value=["robot0_joint_pos"]),
        "shape_metadata.all_shapes: key 'robot0_joint_pos' is missing",
    ),
    "another number of instants": (
        DIFFUSION_LOW_DIM,
        nested("train", "frame_stack", value=3),
        "train.frame_stack: 3 is not supported; expected 2, the instants",
    ),
    "another encoder": (MIXTURE_IMAGES, nested(*RGB, "core_class", value="R3M"), "encoder.rgb.core_class: 'R3M' is"),
    "another pool": (
        MIXTURE_IMAGES,
        nested(*RGB, "core_kwargs", "pool_class", value="SpatialMeanPool"),
        "core_kwargs.pool_class: 'SpatialMeanPool' is not supported",
    ),
    "another crop": (
        MIXTURE_IMAGES,
        nested(*RGB, "obs_randomizer_class", value="ColorRandomizer"),
        "obs_randomizer_class: 'ColorRandomizer' is not supported",
    ),
    "crop too large": (
        MIXTURE_IMAGES,
        nested(*RGB, "obs_randomizer_kwargs", "crop_height", value=50),
        "crop: 50 x 33 .* is not within 40 x 40",
    ),
    "no U-Net": (
        DIFFUSION_LOW_DIM,
        nested("algo", "unet", "enabled", value=False),
        "algo.unet.enabled: False is not supported",
    ),
    "more steps than trained": (
        DIFFUSION_LOW_DIM,
        nested("algo", "ddpm", "num_inference_timesteps", value=13),
        "num_inference_timesteps: 13 is not supported; expected at most the 12 of the training",
    ),
    "too many actions": (
        DIFFUSION_IMAGES,
        nested("algo", "horizon", "action_horizon", value=8),
        "action_horizon: 8 is not supported; expected at most 7 in the horizon",
    ),
    "beta schedule": (
        DIFFUSION_IMAGES,
        nested("algo", "ddim", "beta_schedule", value="linear"),
        "ddim.beta_schedule: 'linear' is not supported",
    ),
    "missing tensor": (
        CLONING_LOW_DIM,
        lambda payload, config: payload["model"]["nets"].pop(HEAD),
        f"tensor '{HEAD}' is missing",
    ),
    "unknown tensor": (CLONING_LOW_DIM, _weights("extra", torch.zeros(1)), "tensor 'extra' belongs to no part"),
    "wrong shape": (CLONING_LOW_DIM, _weights(HEAD, torch.zeros(3)), f"tensor '{HEAD}' has shape \\[3\\]"),
    "NaN": (CLONING_LOW_DIM, _weights(HEAD, torch.full((7,), torch.nan)), f"tensor '{HEAD}' holds NaN"),
    "temperature": (MIXTURE_IMAGES, _weights(POOL, torch.full((1,), 2.0)), f"'{POOL}': a temperature other than 1"),
    "other widths": (CLONING_LOW_DIM, nested("algo", "actor_layer_dims", value=[16, 13]), "has shape"),
    "no range": (CLONING_LOW_DIM, _statistics(scale=[[0.0] * 7]), "actions.scale: .* expected numbers above zero"),
    "statistics of another size": (CLONING_LOW_DIM, _statistics(scale=[[1.0] * 6]), "actions.scale: 6 numbers"),
    "statistics that are none": (CLONING_LOW_DIM, _statistics(scale="all"), "actions.scale: 'all' is not supported"),
    "no statistics of an observation": (
        CLONING_LOW_DIM,
        lambda payload, config: payload["obs_normalization_stats"].pop("object"),
        "obs_normalization_stats: key 'object' is missing",
    ),
    "statistics of images": (
        MIXTURE_IMAGES,
        _payload(obs_normalization_stats={}),
        "obs_normalization_stats: of images are not supported",
    ),
    "several actions": (
        CLONING_LOW_DIM,
        nested("train", "action_keys", value=["position", "rotation"]),
        "action_keys: \\[.*\\] is not supported; expected one key",
    ),
    "rotations of six numbers": (
        CLONING_LOW_DIM,
        nested("train", "action_config", "actions", "format", value="rot_6d"),
        "action_config.actions.format: 'rot_6d' is not supported",
    ),
    "configuration that is no JSON": (CLONING_LOW_DIM, _payload(config="none"), "config: not JSON"),
    "another number of actions": (
        CLONING_LOW_DIM,
        lambda payload, config: payload["shape_metadata"].update(ac_dim=10),
        "robot.json: action: 7 channels .* has 10 actions",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_or_not_built_is_refused_by_name(name: str, tmp_path: Path) -> None:
    fixture, change, said = FAULTS[name]
    path, robot = made.changed(tmp_path, fixture, change), made.robot(tmp_path, fixture)
    with pytest.raises(CheckpointError, match=said) as refused:
        translate(path, robot).checkpoint("digest", path)
    assert str(refused.value).startswith(str(tmp_path))
