"""The statistics of the actions beside the limits of the robot's contract.

Numbers alone cannot tell one joint from another, or degrees from radians. A range wholly outside its channel's limits
is an error. It is refused, because every action would be clipped to the same limit. This module changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from auras_ros.action import Channel, ChannelKind
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.policies.checkpoint import Checkpoint

SPREAD = 3  # standard deviations about the mean: nearly all of what a policy was trained on
ELSEWHERE = (ChannelKind.DELTA_ORIGIN,)  # its limits are those of the set point, which includes the origin's state


@dataclass(frozen=True)
class Range:
    """Of one channel, in its unit. lower, upper: min and max (or quantiles), or the mean minus and plus SPREAD standard
    deviations; None if the networks' numbers are the actions themselves, so that there are no statistics."""

    index: int
    channel: Channel
    lower: float | None
    upper: float | None

    def __str__(self) -> str:
        told = "none" if self.lower is None else f"{self.lower:.6g} to {self.upper:.6g}"
        limits = f"{self.channel.lower:.6g} to {self.channel.upper:.6g}"
        said = f"channel {self.index}, '{self.channel.name}': statistics {told}, limits {limits} {self.channel.unit}"
        return f"{said}  <- beyond its limits by {self.beyond:.3g}" if self.beyond and not self.outside else said

    @property
    def beyond(self) -> float:
        """By how much the statistics exceed the limits, in the channel's unit; 0 if they do not."""
        if self.lower is None or self.upper is None or self.channel.kind in ELSEWHERE:
            return 0.0
        return max(0.0, self.channel.lower - self.lower, self.upper - self.channel.upper)

    @property
    def outside(self) -> bool:
        """Whether no part of it is within the limits."""
        if self.lower is None or self.upper is None or self.channel.kind in ELSEWHERE:
            return False
        return self.upper < self.channel.lower or self.lower > self.channel.upper


def ranges(checkpoint: Checkpoint) -> list[Range]:
    """Of each channel, in the contract's order."""
    trained, made = checkpoint.trained, []
    for index, channel in enumerate(checkpoint.contract.channels):
        center, scale = float(trained.center[index]), float(trained.scale[index])
        spread = SPREAD * scale if trained.kind == "mean_std" else scale
        as_it_is = trained.kind == "min_max" and (center, scale) == (0.0, 1.0)
        made.append(Range(index, channel, *((None, None) if as_it_is else (center - spread, center + spread))))
    return made


def check_ranges(checkpoint: Checkpoint, source: Path) -> None:
    """Check that each channel's statistics overlap its limits. Raises CheckpointError."""
    for each in ranges(checkpoint):
        if each.outside:
            raise CheckpointError(
                f"{source}: {each}: they do not overlap; are robot.json's channels in the checkpoint's order, "
                f"and in its units?"
            )
