"""What a process holds of a device's memory, as torch's allocator counts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def device_bytes(tensors: torch.device) -> tuple[int, int]:
    """(in tensors, taken from the driver) of the GPU's memory by this process; zeros on a CPU.

    The second is the larger one: what captured graphs hold for their temporaries is in it and in no tensor. What CUDA
    itself takes (its context, its libraries) is in neither.
    """
    if tensors.type != "cuda":
        return 0, 0
    import torch

    torch.cuda.synchronize(tensors)
    return int(torch.cuda.memory_allocated(tensors)), int(torch.cuda.memory_reserved(tensors))
