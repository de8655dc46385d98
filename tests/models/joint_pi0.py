"""pi0 once more, naively: prefix and suffix in one forward under the block mask, by hand, with nothing kept.

Only the vision encoder and the rotary angles are shared with what is tested; both have tests of their own.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from auras_ros.models.pi0 import Pi0
from auras_ros.models.rotary import rotary


def joint_velocity(model: Pi0, images: Tensor, prompt: Tensor, state: Tensor, sample: Tensor, time: Tensor) -> Tensor:
    """images [B, cameras, 3, px, px], prompt [ids], state [B, state], sample [B, horizon, actions], time [B]."""
    prefix, suffix = prefix_of(model, images, prompt), suffix_of(model, state, sample, time)
    before, after = prefix.shape[1], suffix.shape[1]
    block = torch.tensor([0] * before + [1] + [2] * (after - 1))  # each sees its own block and those before it
    visible = block[:, None] >= block[None]
    config = model.config.language
    cosine, sine = rotary(torch.arange(before + after), config.size_of_head, config.rope_theta, None, sample.dtype)
    for large, small in zip(model.language.layers, model.expert.layers, strict=True):
        sides = [(large, prefix), (small, suffix)]
        parts = [[linear(norm(side.input_layernorm, x)) for linear in qkv(side)] for side, x in sides]
        joined = [torch.cat(both, 1) for both in zip(*parts, strict=True)]
        query, key, value = (x.unflatten(-1, (-1, config.size_of_head)).transpose(1, 2) for x in joined)
        query, key = (turned(x, cosine, sine) for x in (query, key))
        groups = query.shape[1] // key.shape[1]
        key, value = (torch.stack([x[:, i // groups] for i in range(query.shape[1])], 1) for x in (key, value))
        scores = query @ key.mT / math.sqrt(config.size_of_head)
        seen = torch.softmax(scores.masked_fill(~visible, -torch.inf), -1) @ value
        seen = seen.transpose(1, 2).flatten(2)
        prefix = after_attention(large, prefix, seen[:, :before])
        suffix = after_attention(small, suffix, seen[:, before:])
    return model.expert.action_out_proj(norm(model.expert.norm, suffix)[:, 1:])


def prefix_of(model: Pi0, images: Tensor, prompt: Tensor) -> Tensor:
    """Each camera's patches, then the words."""
    cameras = [model.projector.linear(model.projector.norm(model.vision(x))) for x in images.unbind(1)]
    words = model.language.embed_tokens.weight[prompt] * math.sqrt(model.config.language.width)
    return torch.cat([*cameras, words.expand(len(images), -1, -1)], 1)


def suffix_of(model: Pi0, state: Tensor, sample: Tensor, time: Tensor) -> Tensor:
    expert = model.expert
    count = model.config.expert.width // 2
    periods = [0.004 * 1000 ** (i / (count - 1)) for i in range(count)]
    turns = [[t / period * 2 * math.pi for period in periods] for t in time.tolist()]
    when = [[math.sin(a) for a in row] + [math.cos(a) for a in row] for row in turns]
    when = torch.tensor(when, dtype=sample.dtype)[:, None].expand(-1, sample.shape[1], -1)
    mixed = expert.action_time_mlp_in(torch.cat([expert.action_in_proj(sample), when], 2))
    actions = expert.action_time_mlp_out(mixed / (1 + torch.exp(-mixed)))
    return torch.cat([expert.state_proj(state)[:, None], actions], 1)


def after_attention(layer: Any, x: Tensor, seen: Tensor) -> Tensor:
    x = x + layer.self_attn.o_proj(seen)
    normed = norm(layer.post_attention_layernorm, x)
    gate = layer.mlp.gate_proj(normed)
    gate = gate / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
    return x + layer.mlp.down_proj(gate * layer.mlp.up_proj(normed))


def norm(module: Any, x: Tensor) -> Tensor:
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-6) * (1 + module.weight)


def qkv(layer: Any) -> tuple[Any, Any, Any]:
    return layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj


def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat(
        [
            x[..., :half] * cosine[..., :half] - x[..., half:] * sine[..., :half],
            x[..., half:] * cosine[..., half:] + x[..., :half] * sine[..., half:],
        ],
        -1,
    )
