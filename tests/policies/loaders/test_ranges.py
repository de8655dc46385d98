"""Statistics against the contract: channels in another order, or in other units, are seen where nothing agrees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from auras_ros.action import ChannelKind, HoldPolicy
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.loaders.open import load
from auras_ros.policies.loaders.ranges import check_ranges, ranges
from tests.policies import tiny
from tests.policies.loaders.lerobot_tiny import copied, edit_json, tiny_backbones

__all__ = ["tiny_backbones"]
SOURCE = Path("folder")


def told(statistics: str, first: float, second: float, **changes: object) -> Checkpoint:
    """A checkpoint whose channel 1 has these statistics, and another contract. first, second: of -1 and 1."""
    made = tiny.checkpoint()
    channel = made.contract.channels[1]
    lower, upper = made.trained.lower.clone(), made.trained.upper.clone()
    lower[1], upper[1] = first, second
    other = replace(channel, lower=-4.0, upper=4.0, **changes)  # type: ignore[arg-type]
    channels = (made.contract.channels[0], other, *made.contract.channels[2:])
    trained = replace(made.trained, lower=lower, upper=upper, kind=statistics)
    return replace(made, contract=replace(made.contract, channels=channels), trained=trained)


@pytest.mark.parametrize(("first", "second"), [(4.5, 90.0), (-90.0, -4.5)])
def test_a_range_wholly_outside_the_limits_is_refused(first: float, second: float) -> None:
    checkpoint = told("min_max", first, second)
    name = checkpoint.contract.names[1]
    with pytest.raises(
        CheckpointError, match=rf"folder: channel 1, '{name}': statistics {first:g} to {second:g}, limits -4 to 4 "
    ):
        check_ranges(checkpoint, SOURCE)


@pytest.mark.parametrize(("first", "second"), [(3.9, 90.0), (-90.0, -3.9), (-90.0, 90.0), (0.0, 0.1)])
def test_a_range_that_reaches_into_the_limits_is_not(first: float, second: float) -> None:
    check_ranges(told("min_max", first, second), SOURCE)


def test_of_mean_and_deviation_three_deviations_count() -> None:
    check_ranges(told("mean_std", 6.0, 8.0), SOURCE)  # 7 with 1: from 4 on
    with pytest.raises(CheckpointError, match=r"statistics 4\.1 to 10\.1"):
        check_ranges(told("mean_std", 6.1, 8.1), SOURCE)


def test_what_cannot_be_compared_is_not() -> None:
    """Numbers that no statistics change; increments beside the limits of a set point."""
    checkpoint = told("min_max", -1.0, 1.0)
    channel = checkpoint.contract.channels[1]
    far = replace(channel, lower=1000.0, upper=2000.0, hold=HoldPolicy.LAST)
    channels = (checkpoint.contract.channels[0], far, *checkpoint.contract.channels[2:])
    check_ranges(replace(checkpoint, contract=replace(checkpoint.contract, channels=channels)), SOURCE)
    check_ranges(told("min_max", 4.5, 90.0, kind=ChannelKind.DELTA_ORIGIN), SOURCE)
    assert "statistics none, limits -4 to 4" in str(ranges(checkpoint)[1])
    assert torch.equal(checkpoint.trained.lower[1], torch.tensor(-1.0, dtype=torch.float64))


@pytest.mark.usefixtures("tiny_backbones")
def test_a_folder_for_another_robot_is_refused(tmp_path: Path) -> None:
    folder = copied("lerobot_act", tmp_path)
    edit_json(folder / "robot.json", lambda robot: robot["action"]["channels"][2].update(lower=1000.0, upper=2000.0))
    with pytest.raises(
        CheckpointError, match=r"channel 2, 'wrist': statistics \S+ to \S+, limits 1000 to 2000 rad: they"
    ):
        load(folder)
