"""In which type a model's weights are kept and multiplied, chosen by name.

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
