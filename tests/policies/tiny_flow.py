"""A flow matching policy small enough for exact tests: pi0's layout, random weights, two cameras, three channels."""

from __future__ import annotations

import torch
from torch import Tensor

from auras_ros.models.pi0 import Pi0
from auras_ros.models.presets import PI0S
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.family import Trained
from auras_ros.policies.flow import FlowMatchingPolicy
from auras_ros.policies.flow_prefix import FlowPrefix
from tests.models import published

CONFIG = PI0S["pi0-tiny"]
PROMPT = torch.tensor([2, 77, 140, 9])
CENTER, SCALE = torch.tensor([1.0, -2.0, 0.25]), torch.tensor([0.5, 3.0, 10.0])
SIDE = CONFIG.vision.image_px
SHAPE = Architecture("tiny-flow", 2, (SIDE, SIDE), 2, CONFIG.state, CONFIG.horizon, len(CENTER))
TRAINED = Trained(SHAPE, (CENTER - SCALE).double(), (CENTER + SCALE).double())


def tiny_flow(dtype: torch.dtype = torch.float32, steps: int = 10, limit: int | None = None) -> FlowMatchingPolicy:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = published.randomise(Pi0(CONFIG))
    assert isinstance(model, Pi0)
    return FlowMatchingPolicy(FlowPrefix(model, PROMPT, limit), TRAINED, steps).eval().to(dtype)


def observed(rows: int, seed: int = 1, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    images, state = SHAPE.example(rows, torch.Generator().manual_seed(seed))
    return images.to(dtype), state.to(dtype)


def noise_of(rows: int, seed: int = 2, dtype: torch.dtype = torch.float32) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(rows, CONFIG.horizon, CONFIG.actions, generator=random, dtype=torch.float64).to(dtype)
