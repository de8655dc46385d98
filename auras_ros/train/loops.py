"""What training loops share: the curve, the learning rate, the moving average of the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class Curve:
    """Loss against step, one row a report, grouped by stage."""

    rows: list[dict[str, float | str]] = field(default_factory=list)
    _stage: str = ""

    def stage(self, name: str) -> None:
        """Rows from here on belong to stage `name`; rows of an interrupted try at it are dropped."""
        self._stage = name
        self.rows[:] = [row for row in self.rows if row["stage"] != name]

    def add(self, step: int, loss: float, **more: float) -> None:
        self.rows.append({"stage": self._stage, "step": step, "loss": loss, **more})


def cosine_rate(optimizer: torch.optim.Optimizer, peak: float, step: int, steps: int, warmup: int) -> None:
    """Set the rate of this step: up to `peak` over `warmup` steps, then down along a cosine to a hundredth."""
    rate = peak * min(1.0, (step + 1) / warmup) * (0.5 * (1 + math.cos(math.pi * step / steps)) + 0.01)
    for group in optimizer.param_groups:
        group["lr"] = rate


@torch.no_grad()
def average_into(mean: nn.Module, module: nn.Module, step: int) -> None:
    """One step of the exponential moving average of the weights, quicker at the start."""
    decay = min(0.999, (1 + step) / (10 + step))
    for averaged, parameter in zip(mean.parameters(), module.parameters(), strict=True):
        averaged.lerp_(parameter, 1 - decay)
