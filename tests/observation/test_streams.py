"""Joints by name, cameras in one instant, and the past by stamp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.observation import (
    FaultName,
    History,
    JointMap,
    ObservationError,
    ObservationFault,
    Stamped,
    synchronize,
)

# -- joints ------------------------------------------------------------------------------------------------


@given(order=st.permutations(["j1", "j2", "j3", "extra", "other"]))
def test_joints_come_in_any_order_and_extras_are_ignored(order: list[str]) -> None:
    values = {"j1": 1.0, "j2": 2.0, "j3": 3.0, "extra": np.nan, "other": np.inf}
    joints = JointMap(["j3", "j1", "j2"])
    for layout in (order, order[::-1]):
        part = joints.part(layout, [values[name] for name in layout])
        assert part == {"j1": 1.0, "j2": 2.0, "j3": 3.0}


def test_of_a_part_of_the_joints_that_part_is_taken() -> None:
    joints = JointMap(["j1", "j2"])
    assert joints.part(["j2", "extra"], [2.0, np.nan]) == {"j2": 2.0}
    assert joints.part([], []) == joints.part(["extra"], [1.0]) == {}
    assert joints.wants(["extra", "j1"])
    assert not joints.wants(["extra"])


@pytest.mark.parametrize(
    ("names", "positions", "expected"),
    [
        (["j1", "j2"], [1.0, np.nan], (FaultName.NON_FINITE, "j2")),
        (["j1", "j2"], [-np.inf, 1.0], (FaultName.NON_FINITE, "j1")),
        (["j1", "j2"], [1.0], (FaultName.BAD_STATE, "position")),
        (["j1", "j2"], [], (FaultName.BAD_STATE, "position")),
        (["j1", "j2"], [[1.0, 2.0]], (FaultName.BAD_STATE, "position")),
        (["j1", "j2"], ["a", "b"], (FaultName.BAD_STATE, "position")),
        (["j1", "j2", "j1"], [1.0, 2.0, 3.0], (FaultName.BAD_STATE, "j1")),
    ],
)
def test_a_state_that_does_not_add_up_is_refused_by_name(names: Any, positions: Any, expected: Any) -> None:
    joints = JointMap(["j1", "j2"])
    joints.part(["j2", "j1"], [2.0, 1.0])
    with pytest.raises(ObservationError) as caught:
        joints.part(names, positions)
    assert (caught.value.fault.name, caught.value.fault.source) == expected
    assert joints.part(["j2", "j1"], [2.0, 1.0]) == {"j1": 1.0, "j2": 2.0}, "a refusal leaves no trace"


def test_a_map_with_a_repeated_name_is_refused() -> None:
    with pytest.raises(ValueError, match="more than once"):
        JointMap(["a", "a"])


# -- sync --------------------------------------------------------------------------------------------------


def entry(stamp_ns: int, item: Any = None) -> Stamped[Any]:
    return Stamped(item if item is not None else stamp_ns, stamp_ns, stamp_ns + 1000)


@given(stamps=st.lists(st.integers(0, 100), min_size=1, max_size=4), tolerance=st.integers(0, 100))
def test_the_oldest_stamp_is_the_origin_and_skew_is_bounded(stamps: list[int], tolerance: int) -> None:
    entries = {f"c{i}": entry(stamp) for i, stamp in enumerate(stamps)}
    synced = synchronize(entries, tolerance)
    skew = max(stamps) - min(stamps)
    if skew > tolerance:
        assert isinstance(synced, ObservationFault)
        assert synced.name is FaultName.SKEW
        assert entries[synced.source].stamp_ns == min(stamps)
    else:
        assert isinstance(synced, Stamped)
        assert synced.stamp_ns == min(stamps)


# -- history -----------------------------------------------------------------------------------------------

DT = 80


def history(*stamps: int, length: int = 3) -> tuple[History[int], Stamped[int]]:
    past: History[int] = History(length, DT)
    for stamp in stamps:
        past.push(entry(stamp))
    return past, entry(stamps[-1])


@pytest.mark.parametrize(
    ("stamps", "target", "expected"),
    [
        ((0, 80, 160), 80, 80),
        ((0, 30, 60, 90, 120), 80, 90),  # the nearest
        ((0, 30, 60, 90, 120), 70, 60),
        ((0, 40, 160), 80, 40),  # half a dt is still near
        ((0, 39, 160), 80, 39),  # too far: the nearest older
        ((0, 200), 120, 0),
        ((121, 200), 80, 121),  # none older: the first is repeated
        ((200,), 120, 200),
    ],
)
def test_the_past_is_picked_by_stamp(stamps: tuple[int, ...], target: int, expected: int) -> None:
    past, newest = history(*stamps)
    assert past.pick(target, newest).item == expected


def test_beside_is_near_or_the_newest() -> None:
    past, newest = history(0, 30, 60, 100)
    assert past.beside(28, newest).item == 30
    assert past.beside(-39, newest).item == 0
    assert past.beside(-41, newest).item == 100
    assert past.beside(10**18, newest).item == 100


def test_the_past_is_thinned_and_ends() -> None:
    past: History[int] = History(3, DT)
    for stamp in range(5000):
        past.push(entry(stamp))
        assert len(past._entries) <= 3 * 8 + 1
    assert past.pick(4999 - 2 * DT, entry(4999)).item == pytest.approx(4999 - 2 * DT, abs=DT // 8)
    past.push(entry(99_999))
    assert len(past._entries) == 1
    past.clear()
    assert past.pick(0, entry(5)).item == 5
