"""In which type a policy's weights are kept and multiplied, chosen by name.

Only weights follow the choice. Buffers (statistics, samplers' tables, masks, positions) stay as they are made, so that
normalisation and sampling are computed in float32 whatever the weights are.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from auras_ros.checkpoints.errors import CheckpointError

DTYPES = ("auto", "float32", "bfloat16", "float16")
HALF = (torch.bfloat16, torch.float16)
LIKE_WEIGHTS = "like_weights"  # an empty buffer of the weights' type, see `mark`


def runtime_dtype(name: str, device: str, stored: torch.dtype) -> torch.dtype:
    """The type that weights are kept in. device: cpu or cuda. stored: that of the checkpoint's file.

    `auto` rounds no weight: on a GPU it is the stored type, where that is half precision; on a CPU float32, because one
    without AVX-512 multiplies bfloat16 five times more slowly. Raises CheckpointError for a name that is not known.
    """
    if name not in DTYPES:
        raise CheckpointError(f"dtype {name!r}: must be one of {', '.join(DTYPES)}")
    if name != "auto":
        dtype: torch.dtype = getattr(torch, name)
        return dtype
    return stored if device == "cuda" and stored in HALF else torch.float32


def stored_dtype(tensors: Mapping[str, Tensor]) -> torch.dtype:
    """The type that most of a file's numbers have; float32 where there are none. A mapping that reads tensors when they
    are asked for has a method `kinds`, (type, numbers) of each, that reads none."""
    kinds = getattr(tensors, "kinds", None)
    found = [(each.dtype, each.numel()) for each in tensors.values()] if kinds is None else kinds()
    counts: Counter[torch.dtype] = Counter()
    for dtype, count in found:
        if dtype.is_floating_point:
            counts[dtype] += count
    return max(counts, key=lambda dtype: counts[dtype], default=torch.float32)


@contextmanager
def weights_in(dtype: torch.dtype) -> Iterator[None]:
    """Modules that this thread makes meanwhile have their weights in this type, one layer after the other: a large one
    never lies in memory twice, nor in float32."""
    thread = threading.get_ident()

    def register(_module: nn.Module, _name: str, weight: nn.Parameter) -> Any:
        if threading.get_ident() != thread or weight is None or not weight.is_floating_point() or weight.dtype == dtype:
            return None
        return type(weight)(weight.detach().to(dtype), weight.requires_grad)

    handle = register_module_parameter_registration_hook(register)
    try:
        yield
    finally:
        handle.remove()


def cast(module: nn.Module, dtype: torch.dtype) -> None:
    """Weights in another type, in place; buffers stay."""
    for weight in module.parameters():
        if weight.is_floating_point() and weight.dtype != dtype:
            weight.data = weight.data.to(dtype)
    for name, buffer in module.named_buffers():
        if name.rpartition(".")[2] == LIKE_WEIGHTS:
            buffer.data = buffer.data.to(dtype)


def mark(module: nn.Module, weights: nn.Module) -> None:
    """Give `module` an empty buffer of the type that these weights have; `like_weights` reads it. (Who asked a weight
    would keep it from being offloaded: it would count as read outside its own module.)"""
    first = next((each for each in weights.parameters() if each.is_floating_point()), None)
    dtype = torch.float32 if first is None else first.dtype
    device = None if first is None else first.device
    module.register_buffer(LIKE_WEIGHTS, torch.empty(0, dtype=dtype, device=device), persistent=False)


def like_weights(module: nn.Module, x: Tensor) -> Tensor:
    """`x` in the type of the weights that `module` was marked with; itself where it is of that type."""
    buffer: Tensor = getattr(module, LIKE_WEIGHTS)
    return x.to(buffer.dtype)
