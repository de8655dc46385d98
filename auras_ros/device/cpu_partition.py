"""Partitions of a CPU: cores. A part's executor is a thread that is bound to them, with as many intra-op threads.

OpenMP's threads inherit the cores of the thread that they are started for, once: so every part of every split has
threads of its own, which sleep while another split is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

from auras_ros.device.cores import checked, occupy, starting
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
        executor_on(cores, "partitions").shutdown()  # are the cores there?
        part = partial(_part, device)
        splits = {size: TwoParts(part(cores[-size:]), part(cores[:-size])) for size in prepared}
        super().__init__(part(cores), splits)


def executor_on(cores: Sequence[int], name: str) -> Executor:
    """A thread on these cores, with as many intra-op threads. Raises DeviceError, naming them, if they are not
    there."""
    own, threads = checked(name, cores, len(cores))
    executor = ThreadPoolExecutor(1, thread_name_prefix=name)
    try:
        with starting():
            executor.submit(occupy, name, own, threads).result()
    except BaseException:
        executor.shutdown()
        raise
    return executor


def _part(device: CpuDevice, cores: Sequence[int]) -> DevicePartition:
    def open_lane(_: str, name: str) -> Lane:
        return device.lane(name)  # inline: it runs in the thread that launches, on that thread's cores

    name = f"{'core' if len(cores) == 1 else 'cores'} {', '.join(map(str, cores))}"
    return DevicePartition(name, len(cores), partial(executor_on, tuple(cores)), open_lane)
