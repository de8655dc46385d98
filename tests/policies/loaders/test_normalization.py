"""LeRobot's normalisation modes as linear maps, against the formulas that its processors compute."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.policies.loaders.normalization import FeatureNormalization, Statistics, normalization

VALUES = {
    name: torch.tensor([low, low + 2.0]) for low, name in enumerate(["min", "q01", "q10", "mean", "q90", "q99", "max"])
}
EPS = 0.125


def made(mode: str, **changes: torch.Tensor) -> FeatureNormalization:
    values = {**VALUES, "std": torch.tensor([0.5, 0.25]), **changes}
    return normalization("state", mode, 2, Statistics(Path("stats"), "state.", values, EPS))


@pytest.mark.parametrize(("mode", "low", "high"), [("MIN_MAX", 0, 6), ("QUANTILES", 1, 5), ("QUANTILE10", 2, 4)])
def test_bounds_become_minus_one_and_one(mode: str, low: float, high: float) -> None:
    found = made(mode)
    assert (found.kind, found.first, found.second) == ("min_max", (low, low + 2.0), (high, high + 2.0))
    center, scale = found.center_and_scale()
    assert [(low - center[0]) / scale[0], (high - center[0]) / scale[0]] == [-1, 1]


def test_mean_and_deviation_have_their_epsilon_on_the_way_in_alone() -> None:
    found = made("MEAN_STD")
    assert (found.kind, found.first, found.second) == ("mean_std", (3.0, 5.0), (0.5, 0.25))
    assert found.divisor == (0.625, 0.375)
    assert found.center_and_scale() == (found.first, found.divisor)


def test_identity_needs_no_statistics() -> None:
    assert normalization("x", "IDENTITY", 3, Statistics(Path("stats"), "x.", {}, 0)).kind == "none"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(("mode", "name"), [("MIN_MAX", "max"), ("MEAN_STD", "std"), ("MEAN_STD", "mean")])
def test_a_statistic_that_is_not_finite_is_refused(mode: str, name: str, value: float) -> None:
    with pytest.raises(CheckpointError, match=f"stats: tensor 'state.{name}' holds NaN or infinity"):
        made(mode, **{name: torch.tensor([1.0, value])})


@pytest.mark.parametrize(("mode", "name"), [("MIN_MAX", "max"), ("QUANTILES", "q99"), ("QUANTILE10", "q90")])
def test_what_never_moved_has_the_epsilon_for_a_range(mode: str, name: str) -> None:
    low = {"max": "min", "q99": "q01", "q90": "q10"}[name]
    found = made(mode, **{name: torch.tensor([9.0, float(VALUES[low][1])])})
    assert (found.still, found.second[1] - found.first[1]) == ((1,), EPS)


def test_a_deviation_of_zero_leaves_the_mean() -> None:
    found = made("MEAN_STD", std=torch.tensor([0.0, 0.25]))
    assert (found.still, found.second, found.divisor) == ((0,), (0.0, 0.25), (EPS, 0.375))
