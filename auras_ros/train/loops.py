"""What training loops share: the curve, the learning rate, the moving average of the weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from auras_ros.report.result import Say

REPORT_STEPS = 250


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


def cosine_share(step: int, steps: int, warmup: int) -> float:
    """Of the peak rate: up over `warmup` steps, then down along a cosine to a hundredth."""
    return min(1.0, (step + 1) / warmup) * (0.5 * (1 + math.cos(math.pi * step / steps)) + 0.01)


def fit(
    learner: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    loss_of: Callable[[], Tensor],
    steps: int,
    warmup: int,
    curve: Curve,
    progress: Say,
) -> nn.Module:
    """Step down the loss of random batches, from the optimizers' rates along a cosine; returns the moving average of
    the learner's weights. progress is told the smoothed loss."""
    mean, smooth = copy.deepcopy(learner), 0.0
    groups = [(group, group["lr"]) for optimizer in optimizers for group in optimizer.param_groups]
    trained = [parameter for group, _ in groups for parameter in group["params"]]
    for step in range(steps):
        for group, peak in groups:
            group["lr"] = peak * cosine_share(step, steps, warmup)
        loss = loss_of()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        for optimizer in optimizers:
            optimizer.step()
        average_into(mean, learner, step)
        smooth = float(loss.detach()) if step == 0 else 0.98 * smooth + 0.02 * float(loss.detach())
        if (step + 1) % REPORT_STEPS == 0:
            curve.add(step + 1, smooth)
            progress(f"step {step + 1}/{steps}, loss {smooth:.5f}")
    return mean


@torch.no_grad()
def average_into(mean: nn.Module, module: nn.Module, step: int) -> None:
    """One step of the exponential moving average of the weights, quicker at the start."""
    decay = min(0.999, (1 + step) / (10 + step))
    for averaged, parameter in zip(mean.parameters(), module.parameters(), strict=True):
        averaged.lerp_(parameter, 1 - decay)
