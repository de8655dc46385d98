"""The tabulated pushes against what is known of the tee: its symmetry, and that nothing untouched moves.

Guards: a heading that points outwards; outcomes of one push that leak into the next.
"""

from __future__ import annotations

import numpy as np
import shapely.geometry as geometry

from auras_ros.train.push_table import (
    ANGLES_DEG,
    CORNERS,
    OUTLINE,
    PUSHER_RADIUS_PX,
    STEPS,
    PushTable,
    _Bench,
    _contacts,
    _outcomes_of_push,
    corners,
    rotation,
)


def test_shape(table: PushTable) -> None:
    count = len(ANGLES_DEG) * len(_contacts())
    assert count > 100
    assert table.starts.shape == table.headings.shape == (count, 2)
    assert table.outcomes.shape == (count, STEPS, 3)
    assert np.isfinite(table.outcomes).all()


def test_pushes_start_just_off_the_outline_and_head_inwards(table: PushTable) -> None:
    np.testing.assert_allclose(np.linalg.norm(table.headings, axis=1), 1.0)
    for start, heading in zip(table.starts, table.headings, strict=True):
        gap = OUTLINE.distance(geometry.Point(start))
        assert PUSHER_RADIUS_PX < gap < PUSHER_RADIUS_PX + 8
        assert OUTLINE.distance(geometry.Point(start + 8 * heading)) < gap


def test_a_push_into_nothing_moves_nothing() -> None:
    start, inward = _contacts()[0]
    np.testing.assert_array_equal(_outcomes_of_push(_Bench(), start, -inward), 0.0)


def test_a_push_moves_the_tee_the_way_it_heads(table: PushTable) -> None:
    straight = slice(1, None, 3)
    moved = table.outcomes[straight, -1, :2]
    turned = np.abs(table.outcomes[straight, -1, 2])
    along = (moved * table.headings[straight]).sum(1)
    assert (along[turned < 0.3] > 50).all()
    assert np.linalg.norm(moved, axis=1).max() < STEPS * 12 + 60


def test_the_bench_keeps_nothing_of_the_push_before() -> None:
    bench, (start, inward) = _Bench(), _contacts()[5]
    first = _outcomes_of_push(bench, start, inward)
    other_start, other_inward = _contacts()[20]
    _outcomes_of_push(bench, other_start, other_inward)
    np.testing.assert_allclose(_outcomes_of_push(bench, start, inward), first, atol=0.01)  # px: the solver starts warm


def test_mirrored_pushes_have_mirrored_outcomes() -> None:
    """The tee is its own mirror image about x = 0."""
    mirror = np.array([-1.0, 1.0])
    bench, checked = _Bench(), 0
    for start, inward in _contacts():
        if start[0] < 20 or abs(inward[0]) > 0.01:
            continue
        a = _outcomes_of_push(bench, start, inward)
        b = _outcomes_of_push(bench, start * mirror, inward * mirror)
        np.testing.assert_allclose(a[:6], b[:6] * [-1, 1, -1], atol=1.5)
        checked += 1
    assert checked >= 4


def test_corners_turn_about_the_tees_own_origin_and_then_move() -> None:
    pose = np.array([100.0, 200.0, np.pi / 2])
    np.testing.assert_allclose(corners(pose), np.stack([-CORNERS[:, 1], CORNERS[:, 0]], 1) + [100, 200], atol=1e-9)
    np.testing.assert_allclose(rotation(0.3) @ rotation(-0.3), np.eye(2), atol=1e-12)
