"""Casts a policy to another type, and inputs to the type of its weights (`checkpoints.dtype`)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

LIKE_WEIGHTS = "like_weights"  # an empty buffer of the weights' type, see `mark`


def cast(module: nn.Module, dtype: torch.dtype) -> None:
    """Cast the weights to another type, in place; buffers stay."""
    for weight in module.parameters():
        if weight.is_floating_point() and weight.dtype != dtype:
            weight.data = weight.data.to(dtype)
    for name, buffer in module.named_buffers():
        if name.rpartition(".")[2] == LIKE_WEIGHTS:
            buffer.data = buffer.data.to(dtype)


def mark(module: nn.Module, weights: nn.Module) -> None:
    """Give `module` an empty buffer with the type of these weights; `like_weights` reads it. (Reading a weight would
    keep it from being offloaded: it would count as read outside its own module.)"""
    first = next((each for each in weights.parameters() if each.is_floating_point()), None)
    dtype = torch.float32 if first is None else first.dtype
    device = None if first is None else first.device
    module.register_buffer(LIKE_WEIGHTS, torch.empty(0, dtype=dtype, device=device), persistent=False)


def like_weights(module: nn.Module, x: Tensor) -> Tensor:
    """`x` in the type of the weights that `module` was marked with; `x` itself if it has that type."""
    buffer: Tensor = getattr(module, LIKE_WEIGHTS)
    return x.to(buffer.dtype)
