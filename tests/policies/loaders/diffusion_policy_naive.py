"""diffusion_policy's inference written a second time, from the names of its tensors and its configuration.

Plain functions over the saved tensors, with diffusers' own schedulers and torch's own transformer decoder: nothing of
ours is in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tests.policies.loaders.diffusion_policy_file import HYBRID_TRANSFORMER, IMAGE_UNET, Weights

Observed = Mapping[str, NDArray[Any]]  # key -> uint8 [history, h, w, 3] or float64 [history, n]


@torch.no_grad()
def predict(policy: Mapping[str, Any], w: Weights, seen: Observed, seed: int) -> Tensor:
    """The actions that the reference executes, [n_action_steps, actions]."""
    keys, image = policy["shape_meta"]["obs"], policy["_target_"] == IMAGE_UNET
    cameras = [key for key, each in keys.items() if each.get("type") == "rgb"]
    order = [*sorted(cameras), *sorted(key for key in keys if key not in cameras)] if image else list(keys)
    parts = []
    for key in order:
        scale, offset = (w[f"normalizer.params_dict.{key}.{part}"] for part in ("scale", "offset"))
        if key not in cameras:
            parts.append(torch.from_numpy(seen[key]).float() * scale + offset)
            continue
        pixels = torch.from_numpy(seen[key]).permute(0, 3, 1, 2).float() / 255 * scale + offset
        parts.append(_image_encoder(policy, w, key, pixels) if image else _hybrid_encoder(policy, w, key, pixels))
    features = torch.cat(parts, 1)
    first = policy["n_obs_steps"] - 1
    sample = _denoise(policy, w, features, seed)[0]
    actions = (sample - w["normalizer.params_dict.action.offset"]) / w["normalizer.params_dict.action.scale"]
    return actions[first : first + policy["n_action_steps"]]


def _denoise(policy: Mapping[str, Any], w: Weights, features: Tensor, seed: int) -> Tensor:
    from diffusers.schedulers.scheduling_ddim import DDIMScheduler
    from diffusers.schedulers.scheduling_ddpm import DDPMScheduler

    settings = {key: value for key, value in policy["noise_scheduler"].items() if key != "_target_"}
    ddpm = "ddpm" in policy["noise_scheduler"]["_target_"]
    scheduler = (DDPMScheduler if ddpm else DDIMScheduler)(**settings)
    scheduler.set_timesteps(policy["num_inference_steps"])
    actions = policy["shape_meta"]["action"]["shape"][0]
    random = torch.Generator().manual_seed(seed)
    sample = torch.randn(1, policy["horizon"], actions, generator=random)
    network = _transformer if policy["_target_"] == HYBRID_TRANSFORMER else _unet
    model = {name[len("model.") :]: tensor for name, tensor in w.items() if name.startswith("model.")}
    for t in scheduler.timesteps:
        more = {"generator": random} if ddpm else {}
        sample = scheduler.step(network(policy, model, sample, t[None], features), t, sample, **more).prev_sample
    return sample


def _centre(pixels: Tensor, size: list[int] | None) -> Tensor:
    """torchvision's center_crop."""
    if size is None:
        return pixels
    top, left = (round((side - part) / 2.0) for side, part in zip(pixels.shape[-2:], size, strict=True))
    return pixels[..., top : top + size[0], left : left + size[1]]


