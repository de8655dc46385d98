"""What policies that are modules share: their sizes, and what their networks' numbers mean."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from auras_ros.policies.architecture import Architecture
from auras_ros.policies.family import Trained


class ModulePolicy(nn.Module):
    """A policy of networks, for inputs of this architecture."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture

    def example(self, batch: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Random images and state of this policy's shapes."""
        return self.architecture.example(batch, generator)


class NormalisedPolicy(ModulePolicy):
    """A policy whose networks' numbers are a linear map of actions in physical units (`Trained`). Channels that the
    robot does not have are left out."""

    def __init__(self, trained: Trained) -> None:
        super().__init__(trained.architecture)
        self._chunk = trained.chunk
        meant = trained.lower, trained.upper, trained.center, trained.scale  # of -1, 1, 0, and of a step of 1
        self._bounds = [each.double() for each in meant]

    def physical(self, numbers: Tensor) -> Tensor:
        """The networks' numbers [B, H, A] -> actions [B, horizon, channels], float64."""
        _, _, center, scale = self._bounds
        return center + scale * numbers[:, self._chunk, : len(center)].double()

    def placed(self, values: Tensor, normalise: bool, shape: tuple[int, ...]) -> Tensor:
        """The inverse of `physical`: [B, horizon, channels] -> float32 [B, *shape], zero outside the chunk. normalise:
        from physical units to the networks'."""
        _, _, center, scale = self._bounds
        values = values.to(center.device)
        if normalise:
            values = torch.where(scale == 0, 0.0, (values - center) / torch.where(scale == 0, 1.0, scale))
        placed = torch.zeros((len(values), *shape), device=values.device)
        placed[:, self._chunk, : len(center)] = values.float()
        return placed

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> NormalisedPolicy:
        """The normalisation follows the networks to their device, and stays float64."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = fn(torch.empty(0, device=self._bounds[0].device)).device
        self._bounds = [each.to(device) for each in self._bounds]
        return self
