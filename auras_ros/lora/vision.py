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

    def __init__(self, model: nn.Module, names: Iterable[str], swapped: nn.ModuleList | None = None) -> None:
        """names: of those layers. The model's modules are in the form in which they compute. swapped: the encoder's
        layers if they will be swapped (`follow`)."""
        self._resident: Resident | None = None
        self._swapped, self._layer = swapped, 0  # the one that runs
        stack = next((f"{name}." for name, each in model.named_modules() if each is swapped), None)
        for name in names:
            known = name
            if stack is not None and name.startswith(stack):
                known = f"{stack}{{}}.{name.removeprefix(stack).partition('.')[2]}"
            model.get_submodule(name).register_forward_hook(partial(self._add, known))

    def follow(self) -> None:
        """Once layers are swapped: a module computes several of them."""
        for number, each in enumerate(self._swapped or ()):
            each.register_forward_pre_hook(partial(self._begin, number))

    def enter(self, resident: Resident | None) -> None:
        """Before an image: whose it is."""
        self._resident = resident

    def _begin(self, number: int, *_: object) -> None:
        self._layer = number

    def _add(self, name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Any:
        """name: with {} for the number of a layer that may be swapped."""
        factors = None if self._resident is None else self._resident.vision.get(name.format(self._layer))
        return None if factors is None else output + F.linear(F.linear(inputs[0], factors.a), factors.b)
