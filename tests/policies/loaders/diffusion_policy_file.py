"""A checkpoint as diffusion_policy writes it, at tiny sizes with random weights: its names, its configuration.

Names and layout are those of the published code (robomimic's observation encoder, MultiImageObsEncoder, the
conditional U-Net, the transformer, the normaliser). Only the sizes differ: channels of the ResNet and of the networks.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

Weights = dict[str, Tensor]
Policy = dict[str, Any]

PACKAGE = "diffusion_policy.policy."
HYBRID_UNET = f"{PACKAGE}diffusion_unet_hybrid_image_policy.DiffusionUnetHybridImagePolicy"
HYBRID_TRANSFORMER = f"{PACKAGE}diffusion_transformer_hybrid_image_policy.DiffusionTransformerHybridImagePolicy"
IMAGE_UNET = f"{PACKAGE}diffusion_unet_image_policy.DiffusionUnetImagePolicy"

WIDTH, KEYPOINTS, FEATURES = 16, 4, 6
SIDE, CROP, HISTORY, HORIZON, EXECUTED, ACTIONS = 40, 33, 2, 8, 4, 3
STEP, DIMS, KERNEL, GROUPS = 8, (8, 16), 3, 4
LAYERS, HEADS, EMBEDDING = 2, 2, 8

# One camera, as Push-T; and two with states between them, as robomimic's tasks.
PUSHT = {"image": {"shape": [3, SIDE, SIDE], "type": "rgb"}, "agent_pos": {"shape": [2], "type": "low_dim"}}
TWO = {
    "wrist": {"shape": [3, SIDE, SIDE], "type": "rgb"},
    "eef_pos": {"shape": [3]},
    "agentview": {"shape": [3, SIDE, SIDE], "type": "rgb"},
    "gripper": {"shape": [1], "type": "low_dim"},
}

DDPM = {
    "_target_": "diffusers.schedulers.scheduling_ddpm.DDPMScheduler",
    "num_train_timesteps": 12,
    "beta_start": 0.0001,
    "beta_end": 0.02,
    "beta_schedule": "squaredcos_cap_v2",
    "variance_type": "fixed_small",
    "clip_sample": True,
    "prediction_type": "epsilon",
}
DDIM = {
    **{key: value for key, value in DDPM.items() if key != "variance_type"},
    "_target_": "diffusers.schedulers.scheduling_ddim.DDIMScheduler",
    "num_train_timesteps": 100,
    "set_alpha_to_one": True,
    "steps_offset": 0,
}


def config(target: str = HYBRID_UNET, obs: Mapping[str, Any] = PUSHT, **changes: Any) -> Policy:
    """The `policy` of a training's configuration, resolved."""
    shape_meta = {"obs": dict(obs), "action": {"shape": [ACTIONS]}}
    common = {
        "_target_": target,
        "shape_meta": shape_meta,
        "noise_scheduler": DDPM,
        "horizon": HORIZON,
        "n_action_steps": EXECUTED,
        "n_obs_steps": HISTORY,
        "num_inference_steps": 12,
    }
    hybrid = {"crop_shape": [CROP, CROP], "obs_encoder_group_norm": True, "eval_fixed_crop": True}
    unet = {
        "obs_as_global_cond": True,
        "diffusion_step_embed_dim": STEP,
        "down_dims": list(DIMS),
        "kernel_size": KERNEL,
        "n_groups": GROUPS,
        "cond_predict_scale": True,
    }
    transformer = {
        "n_layer": LAYERS,
        "n_cond_layers": 0,
        "n_head": HEADS,
        "n_emb": EMBEDDING,
        "p_drop_emb": 0.0,
        "p_drop_attn": 0.3,
        "causal_attn": True,
        "time_as_cond": True,
        "obs_as_cond": True,
    }
    encoder = {
        "_target_": "diffusion_policy.model.vision.multi_image_obs_encoder.MultiImageObsEncoder",
        "shape_meta": shape_meta,
        "rgb_model": {
            "_target_": "diffusion_policy.model.vision.model_getter.get_resnet",
            "name": "resnet18",
            "weights": None,
        },
        "resize_shape": None,
        "crop_shape": [CROP, CROP],
        "random_crop": True,
        "use_group_norm": True,
        "share_rgb_model": False,
        "imagenet_norm": True,
    }
    kinds = {
        HYBRID_UNET: {**hybrid, **unet},
        HYBRID_TRANSFORMER: {**hybrid, **transformer},
        IMAGE_UNET: {"obs_encoder": encoder, **unet},
    }
    return copy.deepcopy({**common, **kinds.get(target, {}), **changes})


def image_unet(**changes: Any) -> Policy:
    """Of an image U-Net with two cameras under DDIM; changes of its encoder."""
    policy = config(IMAGE_UNET, TWO, noise_scheduler=DDIM, num_inference_steps=8)
    policy["obs_encoder"].update(changes)
    return policy


