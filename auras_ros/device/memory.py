"""A process's use of device memory, as torch's allocator counts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def device_bytes(tensors: torch.device) -> tuple[int, int]:
    """GPU memory of this process: (in tensors, reserved from the driver); zeros on a CPU.

    The second is the larger one: it includes what captured graphs hold for their temporaries. What CUDA itself uses
    (its context, its libraries) is in neither.
    """
    if tensors.type != "cuda":
        return 0, 0
    import torch

    torch.cuda.synchronize(tensors)
    return int(torch.cuda.memory_allocated(tensors)), int(torch.cuda.memory_reserved(tensors))
