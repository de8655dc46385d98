"""Adapters of the vision encoder and of what follows it. One image is one request's, so there is one adapter at a time,
and it is never merged."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from auras_ros.lora.slots import Resident


class VisionAdapter:
    """Adds to the outputs of the model's linear layers outside of its decoder."""

    def __init__(self, model: nn.Module, layers: Iterable[str]) -> None:
        """layers: their names. The model's modules are in the form in which they compute."""
        self._resident: Resident | None = None
        for name in layers:
            model.get_submodule(name).register_forward_hook(partial(self._add, name))

    def enter(self, resident: Resident | None) -> None:
        """Before an image: whose it is."""
        self._resident = resident

    def _add(self, name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Any:
        factors = None if self._resident is None else self._resident.vision.get(name)
        return None if factors is None else output + F.linear(F.linear(inputs[0], factors.a), factors.b)
