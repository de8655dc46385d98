"""Partitions of a CPU: cores. A part's executor is a thread that is bound to them, with as many intra-op threads.

OpenMP's threads inherit the cores of the thread that they are started for, once: so every part of every split has
threads of its own, which sleep while another split is used. All cores have one such thread for everything, and a second
one only if two forwards are to share them: more of OpenMP's threads than cores slow each other (`cores`).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

from auras_ros.device.cores import checked, thread_on
from auras_ros.device.cpu import CpuDevice
from auras_ros.device.lane import DeviceError, Lane
from auras_ros.device.partition import DevicePartition, PreparedPartitions, TwoParts


class CpuPartitions(PreparedPartitions):
    """Some cores of the host, in an order that the caller chooses: a first part of n is the last n of them."""

    def __init__(self, device: CpuDevice, cores: Sequence[int], sizes: Sequence[int] | None = None) -> None:
        """sizes: of the first part; None: from one core to all but one. Raises DeviceError for cores that are not
        different numbers or are not there, and for sizes that leave nothing to one of the parts."""
        checked("partitions", cores, None)
        prepared = range(1, len(cores)) if sizes is None else sorted(set(sizes))
        if wrong := [size for size in prepared if not 0 < size < len(cores)]:
            raise DeviceError(f"partitions: a part of {wrong[0]} of {len(cores)} core(s) leaves nothing to one part")
        part = partial(_part, device)
        whole = SharingExecutor(partial(_on, tuple(cores), "whole"))
        splits = {size: TwoParts(part(cores[-size:]), part(cores[:-size])) for size in prepared}
        super().__init__(part(cores, lambda _: whole), splits)


class SharingExecutor(Executor):
    """One thread, and a further one for each piece of work that is handed over while all are busy. Those end as soon as
    the first one is enough again."""

    def __init__(self, make: Callable[[], Executor]) -> None:
        """make: an executor with one thread. Raises what that raises: the first one is made here."""
        self._make, self._lock = make, threading.Lock()
        # Each with its last work: weakly, because what that was given and has made belongs to others.
        self._made: dict[Executor, Callable[[], Future[Any] | None]] = {make(): lambda: None}

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        with self._lock:
            idle = [each for each, last in self._made.items() if (work := last()) is None or work.done()]
            if idle and idle[0] is next(iter(self._made)):
                for each in idle[1:]:
                    each.shutdown(wait=False)
                    del self._made[each]
            executor = idle[0] if idle else self._make()
            future = executor.submit(fn, *args, **kwargs)
            self._made[executor] = weakref.ref(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for each in self._made:
            each.shutdown(wait, cancel_futures=cancel_futures)


def _on(cores: Sequence[int], name: str) -> Executor:
    """A thread on these cores, with as many intra-op threads. Raises DeviceError, naming them, if they are not
    there."""
    return thread_on(name, *checked(name, cores, len(cores)))


def _part(device: CpuDevice, cores: Sequence[int], start: Callable[[str], Executor] | None = None) -> DevicePartition:
    """start: makes the thread of a name; each has its own unless given."""

    def open_lane(_: str, name: str) -> Lane:
        return device.lane(name)  # inline: it runs in the thread that launches, on that thread's cores

    name = f"{'core' if len(cores) == 1 else 'cores'} {', '.join(map(str, cores))}"
    return DevicePartition(name, len(cores), start or partial(_on, tuple(cores)), open_lane)
