"""What a family of policies is: which networks a manifest describes, and which policy its plans make.

A family is two functions of plain data; wrong descriptions are refused by name. Which there are is families.py's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from auras_ros.policies.architecture import Architecture
from auras_ros.policies.denoising import TRAINING_STEPS, Prediction
from auras_ros.policies.policy import Policy


@dataclass(frozen=True)
class Trained:
    """What the networks were trained for.

    lower, upper: float64 [channels], what -1 and 1 of the networks mean in physical units; both kinds of statistics
    are this linear map (with mean and std, mean - std and mean + std). executed: the first of the horizon's actions
    that make a chunk, which is that of the newest observation's instant, and how many they are; None: all.
    """

    architecture: Architecture
    lower: torch.Tensor
    upper: torch.Tensor
    prediction: Prediction = "sample"
    training_steps: int = TRAINING_STEPS
    kind: str = "min_max"
    executed: tuple[int, int] | None = None

    @property
    def chunk(self) -> slice:
        """Which of the horizon's actions make a chunk: what a family's `finish` gives, of dimension 1."""
        if self.executed is None:
            return slice(0, self.architecture.horizon)
        first, count = self.executed
        return slice(first, first + count)

    @property
    def center(self) -> torch.Tensor:
        """What 0 of the networks means, float64 [channels]."""
        return (self.lower + self.upper) / 2

    @property
    def scale(self) -> torch.Tensor:
        """What 1 of the networks is worth, float64 [channels]."""
        return (self.upper - self.lower) / 2


class LoadedPolicy(Policy, Protocol):
    """A policy that is a module, as every family makes it."""

    def to(self, device: torch.device) -> Any: ...

    def eval(self) -> Any: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def example(self, batch: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Random images and state of the policy's shapes."""
        ...


class Family(Protocol):
    """`networks` raises TypeError, ValueError or RuntimeError, `policy` KeyError, TypeError or ValueError, by name."""

    def networks(self, encoder: Any, network: Any, architecture: Architecture) -> nn.ModuleDict:
        """With weights still random, from the manifest's descriptions."""
        ...

    def policy(self, networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any]) -> LoadedPolicy:
        """Under the settings of one plan; the networks are shared."""
        ...


def known(settings: Mapping[str, Any], keys: set[str]) -> None:
    """Raises ValueError for a setting that is none of these."""
    for key in sorted(settings.keys() - keys):
        raise ValueError(f"key '{key}' is unknown")
