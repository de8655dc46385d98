"""The engine's vision encoder with swapped layers (Nova III-E): what is swapped, and what its forward is timed on."""

from __future__ import annotations

from concurrent.futures import Executor
from pathlib import Path

import numpy as np
import torch

from auras_ros.checkpoints.vlm.open import VlmCheckpoint
from auras_ros.device.lane import Device
from auras_ros.device.swap import SwapPlan, swap_layers
from auras_ros.engine.options import EngineOptions
from auras_ros.heap import trim_heap

TIMED_PX = (480, 640)  # height and width of the image on which the encoder is timed


def swap_vision(checkpoint: VlmCheckpoint, options: EngineOptions, device: Device, executor: Executor) -> SwapPlan:
    """Swap the encoder's layers, once they are on `device` in the form in which they compute. executor: runs the vision
    stage. Raises DeviceError, naming the option."""
    model = checkpoint.model
    image = np.random.default_rng(0).integers(0, 256, (*TIMED_PX, 3), np.uint8)
    prepared = checkpoint.prompts.image(image)
    like = next(model.vision_layers.parameters())

    @torch.no_grad()
    def see() -> None:
        (seen,) = model.see(prepared.pixels.to(like.device, like.dtype), [prepared.grid])
        seen.tokens.sum().item()  # a GPU is waited for

    lane = device.lane("swap", None if options.swap_core < 0 else [options.swap_core], threads=1)
    folder = Path(options.swap_folder) if options.swap_folder else None
    plan = swap_layers(
        model.vision_layers, options.swap_layers, folder, device, lane, lambda: executor.submit(see).result()
    )
    trim_heap()
    return plan
