"""Seams: a straight fade between trajectories, for the kinds that a mean makes sense for."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from auras_ros.action.seam import Seam


def test_weights_rise_in_equal_parts_and_end_with_the_new(make: SimpleNamespace) -> None:
    seam = Seam(make.contract(), 10, 3, lambda _: np.array([0.0]), np.array([9.0]))
    new = np.array([4.0])
    assert [float(seam.blend(count, new)[0]) for count in range(9, 15)] == [4, 1, 2, 3, 4, 4]
    assert [seam.active(count) for count in range(9, 15)] == [False, True, True, True, False, False]


def test_the_old_trajectory_goes_on_while_it_lasts_then_stands(make: SimpleNamespace) -> None:
    def old(count: int) -> np.ndarray | None:
        return np.array([float(count)]) if count < 2 else None

    seam = Seam(make.contract(), 0, 4, old, np.array([99.0]))
    blended = [float(seam.blend(count, np.zeros(1))[0]) for count in range(4)]
    assert blended == pytest.approx([0.8 * 0, 0.6 * 1, 0.4 * 1, 0.2 * 1])


def test_without_an_old_trajectory_the_last_command_fades(make: SimpleNamespace) -> None:
    seam = Seam(make.contract(), 0, 1, lambda _: None, np.array([8.0]))
    assert seam.blend(0, np.array([0.0])).tolist() == [4.0]


def test_with_nothing_at_all_there_is_nothing_to_blend_from(make: SimpleNamespace) -> None:
    seam = Seam(make.contract(), 0, 2, lambda _: None, np.array([np.nan]))
    assert seam.blend(0, np.array([5.0])).tolist() == [5.0]


def test_only_some_kinds_are_blended(make: SimpleNamespace) -> None:
    kinds = ["absolute", "delta_origin", "velocity", "gripper", "delta_previous"]
    rules = make.contract(*(make.channel(kind, kind) for kind in kinds))
    seam = Seam(rules, 0, 1, lambda _: np.zeros(5), np.zeros(5))
    assert seam.blend(0, np.full(5, 2.0)).tolist() == [1.0, 1.0, 1.0, 2.0, 2.0]
