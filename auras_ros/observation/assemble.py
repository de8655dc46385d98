"""From streams to one observation: what a frame of the executor latches at its start.

Images and states are stored when they arrive. `latch` takes the newest of each, or names the one fault that prevents
it. This module never replaces a missing stream by zeros or by old data, and never waits.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .fault import ObservationError, ObservationFault
from .history import History
from .images import ImageArray
from .picture import Picture
from .preprocess import Float32Array, Preprocessor
from .slot import LatestSlot, Stamped
from .spec import ObservationSpec
from .state import JointMap, JointSlot, StateArray
from .sync import synchronize

STATE = "state"
_STATE_STEPS = 4  # policy steps that a camera may lag behind the state and still find the matching one


@dataclass(frozen=True, eq=False)
class Observation:
    """`history` instants, oldest first: `images` float32 [history, cameras, channels, h, w], `state` float32
    [history, joints], `camera_stamps` [history][cameras]. The origin is the oldest camera stamp of the newest instant,
    in the stamps' clock and on the host's monotonic clock. `position` [joints] is the measured state at the newest
    instant (the reference of delta_origin channels), with `state_stamp_ns`."""

    images: Float32Array
    state: Float32Array
    position: StateArray
    origin_stamp_ns: int
    origin_mono_ns: int
    camera_stamps: tuple[tuple[int, ...], ...]
    state_stamp_ns: int | None


class Assembler:
    """`camera_age_limit_ms`, `state_age_limit_ms`: the largest age of the newest item, on the monotonic clock;
    `sync_tolerance_ms`: the largest distance between the cameras' newest stamps; `ahead_limit_ms`: see `LatestSlot`;
    `resizes`: whether images of another size are resized.

    `put_*` may be called from one thread and `latch` from another. `latch` takes the newest image of each camera and
    the state beside the origin (if its stamps are from another clock: the newest). Entries for earlier instants are
    picked by stamp at origin - k dt (see `History.pick`).
    """

    def __init__(
        self,
        spec: ObservationSpec,
        camera_age_limit_ms: float,
        state_age_limit_ms: float,
        sync_tolerance_ms: float,
        ahead_limit_ms: float | None = None,
        *,
        resizes: bool = False,
    ) -> None:
        self.spec = spec
        self.preprocess = Preprocessor(spec, resizes=resizes)
        self._tolerance_ns = round(sync_tolerance_ms * 1e6)
        self._cameras: dict[str, LatestSlot[Picture]] = {
            camera.name: LatestSlot(camera.name, camera_age_limit_ms, ahead_limit_ms) for camera in spec.cameras
        }
        joints = spec.state.names if spec.state else ()
        self._state = JointSlot(STATE, joints, state_age_limit_ms, ahead_limit_ms) if joints else None
        self._streams: dict[str, LatestSlot[Any]] = {**self._cameras, **({STATE: self._state} if self._state else {})}
        self._joints = JointMap(joints)
        self._past: dict[str, History[Any]] = {name: History(spec.history, spec.dt_ns) for name in self._cameras}
        self._past[STATE] = History(spec.history + _STATE_STEPS, spec.dt_ns)
        self._faults: dict[str, int] = {}
        self._lock = threading.RLock()

    def put_image(
        self, name: str, frame: ImageArray, stamp_ns: int, receipt_mono_ns: int, latency_ns: int = 0
    ) -> ObservationFault | None:
        """Store a decoded image, uint8 RGB of the spec's size, or of another if it may be resized. Returns the fault or
        None.

        `frame` is kept, not copied: it must not change any more. `latch` prepares it, unless it has been done already
        (`newest`).
        """
        try:
            self.preprocess.check_frame(name, frame)
        except ObservationError as error:
            return self.count(error.fault)
        picture = Picture(frame, lambda pixels: self.preprocess.image(name, pixels))
        with self._lock:
            entry = self._cameras[name].put(picture, stamp_ns, receipt_mono_ns, latency_ns)
            if isinstance(entry, ObservationFault):
                return self.count(entry)
            if entry.item is picture and self.spec.history > 1:
                self._past[name].push(entry)
            return None

    def put_state(
        self,
        names: Sequence[str],
        positions: npt.ArrayLike,
        stamp_ns: int,
        receipt_mono_ns: int,
        latency_ns: int = 0,
    ) -> ObservationFault | None:
        """Store joint positions by name, in any order; extra joints are ignored. Parts are merged, each joint with its
        own stamp and age. A message with none of the policy's joints is ignored. Returns the fault, or None."""
        if self._state is None or not self.wants(names):
            return None
        try:
            part = self._joints.part(names, positions)
        except ObservationError as error:
            return self.count(error.fault)
        with self._lock:
            entry = self._state.put_part(part, stamp_ns, receipt_mono_ns, latency_ns)
            if isinstance(entry, ObservationFault):
                return self.count(entry)
            if entry is not None:
                self._past[STATE].push(entry)
            return None

    def wants(self, names: Iterable[str]) -> bool:
        """Whether the policy needs any of these joints."""
        return self._joints.wants(names)

    def newest(self, name: str) -> Picture | None:
        """The newest image of a camera, however old; the same object if the camera repeated an image."""
        return self._cameras[name].item()

    def latch(self, now_mono_ns: int) -> Observation | ObservationFault:
        """The observation as of now, or the first fault (cameras in the spec's order, state, then skew)."""
        with self._lock:
            newest = self._newest(now_mono_ns)
            if isinstance(newest, ObservationFault):
                return self.count(newest)
            cameras = {name: newest[name] for name in self._cameras} or newest
            origin = synchronize(cameras, self._tolerance_ns)
            if isinstance(origin, ObservationFault):
                return self.count(origin)
            instants = [self._instant(newest, origin.stamp_ns, back) for back in reversed(range(self.spec.history))]
        return self._build(instants, origin)

    def reset(self) -> None:
        """Forget every stream and the history: stamps may start again, and the next observation is the first."""
        with self._lock:
            for slot in self._streams.values():
                slot.reset()
            for past in self._past.values():
                past.clear()

    def counters(self) -> dict[str, Any]:
        """Totals: `faults` by name, and each stream's counters."""
        with self._lock:
            faults = dict(self._faults)
        return {"faults": faults, "streams": {name: slot.counters() for name, slot in self._streams.items()}}

    def count(self, fault: ObservationFault) -> ObservationFault:
        """Count a fault, also one that was found outside (an image that could not be decoded); returns it."""
        with self._lock:
            self._faults[fault.name.value] = self._faults.get(fault.name.value, 0) + 1
        return fault

    def _newest(self, now_mono_ns: int) -> dict[str, Stamped[Any]] | ObservationFault:
        newest: dict[str, Stamped[Any]] = {}
        for name, slot in self._streams.items():
            entry = slot.latest(now_mono_ns)
            if isinstance(entry, ObservationFault):
                return entry
            newest[name] = entry
        return newest

    def _instant(self, newest: dict[str, Stamped[Any]], origin_ns: int, back: int) -> dict[str, Stamped[Any]]:
        """The entries `back` steps before the origin; for 0 the newest images and the state beside them."""
        target_ns = origin_ns - back * self.spec.dt_ns
        if back:
            return {name: self._past[name].pick(target_ns, entry) for name, entry in newest.items()}
        if self._state is None:
            return newest
        return {**newest, STATE: self._past[STATE].beside(target_ns, newest[STATE])}

    def _build(self, instants: list[dict[str, Stamped[Any]]], origin: Stamped[Any]) -> Observation:
        height, width = self.spec.image_size
        images = np.empty((len(instants), len(self._cameras), self.spec.channels, height, width), dtype=np.float32)
        for column, name in enumerate(self._cameras):
            for row, instant in enumerate(instants):
                images[row, column] = instant[name].item.image()
        states = [instant[STATE] if self._state else None for instant in instants]
        newest = states[-1]
        return Observation(
            images,
            np.stack([self.preprocess.state(None if entry is None else entry.item) for entry in states]),
            np.zeros(0) if newest is None else newest.item.copy(),
            origin.stamp_ns,
            origin.mono_ns,
            tuple(tuple(instant[name].stamp_ns for name in self._cameras) for instant in instants),
            None if newest is None else newest.stamp_ns,
        )
