"""The type in which a model's weights are stored and multiplied, chosen by name.

Only weights follow the choice. Buffers (statistics, sampler tables, masks, positions) keep their type, so that
normalisation and sampling are computed in float32, whatever the type of the weights.
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


def runtime_dtype(name: str, device: str, stored: torch.dtype) -> torch.dtype:
    """The type in which weights are kept. device: cpu or cuda. stored: the type in the checkpoint's file.

    `auto` rounds no weight. On a GPU it is the stored type if that is half precision, else float32. On a CPU it is
    float32: without AVX-512, bfloat16 multiplies five times more slowly. Raises CheckpointError if the name is unknown.
    """
    if name not in DTYPES:
        raise CheckpointError(f"dtype {name!r}: must be one of {', '.join(DTYPES)}")
    if name != "auto":
        dtype: torch.dtype = getattr(torch, name)
        return dtype
    return stored if device == "cuda" and stored in HALF else torch.float32


def stored_dtype(tensors: Mapping[str, Tensor]) -> torch.dtype:
    """The floating-point type that most of a file's numbers have; float32 if there are none. A mapping that reads
    tensors on demand has a method `kinds`: (type, numbers) of each tensor, without reading it."""
    kinds = getattr(tensors, "kinds", None)
    found = [(each.dtype, each.numel()) for each in tensors.values()] if kinds is None else kinds()
    counts: Counter[torch.dtype] = Counter()
    for dtype, count in found:
        if dtype.is_floating_point:
            counts[dtype] += count
    return max(counts, key=lambda dtype: counts[dtype], default=torch.float32)


@contextmanager
def weights_in(dtype: torch.dtype) -> Iterator[None]:
    """Modules that this thread constructs in this context have their weights in this type, layer by layer: a large
    model is never in memory twice, nor in float32."""
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
