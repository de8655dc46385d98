"""The robot's state by joint name: messages list joints in any order, policies want theirs.

This module never fills a missing joint.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .fault import FaultName, ObservationError

StateArray = npt.NDArray[np.float64]


class JointMap:
    """Picks `names`, in this order, out of messages. Not thread-safe (it remembers the last layout)."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"joints: a name is used more than once: {', '.join(self.names)}")
        self._layout: tuple[str, ...] | None = None
        self._indices: npt.NDArray[np.intp] = np.zeros(0, dtype=np.intp)

    def vector(self, names: Sequence[str], positions: npt.ArrayLike) -> StateArray:
        """The positions of this map's joints, float64 [joints]; joints it does not know are ignored.

        Raises ObservationError: missing_joint, non_finite (of a joint that is needed), bad_state.
        """
        try:
            values = np.asarray(positions, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ObservationError(FaultName.BAD_STATE, "position", f"not numbers: {error}") from error
        if values.shape != (len(names),):
            detail = f"shape {values.shape} for {len(names)} names"
            raise ObservationError(FaultName.BAD_STATE, "position", detail)
        layout = tuple(names)
        if layout != self._layout:
            self._indices, self._layout = self._locate(layout), layout
        picked: StateArray = values[self._indices]
        if not np.isfinite(picked).all():
            joint = self.names[int(np.argmin(np.isfinite(picked)))]
            raise ObservationError(FaultName.NON_FINITE, joint, "position is not finite")
        return picked

    def _locate(self, layout: tuple[str, ...]) -> npt.NDArray[np.intp]:
        for name in self.names:
            if name not in layout:
                raise ObservationError(FaultName.MISSING_JOINT, name, f"not among {len(layout)} joints")
            if layout.count(name) > 1:
                raise ObservationError(FaultName.BAD_STATE, name, "named more than once")
        return np.array([layout.index(name) for name in self.names], dtype=np.intp)