def _norm(w: Weights, name: str, x: Tensor) -> Tensor:
    if f"{name}.running_mean" in w:
        return F.batch_norm(
            x, w[f"{name}.running_mean"], w[f"{name}.running_var"], w[f"{name}.weight"], w[f"{name}.bias"]
        )
    return F.group_norm(x, x.shape[1] // 16, w[f"{name}.weight"], w[f"{name}.bias"])


def _resnet(w: Weights, prefix: str, parts: tuple[str, ...], x: Tensor) -> Tensor:
    x = F.conv2d(x, w[f"{prefix}{parts[0]}.weight"], stride=2, padding=3)
    x = F.max_pool2d(F.relu(_norm(w, f"{prefix}{parts[1]}", x)), 3, 2, 1)
    for layer in parts[2:]:
        for block in (0, 1):
            at = f"{prefix}{layer}.{block}"
            stride = 2 if f"{at}.downsample.0.weight" in w else 1
            out = F.relu(_norm(w, f"{at}.bn1", F.conv2d(x, w[f"{at}.conv1.weight"], stride=stride, padding=1)))
            out = _norm(w, f"{at}.bn2", F.conv2d(out, w[f"{at}.conv2.weight"], padding=1))
            if stride == 2:
                x = _norm(w, f"{at}.downsample.1", F.conv2d(x, w[f"{at}.downsample.0.weight"], stride=2))
            x = F.relu(out + x)
    return x


def _hybrid_encoder(policy: Mapping[str, Any], w: Weights, key: str, pixels: Tensor) -> Tensor:
    at = f"obs_encoder.obs_nets.{key}."
    maps = _resnet(w, f"{at}backbone.nets.", ("0", "1", "4", "5", "6", "7"), _centre(pixels, policy["crop_shape"]))
    maps = F.conv2d(maps, w[f"{at}pool.nets.weight"], w[f"{at}pool.nets.bias"])
    share = F.softmax(maps.flatten(2), -1)
    columns, rows = np.meshgrid(np.linspace(-1, 1, maps.shape[3]), np.linspace(-1, 1, maps.shape[2]))
    places = torch.from_numpy(np.stack([columns.ravel(), rows.ravel()], 1)).float()
    return F.relu(F.linear((share @ places).flatten(1), w[f"{at}nets.3.weight"], w[f"{at}nets.3.bias"]))


def _image_encoder(policy: Mapping[str, Any], w: Weights, key: str, pixels: Tensor) -> Tensor:
    encoder = policy["obs_encoder"]
    crop = encoder["crop_shape"]
    pixels = _centre(pixels, crop[key] if isinstance(crop, dict) else crop)
    if encoder["imagenet_norm"]:
        mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        pixels = (pixels - mean[:, None, None]) / std[:, None, None]
    at = f"obs_encoder.key_model_map.{'rgb' if encoder['share_rgb_model'] else key}."
    return _resnet(w, at, ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4"), pixels).mean((2, 3))


def _sinusoid(t: Tensor, width: int) -> Tensor:
    angle = t[:, None] * torch.exp(torch.arange(width // 2) * -(math.log(10000) / (width // 2 - 1)))
    return torch.cat([angle.sin(), angle.cos()], 1)


def _unet(policy: Mapping[str, Any], w: Weights, x: Tensor, t: Tensor, features: Tensor) -> Tensor:
    """Two scales."""
    pad = policy["kernel_size"] // 2

    def linear(name: str, v: Tensor) -> Tensor:
        return F.linear(v, w[f"{name}.weight"], w[f"{name}.bias"])

    def conv(name: str, v: Tensor, **how: int) -> Tensor:
        return F.conv1d(v, w[f"{name}.weight"], w[f"{name}.bias"], **how)

    def part(name: str, v: Tensor, groups: int) -> Tensor:
        out = conv(f"{name}.block.0", v, padding=pad)
        return F.mish(F.group_norm(out, groups, w[f"{name}.block.1.weight"], w[f"{name}.block.1.bias"]))

    def block(name: str, v: Tensor) -> Tensor:
        told = linear(f"{name}.cond_encoder.1", F.mish(film))
        half = told.shape[1] // 2
        out = part(f"{name}.blocks.0", v, policy["n_groups"]) * told[:, :half, None] + told[:, half:, None]
        out = part(f"{name}.blocks.1", out, policy["n_groups"])
        return out + (conv(f"{name}.residual_conv", v) if f"{name}.residual_conv.weight" in w else v)

    step = linear("diffusion_step_encoder.1", _sinusoid(t, policy["diffusion_step_embed_dim"]))
    film = torch.cat([linear("diffusion_step_encoder.3", F.mish(step)), features.reshape(1, -1)], 1)
    v = block("down_modules.0.1", block("down_modules.0.0", x.transpose(1, 2)))
    v = conv("down_modules.0.2.conv", v, stride=2, padding=1)
    v = skip = block("down_modules.1.1", block("down_modules.1.0", v))
    v = block("mid_modules.1", block("mid_modules.0", v))
    v = block("up_modules.0.1", block("up_modules.0.0", torch.cat([v, skip], 1)))
    v = F.conv_transpose1d(v, w["up_modules.0.2.conv.weight"], w["up_modules.0.2.conv.bias"], stride=2, padding=1)
    return conv("final_conv.1", part("final_conv.0", v, 8)).transpose(1, 2)


def _transformer(policy: Mapping[str, Any], w: Weights, x: Tensor, t: Tensor, features: Tensor) -> Tensor:
    width, heads = policy["n_emb"], policy["n_head"]
    layer = nn.TransformerDecoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
    decoder = nn.TransformerDecoder(layer, policy["n_layer"]).eval()
    decoder.load_state_dict({name[len("decoder.") :]: v for name, v in w.items() if name.startswith("decoder.")})

    def linear(name: str, v: Tensor) -> Tensor:
        return F.linear(v, w[f"{name}.weight"], w[f"{name}.bias"])

    memory = torch.cat([_sinusoid(t, width)[:, None], linear("cond_obs_emb", features[None])], 1) + w["cond_pos_emb"]
    memory = linear("encoder.2", F.mish(linear("encoder.0", memory)))
    hidden = decoder(linear("input_emb", x) + w["pos_emb"], memory, tgt_mask=w["mask"], memory_mask=w["memory_mask"])
    return linear("head", F.layer_norm(hidden, (width,), w["ln_f.weight"], w["ln_f.bias"]))
