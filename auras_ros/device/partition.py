"""A device's units (SMs of a GPU, cores of a CPU) divided in two parts, so that two stages run side by side without
taking each other's units (Nova III-B).

Every way to divide them is prepared beforehand, with threads and lanes of its own, and stages are captured for each: to
change the split is to hand the next forward to another executor and lane. Nothing is moved or captured then, and a
forward under way ends on the units that it began with. Parts of two different splits share units, so who changes the
split decides whether to wait for the other part's forward first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import NamedTuple, Protocol

from auras_ros.device.lane import DeviceError, Lane


class Partition(Protocol):
    """Some of a device's units."""

    @property
    def name(self) -> str:
        """For example `core 1` or `first 24 of 84 SMs`."""
        ...

    @property
    def units(self) -> int: ...

    def executor(self, name: str) -> Executor:
        """A thread whose forwards run on these units alone, one after another; the same one for the same name. It
        belongs to the partitions, whose `close` ends it. Raises DeviceError if the units are not there."""
        ...

    def lane(self, name: str) -> Lane:
        """A lane on these units, for stages that are captured for it and launched from the executor of this name."""
        ...


class Partitions(Protocol):
    """A device's units, and the prepared ways to divide them in two parts."""

    @property
    def units(self) -> int: ...

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units of the first part, ascending; the others are the second part's. Empty if nothing can be divided."""
        ...

    def first(self, units: int) -> Partition:
        """Raises DeviceError, naming the size, if it was not prepared."""
        ...

    def second(self, units: int) -> Partition:
        """All units but those of `first(units)`. Raises DeviceError as `first` does."""
        ...

    def whole(self) -> Partition: ...

    def close(self) -> None:
        """End the threads and release the units; the lanes end with them or with the device. A second call does
        nothing."""
        ...


class DevicePartition:
    """A partition, from what its device gives it. start: makes the thread of a name. open_lane: makes a lane for a
    name, and is given the lane's own name too."""

    def __init__(
        self, name: str, units: int, start: Callable[[str], Executor], open_lane: Callable[[str, str], Lane]
    ) -> None:
        self.name, self.units = name, units
        self._start, self._open_lane = start, open_lane
        self._lock = threading.Lock()
        self._executors: dict[str, Executor] = {}
        self._closed = False

    def executor(self, name: str) -> Executor:
        with self._lock:
            self._refuse_if_closed(name)
            if name not in self._executors:
                self._executors[name] = self._start(name)
            return self._executors[name]

    def lane(self, name: str) -> Lane:
        with self._lock:
            self._refuse_if_closed(name)
            return self._open_lane(name, f"{name}, {self.name}")

    def close(self) -> None:
        """Finish what was handed to the threads, and end them."""
        with self._lock:
            self._closed = True
        for executor in self._executors.values():
            executor.shutdown()

    def _refuse_if_closed(self, name: str) -> None:
        if self._closed:
            raise DeviceError(f"{name!r}: partition {self.name!r} is closed")


class TwoParts(NamedTuple):
    """Two parts that share no unit, and leave none out."""

    first: DevicePartition
    second: DevicePartition


class PreparedPartitions:
    """`Partitions` of splits that are made: size of the first part -> its split."""

    def __init__(self, whole: DevicePartition, splits: Mapping[int, TwoParts]) -> None:
        self._whole, self._splits = whole, splits
        self.units, self.sizes = whole.units, tuple(sorted(splits))

    def first(self, units: int) -> DevicePartition:
        return self._split(units).first

    def second(self, units: int) -> DevicePartition:
        return self._split(units).second

    def whole(self) -> DevicePartition:
        return self._whole

    def close(self) -> None:
        for each in (self._whole, *(part for split in self._splits.values() for part in split)):
            each.close()

    def _split(self, units: int) -> TwoParts:
        if units not in self._splits:
            raise DeviceError(f"a part of {units} of {self.units}: prepared are {self.sizes or 'none'}")
        return self._splits[units]
