"""Normalisation of LeRobot's processors, as the linear maps that our manifest knows.

min_max: 2 (x - min) / (max - min) - 1; quantiles are the same with their bounds; mean_std: (x - mean) / (std + eps),
and back x * std + mean. Where min and max are equal, or the std is zero, nothing moved in the training data. The
reference then puts eps in the place of max - min, and the same is done here. A statistic that is missing or not finite,
and a range that is upside down, is refused by name: the reference continues with it, or without normalising, and a
robot would get nonsense.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError

MODES = {
    "MIN_MAX": ("min", "max"),
    "QUANTILES": ("q01", "q99"),
    "QUANTILE10": ("q10", "q90"),
    "MEAN_STD": ("mean", "std"),
}
Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Statistics:
    """Tensors by the statistic's name, for one feature. prefix: of the tensors' names in `file`, for errors."""

    file: Path
    prefix: str
    values: Mapping[str, Tensor]
    eps: float


@dataclass(frozen=True)
class FeatureNormalization:
    """A linear map of a feature's numbers, which are in physical units."""

    kind: str  # none, min_max or mean_std
    first: Numbers = ()  # min, or mean
    second: Numbers = ()  # max, or std
    eps: float = 0.0  # added to std for inputs; max - min of what never changed
    still: tuple[int, ...] = ()  # the indices of numbers that never changed in the training data

    @property
    def divisor(self) -> Numbers:
        """The divisor of (x - mean)."""
        return tuple(std + self.eps for std in self.second)

    def center_and_scale(self) -> tuple[Numbers, Numbers]:
        """(c, s) so that the normalised value is (x - c) / s; of min_max and mean_std."""
        if self.kind == "mean_std":
            return self.first, self.divisor
        pairs = list(zip(self.first, self.second, strict=True))
        return tuple((low + high) / 2 for low, high in pairs), tuple((high - low) / 2 for low, high in pairs)


def normalization(feature: str, mode: str, size: int, statistics: Statistics) -> FeatureNormalization:
    """The normalisation of a feature with `size` numbers, or colours. Raises CheckpointError."""
    if mode == "IDENTITY":
        return FeatureNormalization("none")
    if mode not in MODES:
        listed = ", ".join(["IDENTITY", *MODES])
        raise CheckpointError(
            f"{statistics.file}: normalization of '{feature}': {mode!r} is not known; known: {listed}"
        )
    names = MODES[mode]
    first, second = (_numbers(feature, name, size, statistics) for name in names)
    for index, (one, other) in enumerate(zip(first, second, strict=True)):
        where = f"{statistics.file}: '{statistics.prefix}{names[1]}'[{index}] of '{feature}'"
        if mode == "MEAN_STD" and other < 0:
            raise CheckpointError(f"{where}: std {other} is below zero")
        if mode != "MEAN_STD" and one > other:
            raise CheckpointError(f"{where}: {names[1]} {other} is below {names[0]} {one}")
    if mode == "MEAN_STD":
        still = tuple(index for index, std in enumerate(second) if std == 0)
        return FeatureNormalization("mean_std", first, second, statistics.eps, still)
    still = tuple(index for index, (low, high) in enumerate(zip(first, second, strict=True)) if low == high)
    upper = tuple(high + statistics.eps if index in still else high for index, high in enumerate(second))
    return FeatureNormalization("min_max", first, upper, statistics.eps, still)


def _numbers(feature: str, name: str, size: int, statistics: Statistics) -> Numbers:
    tensor = statistics.values.get(name)
    what = f"{statistics.file}: tensor '{statistics.prefix}{name}'"
    if tensor is None:
        raise CheckpointError(f"{what}, which normalises '{feature}', is missing")
    values = tensor.double().flatten()
    if values.shape != (size,):
        raise CheckpointError(f"{what} has shape {list(tensor.shape)}, expected {size} numbers for '{feature}'")
    if not bool(torch.isfinite(values).all()):
        raise CheckpointError(f"{what} holds NaN or infinity: '{feature}' was never given its statistics")
    return tuple(values.tolist())
