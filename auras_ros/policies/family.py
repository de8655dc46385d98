"""What a family of policies is: which networks a manifest describes, and which policy its plans make.

A family is two functions of plain data; wrong descriptions are refused by name. families.py lists the families.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from auras_ros.policies.architecture import Architecture
from auras_ros.policies.policy import Policy


@dataclass(frozen=True)
class Trained:
    """What the networks were trained for.

    lower, upper: float64 [channels], what -1 and 1 of the networks mean in physical units; both kinds of statistics are
    this linear map (with mean and std: mean - std and mean + std). executed: (first, count) of the horizon's actions
    that make a chunk; the first belongs to the newest observation's instant; None: all. optional: keys of the manifest
    that only one family reads.
    """

    architecture: Architecture
    lower: torch.Tensor
    upper: torch.Tensor
    kind: str = "min_max"
    executed: tuple[int, int] | None = None
    optional: Mapping[str, Any] = field(default_factory=dict)

    @property
    def chunk(self) -> slice:
        """The horizon's actions that make a chunk: what a family's `finish` returns, of dimension 1."""
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
        """The physical size of 1 of the networks, float64 [channels]."""
        return (self.upper - self.lower) / 2


def unit(architecture: Architecture) -> Trained:
    """For networks whose numbers are the actions themselves, -1 to 1 in every channel."""
    ones = torch.ones(architecture.actions, dtype=torch.float64)
    return Trained(architecture, -ones, ones)


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
        """The networks of the manifest's descriptions, with random weights."""
        ...

    def policy(self, networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any]) -> LoadedPolicy:
        """The policy under the settings of one plan; the networks are shared."""
        ...


def known(settings: Mapping[str, Any], keys: Set[str] = frozenset(), owner: str = "key ") -> None:
    """Raises ValueError for an unknown setting."""
    for key in sorted(settings.keys() - keys):
        raise ValueError(f"{owner}'{key}' is unknown")


def check_keys(network: Any, keys: Set[str], optional: Set[str] = frozenset()) -> None:
    """Check that a manifest's `network` has these keys, and no others but the optional ones. Raises TypeError or
    ValueError."""
    if not isinstance(network, Mapping):
        raise TypeError(f"network: {network!r} is not an object")
    for key in sorted(keys - network.keys()):
        raise ValueError(f"network: '{key}' is missing")
    known(network, keys | optional, "network: ")


def counted(name: str, size: object) -> None:
    """Raises ValueError unless it is a whole number above zero."""
    if type(size) is not int or size < 1:
        raise ValueError(f"{name}: {size!r} is not a whole number above zero")