def state_dict(policy: Mapping[str, Any], seed: int = 0, norm: str = "group") -> Weights:
    """All tensors that such a policy saves, random; statistics with scales above zero."""
    torch.manual_seed(seed)
    obs = policy["shape_meta"]["obs"]
    cameras = [key for key, each in obs.items() if each.get("type") == "rgb"]
    w: Weights = {"_dummy_variable": torch.zeros(0)}
    if policy["_target_"] == IMAGE_UNET:
        features = WIDTH
        shared = policy["obs_encoder"]["share_rgb_model"]
        for key in ["rgb"] if shared else cameras:
            w |= _resnet(
                f"obs_encoder.key_model_map.{key}.", ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4"), norm
            )
        w["obs_encoder._dummy_variable"] = torch.zeros(0)
    else:
        features = FEATURES
        for key in cameras:
            w |= _visual_core(f"obs_encoder.obs_nets.{key}.", norm)
    instant = sum(features if key in cameras else each["shape"][0] for key, each in obs.items())
    made = _transformer(instant) if policy["_target_"] == HYBRID_TRANSFORMER else _unet(HISTORY * instant)
    w |= {f"model.{name}": tensor for name, tensor in made.items()}
    w["mask_generator._dummy_variable"] = torch.zeros(0)
    for key, size in [("action", ACTIONS), *((k, 1 if k in cameras else each["shape"][0]) for k, each in obs.items())]:
        scale = torch.full((1,), 2.0) if key in cameras else 0.01 + torch.rand(size)
        offset = torch.full((1,), -1.0) if key in cameras else torch.randn(size)
        w[f"normalizer.params_dict.{key}.scale"], w[f"normalizer.params_dict.{key}.offset"] = scale, offset
        for part in ("min", "max", "mean", "std"):
            w[f"normalizer.params_dict.{key}.input_stats.{part}"] = torch.randn(size)
    return w


