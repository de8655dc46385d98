"""The input of a flow matching policy's action expert: the public context as one tensor, and how it is unpacked.

It holds the keys and values of images and prompt in every layer, the robot's state if the expert takes it, and a mask
of the prefix's tokens. Prompts are padded to a fixed length, so that shapes do not depend on the prompt. Padding is
masked and counts in no position, as if it were not there. Nothing here computes a network.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from auras_ros.models.llama import LlamaConfig


class PrefixKV(NamedTuple):
    """kept [B, layers, 2, kv_heads, P, head_dim], keys before values; valid bool [B, P]."""

    kept: Tensor
    valid: Tensor


def padded(state: Tensor, numbers: int, model: str) -> Tensor:
    """State [B, D], padded with zeros to `numbers`. Raises ValueError if it has more."""
    missing = numbers - state.shape[-1]
    if missing < 0:
        raise ValueError(f"{model}: state: {state.shape[-1]} numbers, but the network takes {numbers}")
    return F.pad(state, (0, missing))


def pack(kept: list[Tensor], state: Tensor, valid: Tensor) -> Tensor:
    """Each layer's keys and values [B, 2, kv_heads, P, head_dim], state [B, D] and valid [B, P] -> context [B, C]."""
    parts = [torch.stack(kept, 1).flatten(1), state, valid]
    return torch.cat([part.to(kept[0].dtype) for part in parts], 1)


def unpack(context: Tensor, config: LlamaConfig, states: int) -> tuple[PrefixKV, Tensor]:
    """-> (prefix, state [B, states]); config: of the decoder whose keys and values these are."""
    of_a_token = 2 * config.layers * config.kv_heads * config.size_of_head
    tokens = (context.shape[1] - states) // (of_a_token + 1)
    kept, state, valid = context.split([tokens * of_a_token, states, tokens], 1)
    shape = (config.layers, 2, config.kv_heads, tokens, config.size_of_head)
    return PrefixKV(kept.unflatten(1, shape), valid > 0.5), state


def places(valid: Tensor) -> Tensor:
    """Positions of the prefix's tokens, int64 [B, P]; only valid ones count."""
    return (valid.long().cumsum(1) - 1).clamp(min=0)


def places_after(valid: Tensor, tokens: int) -> Tensor:
    """Positions of `tokens` tokens that follow the prefix, int64 [B, tokens]."""
    return valid.long().sum(1, keepdim=True) + torch.arange(tokens, device=valid.device)


def visible_after(valid: Tensor, own: Tensor) -> Tensor:
    """What the tokens after the prefix see of it and of themselves, bool [B, 1, T, P + T]. own: bool [T, T]."""
    tokens = len(own)
    before = valid[:, None].expand(-1, tokens, -1)
    return torch.cat([before, own.expand(len(valid), -1, -1)], 2)[:, None]
