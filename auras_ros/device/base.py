"""What every device does alike: it keeps its open lanes, and closes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from auras_ros.device.failure import StageFailures
from auras_ros.device.lane import DeviceError, Lane
from auras_ros.device.spans import Spans
from auras_ros.device.uncaptured import Reasons

if TYPE_CHECKING:
    import torch


class ClosingLane(Lane, Protocol):
    """A lane as its device sees it."""

    def close(self) -> None:
        """Finish what was launched, and refuse further launches."""
        ...


OneLane = TypeVar("OneLane", bound=ClosingLane)


class LanedDevice(Generic[OneLane]):
    """Devices add `lane` and `capture`. With `spans` every run of a stage adds one."""

    def __init__(self, tensors: torch.device, spans: Spans | None) -> None:
        self.tensors, self._spans = tensors, spans
        self.uncaptured: dict[str, Reasons] = {}
        self._failures = StageFailures()
        self._lanes: list[OneLane] = []
        self._closed = False

    def _refuse_if_closed(self, lane: str) -> None:
        """Raises DeviceError for a new lane of a closed device, because nothing would close that lane."""
        if self._closed:
            raise DeviceError(f"lane {lane!r}: the device is closed")

    def _own(self, stage: str, lane: Lane) -> OneLane:
        """`lane` as one of the device's own. Raises DeviceError if it belongs to another device, or is closed."""
        for own in self._lanes:
            if own is lane:
                return own
        raise DeviceError(f"stage {stage!r}: lane {lane.name!r} is not one of this device's open lanes")

    def close(self) -> None:
        """Finish what was launched, write its spans and end the lanes; a second call does nothing. Raises DeviceError
        if a stage failed and nobody waited for it."""
        lanes, self._lanes, self._closed = self._lanes, [], True
        for lane in lanes:
            lane.close()
        self._failures.raise_unseen()
