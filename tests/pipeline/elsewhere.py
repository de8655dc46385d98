"""A device whose tensors lie elsewhere than the host's, as a GPU's do: torch's `meta` tensors stand for them. A stage's
Python runs at its capture and at no launch, as there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from auras_ros.device import Lane, Stage, staging
from auras_ros.device.cpu import CpuDevice
from auras_ros.device.uncaptured import listening
from auras_ros.pipeline.plan import Plan


class Elsewhere(CpuDevice):
    """Tensors without values, of which nothing can be read back."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors = torch.device("meta")
        self.captures = 0

    def capture(self, name: str, body: Callable[[], None], lane: Lane) -> Stage:
        self.captures += 1
        with torch.no_grad(), listening() as reasons:
            body()
        stage = super().capture(name, body if reasons else _replayed, lane)
        if reasons:
            self.uncaptured[name] = tuple(reasons)
        return stage


def _replayed() -> None:
    """No value comes of it: there is none to compute."""


def values_stay_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies to the host copy nothing, as there is nothing. Nor is a plan refused because such tensors are slow."""

    def copy(into: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
        for target, value in zip(into, values, strict=True):
            assert target.shape == value.shape
            if not value.is_meta:
                target.copy_(value)

    monkeypatch.setattr(staging, "_copy", copy)
    monkeypatch.setattr(Plan, "check_horizon", lambda *_: None)