def payload(policy: Mapping[str, Any], weights: Weights) -> dict[str, Any]:
    """What the training saves; `model` has other weights than the moving average."""
    other = {name: tensor + 1 for name, tensor in weights.items()}
    states = {"model": other, "ema_model": weights, "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}}}
    pickles = {"global_step": b"\x80\x04K\x03.", "epoch": b"\x80\x04K\x01."}
    cfg = {"name": "train", "policy": dict(policy), "training": {"use_ema": True}}
    return {"cfg": cfg, "state_dicts": states, "pickles": pickles}


def write(path: Path, policy: Mapping[str, Any], weights: Weights) -> Path:
    torch.save(payload(policy, weights), path)
    return path


def robot(obs: Mapping[str, Any] = PUSHT, order: list[str] | None = None) -> dict[str, Any]:
    """robot.json: joints in the order in which the encoder joins the states."""
    states = [key for key in (order or list(obs)) if obs[key].get("type") != "rgb"]
    joints = [f"{key}_{i}" for key in states for i in range(obs[key]["shape"][0])]
    channel = {"unit": "m", "kind": "absolute", "lower": -1000.0, "upper": 1000.0, "hold": "last"}
    channels = [{"name": f"a{i}", **channel} for i in range(ACTIONS)]
    return {"dt_ms": 100, "action": {"channels": channels}, "state": joints}


def _norm(prefix: str, channels: int, norm: str) -> Weights:
    w = {f"{prefix}weight": 1 + 0.2 * torch.randn(channels), f"{prefix}bias": 0.2 * torch.randn(channels)}
    if norm == "batch":
        w[f"{prefix}running_mean"] = 0.2 * torch.randn(channels)
        w[f"{prefix}running_var"] = 0.5 + torch.rand(channels)
        w[f"{prefix}num_batches_tracked"] = torch.tensor(7)
    return w


def _conv(inputs: int, kernel: int) -> Tensor:
    return torch.randn(WIDTH, inputs, kernel, kernel) * (inputs * kernel * kernel / 2) ** -0.5


def _resnet(prefix: str, parts: tuple[str, ...], norm: str) -> Weights:
    """ResNet18 with as many channels in each layer. parts: names of conv1, bn1 and the layers."""
    w = {f"{prefix}{parts[0]}.weight": _conv(3, 7), **_norm(f"{prefix}{parts[1]}.", WIDTH, norm)}
    for number, layer in enumerate(parts[2:]):
        for block in (0, 1):
            at = f"{prefix}{layer}.{block}."
            for conv in (1, 2):
                w[f"{at}conv{conv}.weight"] = _conv(WIDTH, 3)
                w |= _norm(f"{at}bn{conv}.", WIDTH, norm)
            if number and block == 0:
                w[f"{at}downsample.0.weight"] = _conv(WIDTH, 1)
                w |= _norm(f"{at}downsample.1.", WIDTH, norm)
    return w


def _visual_core(prefix: str, norm: str) -> Weights:
    """robomimic's: backbone, pool and linear layer, the first two under two names each."""
    backbone = _resnet("backbone.nets.", ("0", "1", "4", "5", "6", "7"), norm)
    grid = -(-CROP // 32)
    columns, rows = torch.meshgrid(torch.linspace(-1, 1, grid), torch.linspace(-1, 1, grid), indexing="xy")
    pool = {
        "pool.temperature": torch.ones(1),
        "pool.pos_x": columns.reshape(1, -1),
        "pool.pos_y": rows.reshape(1, -1),
        "pool.nets.weight": torch.randn(KEYPOINTS, WIDTH, 1, 1),
        "pool.nets.bias": torch.randn(KEYPOINTS),
    }
    again = {name.replace("backbone.", "nets.0.", 1): tensor for name, tensor in backbone.items()}
    again |= {name.replace("pool.", "nets.1.", 1): tensor for name, tensor in pool.items()}
    linear = {"nets.3.weight": torch.randn(FEATURES, 2 * KEYPOINTS), "nets.3.bias": torch.randn(FEATURES)}
    return {f"{prefix}{name}": tensor for name, tensor in {**backbone, **pool, **again, **linear}.items()}


def _linear(name: str, outputs: int, inputs: int) -> Weights:
    return {f"{name}.weight": torch.randn(outputs, inputs) * inputs**-0.5, f"{name}.bias": 0.2 * torch.randn(outputs)}


def _unet(condition: int) -> Weights:
    """The published conditional U-Net of two scales."""
    w = {**_linear("diffusion_step_encoder.1", 4 * STEP, STEP), **_linear("diffusion_step_encoder.3", STEP, 4 * STEP)}
    fine, coarse = DIMS

    def conv(name: str, outputs: int, inputs: int, kernel: int) -> Weights:
        weight = torch.randn(outputs, inputs, kernel) * (inputs * kernel) ** -0.5
        return {f"{name}.weight": weight, f"{name}.bias": 0.2 * torch.randn(outputs)}

    def block(name: str, inputs: int, outputs: int) -> Weights:
        made: Weights = {}
        for i, into in enumerate((inputs, outputs)):
            made |= conv(f"{name}.blocks.{i}.block.0", outputs, into, KERNEL)
            made |= _norm(f"{name}.blocks.{i}.block.1.", outputs, "group")
        made |= _linear(f"{name}.cond_encoder.1", 2 * outputs, STEP + condition)
        return made | (conv(f"{name}.residual_conv", outputs, inputs, 1) if inputs != outputs else {})

    sizes = {"mid_modules.0": (coarse, coarse), "mid_modules.1": (coarse, coarse)}
    sizes |= {"down_modules.0.0": (ACTIONS, fine), "down_modules.0.1": (fine, fine)}
    sizes |= {"down_modules.1.0": (fine, coarse), "down_modules.1.1": (coarse, coarse)}
    sizes |= {"up_modules.0.0": (2 * coarse, fine), "up_modules.0.1": (fine, fine)}
    for name, (inputs, outputs) in sizes.items():
        w |= block(name, inputs, outputs)
    w |= {**conv("down_modules.0.2.conv", fine, fine, 3), **conv("up_modules.0.2.conv", fine, fine, 4)}
    w |= {**conv("final_conv.0.block.0", fine, fine, KERNEL), **_norm("final_conv.0.block.1.", fine, "group")}
    return w | conv("final_conv.1", ACTIONS, fine, 1)


def _transformer(instant: int) -> Weights:
    """The published transformer around torch's own decoder."""
    layer = nn.TransformerDecoderLayer(EMBEDDING, HEADS, 4 * EMBEDDING, activation="gelu", norm_first=True)
    decoder = nn.TransformerDecoder(layer, LAYERS).state_dict()
    w = {f"decoder.{name}": tensor + 0.2 * torch.randn(tensor.shape) for name, tensor in decoder.items()}
    w |= {**_linear("input_emb", EMBEDDING, ACTIONS), **_linear("cond_obs_emb", EMBEDDING, instant)}
    w |= {**_linear("encoder.0", 4 * EMBEDDING, EMBEDDING), **_linear("encoder.2", EMBEDDING, 4 * EMBEDDING)}
    w |= {"pos_emb": torch.randn(1, HORIZON, EMBEDDING), "cond_pos_emb": torch.randn(1, 1 + HISTORY, EMBEDDING)}
    w |= {**_norm("ln_f.", EMBEDDING, "group"), **_linear("head", ACTIONS, EMBEDDING)}
    later = torch.arange(HORIZON)[None] > torch.arange(HORIZON)[:, None]
    hidden = torch.arange(1 + HISTORY)[None] - 1 > torch.arange(HORIZON)[:, None]
    masks = {"mask": later, "memory_mask": hidden}
    w |= {name: torch.zeros(mask.shape).masked_fill(mask, -torch.inf) for name, mask in masks.items()}
    return w | {"_dummy_variable": torch.zeros(0)}
