"""Token ids to actions and back: 256 bins of a channel's range, numbered as in OpenVLA and in LLaRA's RT-2.

Decoding stays on the device and reads nothing back. An id that is not an action decodes to the nearest one that is, as
in the published decoders of OpenVLA. The contract says what a channel means, not this module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

BINS = 256


class ActionTokens(Protocol):
    """Ids int64 [..., channels] <-> actions float64 [..., channels] in physical units."""

    def to(self, device: torch.device | str) -> ActionTokens:
        """The same, on another device."""
        ...

    def decode(self, ids: Tensor) -> Tensor: ...

    def encode(self, actions: Tensor) -> Tensor:
        """The ids nearest to the actions; values outside the range are clipped to its ends."""
        ...


@dataclass(frozen=True)
class ActionStatistics:
    """Quantiles of each channel's training actions. If `mask` is false, the channel was not normalised.

    Raises ValueError, naming the statistic and the channel by its number.
    """

    q01: tuple[float, ...]
    q99: tuple[float, ...]
    mask: tuple[bool, ...]

    def __post_init__(self) -> None:
        for name in ("q99", "mask"):
            if len(getattr(self, name)) != len(self.q01):
                found = f"{len(getattr(self, name))} numbers, but q01 has {len(self.q01)}"
                raise ValueError(f"action statistics: {name}: {found}")
        if not self.q01:
            raise ValueError("action statistics: q01: is empty")
        for i, (low, high, normalised) in enumerate(zip(self.q01, self.q99, self.mask, strict=True)):
            for name, value in (("q01", low), ("q99", high)):
                if not math.isfinite(value):
                    raise ValueError(f"action statistics: {name}[{i}]: {value} is not finite")
            if normalised and low >= high:
                raise ValueError(f"action statistics: q01[{i}]: {low} is not below q99[{i}], {high}")

    @classmethod
    def of(cls, statistics: Mapping[str, Any]) -> ActionStatistics:
        """One data set's `action` entry of an OpenVLA folder's `norm_stats`; without `mask` all are normalised."""
        q01, q99 = _numbers(statistics, "q01"), _numbers(statistics, "q99")
        mask = statistics.get("mask", [True] * len(q01))
        if not isinstance(mask, Sequence) or not all(isinstance(each, bool) for each in mask):
            raise ValueError(f"action statistics: mask: {mask!r} is not a list of true and false")
        return cls(q01, q99, tuple(mask))


class OpenVlaTokens:
    """The last 256 ids of the vocabulary, counted down (Kim et al. 2024, section 3.2): id = vocabulary - number.

    Numbers 1 to 256 are 256 edges, spaced evenly from -1 to 1, with 255 bins between them. Only the value 1 has number
    256, which decodes like 255. A number stands for its bin's centre, which q01 and q99 scale back to physical units.
    vocabulary: of the tokenizer, 32000, not of the embedding, which is padded.
    """

    def __init__(self, statistics: ActionStatistics, vocabulary: int = 32000) -> None:
        self.statistics, self.vocabulary = statistics, vocabulary
        self.ids = range(vocabulary - BINS, vocabulary)
        self._edges = torch.arange(BINS, dtype=torch.float64) * (2 / (BINS - 1)) - 1
        low, high = (torch.tensor(q, dtype=torch.float64) for q in (statistics.q01, statistics.q99))
        self._low, self._span = low, high - low
        self._normalised = torch.tensor(statistics.mask)

    def to(self, device: torch.device | str) -> OpenVlaTokens:
        """The same, on another device."""
        moved = OpenVlaTokens(self.statistics, self.vocabulary)
        for name in ("_edges", "_low", "_span", "_normalised"):
            setattr(moved, name, getattr(self, name).to(device))
        return moved

    def decode(self, ids: Tensor) -> Tensor:
        """Raises ValueError if the number of channels differs."""
        _check_channels(ids, len(self._low))
        number = (self.vocabulary - ids).clamp(1, BINS - 1)
        centre = (2 * number - 1).double() / (BINS - 1) - 1
        return torch.where(self._normalised, 0.5 * (centre + 1) * self._span + self._low, centre)

    def encode(self, actions: Tensor) -> Tensor:
        """Raises ValueError if the number of channels differs."""
        _check_channels(actions, len(self._low))
        actions = actions.double()
        scaled = torch.where(self._normalised, 2 * (actions - self._low) / self._span - 1, actions)
        return self.vocabulary - torch.bucketize(scaled.clamp(-1, 1), self._edges, right=True)


class Rt2Tokens:
    """Ids from 31000 on (LLaRA's RT-2 style): id = 31000 + round(255 * share of the channel's range).

    lower, upper: each channel's range in physical units. Raises ValueError, naming the bound and the channel.
    """

    def __init__(self, lower: Sequence[float], upper: Sequence[float], first: int = 31000, bins: int = BINS) -> None:
        if bins < 2:
            raise ValueError(f"rt2 tokens: bins: {bins} is less than 2")
        if len(lower) != len(upper) or not lower:
            raise ValueError(f"rt2 tokens: {len(lower)} lower bounds and {len(upper)} upper ones")
        for i, (low, high) in enumerate(zip(lower, upper, strict=True)):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ValueError(f"rt2 tokens: lower[{i}]: {low} is not below upper[{i}], {high}")
        self.lower, self.upper = tuple(lower), tuple(upper)
        self.ids, self._last = range(first, first + bins), bins - 1
        self._lower = torch.tensor(self.lower, dtype=torch.float64)
        self._span = torch.tensor(self.upper, dtype=torch.float64) - self._lower

    def to(self, device: torch.device | str) -> Rt2Tokens:
        """The same, on another device."""
        moved = Rt2Tokens(self.lower, self.upper, self.ids.start, len(self.ids))
        moved._lower, moved._span = self._lower.to(device), self._span.to(device)
        return moved

    def decode(self, ids: Tensor) -> Tensor:
        """Raises ValueError if the number of channels differs."""
        _check_channels(ids, len(self._lower))
        share = (ids - self.ids.start).clamp(0, self._last).double() / self._last
        return self._lower + share * self._span

    def encode(self, actions: Tensor) -> Tensor:
        """Raises ValueError if the number of channels differs."""
        _check_channels(actions, len(self._lower))
        share = ((actions.double() - self._lower) / self._span).clamp(0, 1)
        return self.ids.start + (share * self._last).round().long()


def _check_channels(tensor: Tensor, channels: int) -> None:
    if tensor.dim() == 0 or tensor.shape[-1] != channels:
        raise ValueError(f"action tokens: shape {list(tensor.shape)}, expected [..., {channels}]")


def _numbers(statistics: Mapping[str, Any], name: str) -> tuple[float, ...]:
    values = statistics.get(name)
    if values is None:
        raise ValueError(f"action statistics: {name}: missing")
    if not isinstance(values, Sequence) or not all(
        isinstance(each, (int, float)) and not isinstance(each, bool) for each in values
    ):
        raise ValueError(f"action statistics: {name}: {values!r} is not a list of numbers")
    return tuple(float(each) for each in values)
