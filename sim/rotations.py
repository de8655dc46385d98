"""Rotations as simulators and robot data sets write them. Quaternions are [w, x, y, z], of length one; angles in rad.

Euler angles roll, pitch, yaw turn about the fixed axes x, y, z, in this order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]


def quaternion(roll: float, pitch: float, yaw: float) -> Vector:
    """[4], of Euler angles."""
    (cr, cp, cy), (sr, sp, sy) = ([turn(angle / 2) for angle in (roll, pitch, yaw)] for turn in (np.cos, np.sin))
    return np.array(
        [
            cr * cp * cy + sr * sp * sy,
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
        ]
    )


def axis_angle(roll: float, pitch: float, yaw: float) -> Vector:
    """The axis, times the angle about it, [3]."""
    w, *axis = quaternion(roll, pitch, yaw)
    sine = float(np.linalg.norm(axis))
    return np.zeros(3) if sine == 0.0 else np.array(axis) * (2.0 * np.arctan2(sine, w) / sine)


def euler(rotation: Sequence[float] | Vector) -> Vector:
    """Roll, pitch and yaw of a quaternion, [3]."""
    w, x, y, z = rotation
    pitch = np.arcsin(np.clip(2 * (w * y - z * x), -1.0, 1.0))
    roll = np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    return np.array([roll, pitch, np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))])


def seen_from(base: ArrayLike, pose: ArrayLike) -> tuple[Vector, Vector]:
    """A pose [x, y, z, quaternion] in the frame of another one: (position [3], quaternion [4])."""
    (base_at, (w, *axis)), (at, turn) = ((each[:3], each[3:]) for each in map(np.asarray, (base, pose)))
    inverse = np.array([w, *(-np.array(axis))])
    offset = _product(_product(inverse, np.array([0.0, *(at - base_at)])), np.array([w, *axis]))
    return offset[1:], _product(inverse, turn)


def _product(left: Vector, right: Vector) -> Vector:
    """Of quaternions."""
    axis = left[0] * right[1:] + right[0] * left[1:] + np.cross(left[1:], right[1:])
    return np.array([left[0] * right[0] - left[1:] @ right[1:], *axis])
