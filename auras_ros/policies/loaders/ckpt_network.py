"""The noise networks and schedulers of diffusion_policy's configuration, in terms of our manifest.

Options that are not supported (conditioning by inpainting, layers over the observations, other beta schedules) are
refused by their key. Parameter names of the networks are the published ones; only the order of an instant's features
differs.
"""

from __future__ import annotations

from typing import Any

from auras_ros.checkpoints.limits import LAYERS, STEPS
from auras_ros.checkpoints.torch_file import LazyTensors
from auras_ros.policies.loaders.ckpt_config import CkptConfig
from auras_ros.policies.loaders.diffusion import FINAL_GROUPS, published_plan

COMMON = {
    "_target_", "shape_meta", "noise_scheduler", "horizon", "n_action_steps", "n_obs_steps", "num_inference_steps",
}  # fmt: skip
HYBRID = {"crop_shape", "obs_encoder_group_norm", "eval_fixed_crop"}
IMAGE = {"obs_encoder"}
UNET = {
    "obs_as_global_cond", "diffusion_step_embed_dim", "down_dims", "kernel_size", "n_groups", "cond_predict_scale",
}  # fmt: skip
TRANSFORMER = {
    "n_layer", "n_cond_layers", "n_head", "n_emb", "p_drop_emb", "p_drop_attn", "causal_attn", "time_as_cond",
    "obs_as_cond", "pred_action_steps_only",
}  # fmt: skip
OBS_ENCODER = {
    "_target_", "shape_meta", "rgb_model", "resize_shape", "crop_shape", "random_crop", "use_group_norm",
    "share_rgb_model", "imagenet_norm",
}  # fmt: skip
MULTI_IMAGE_ENCODER = "diffusion_policy.model.vision.multi_image_obs_encoder.MultiImageObsEncoder"
STEP_ENCODER = "model.diffusion_step_encoder.1.weight"
MOST_CLIP = 1_000_000  # actions are about 1
SCHEDULERS = {
    "diffusers.schedulers.scheduling_ddpm.DDPMScheduler": "ddpm",
    "diffusers.schedulers.scheduling_ddim.DDIMScheduler": "ddim",
}
# The squared-cosine schedule does not use the betas.
SCHEDULER = {
    "_target_", "num_train_timesteps", "beta_start", "beta_end", "beta_schedule", "variance_type", "clip_sample",
    "clip_sample_range", "prediction_type", "set_alpha_to_one", "steps_offset",
}  # fmt: skip


def described(policy: CkptConfig, tensors: LazyTensors) -> dict[str, Any]:
    """The network of our manifest. Raises CheckpointError, naming the key."""
    image = "obs_encoder" in policy.values
    own = TRANSFORMER if "n_layer" in policy.values else UNET
    policy.known(COMMON | (IMAGE if image else HYBRID) | own)
    if image:
        encoder = policy.object("obs_encoder")
        encoder.get("_target_", allowed=(MULTI_IMAGE_ENCODER,))
        encoder.known(OBS_ENCODER)
        encoder.object("rgb_model").get("name", allowed=("resnet18",))
    return _transformer(policy) if own is TRANSFORMER else _unet(policy, tensors)


def _unet(policy: CkptConfig, tensors: LazyTensors) -> dict[str, Any]:
    policy.get("obs_as_global_cond", True, (True,))
    return {
        "type": "conditional_unet1d",
        "down_dims": policy.counts("down_dims"),
        "kernel": policy.count("kernel_size", 5),
        "groups": policy.count("n_groups", 8),
        "step_width": policy.count("diffusion_step_embed_dim", tensors.side(STEP_ENCODER, 1)),
        "film": "scale_shift" if policy.get("cond_predict_scale", True, (True, False)) else "shift",
        "final_groups": FINAL_GROUPS,
    }


def _transformer(policy: CkptConfig) -> dict[str, Any]:
    for key in ("obs_as_cond", "time_as_cond", "causal_attn"):
        policy.get(key, True, (True,))
    policy.get("pred_action_steps_only", False, (False,))
    policy.get("n_cond_layers", 0, (0,))
    return {
        "type": "transformer",
        "layers": policy.count("n_layer", 8, most=LAYERS),
        "heads": policy.count("n_head", 4),
        "width": policy.count("n_emb", 256),
    }


def plans(policy: CkptConfig) -> dict[str, dict[str, Any]]:
    """Only the reference's own sampling; the plan's name gives sampler and steps."""
    scheduler = policy.object("noise_scheduler")
    scheduler.known(SCHEDULER)
    sampler = SCHEDULERS[scheduler.get("_target_", allowed=tuple(SCHEDULERS))]
    scheduler.get("beta_schedule", "linear", ("squaredcos_cap_v2",))
    if sampler == "ddpm":
        scheduler.get("variance_type", "fixed_small", ("fixed_small",))
    else:
        scheduler.get("set_alpha_to_one", True, (True,))
        scheduler.get("steps_offset", 0, (0,))
    trained = scheduler.count("num_train_timesteps", most=STEPS)
    steps = trained if policy.get("num_inference_steps", None) is None else policy.count("num_inference_steps")
    if steps > trained:
        raise policy.refused("num_inference_steps", steps, f"at most the {trained} of the training")
    clip = scheduler.get("clip_sample_range", 1.0)
    if isinstance(clip, bool) or not isinstance(clip, int | float) or not 0 < clip <= MOST_CLIP:
        raise scheduler.refused("clip_sample_range", clip, f"a number above zero, {MOST_CLIP} at most")
    clip = clip if scheduler.get("clip_sample", True, (True, False)) else None
    return published_plan(sampler, steps, clip)
