"""Which cores a thread runs on, and how many threads torch spreads one of its operations over.

On torch's CPU build (OpenMP, seen with 2.13) `torch.set_num_threads` sets the calling thread's number and a default of
the whole process. A thread adopts the default at its first parallel operation, or at its first `get_num_threads`, even
if it has set a number before that; from then on its number is its own. So a lane's thread first calls
`get_num_threads`, then sets its number, and the code that makes the lane restores the default. The threads that OpenMP
starts for a thread inherit its cores if those are set before its first operation, and they live as long as it does.

While a process has more of OpenMP's threads than cores (GCC's library, which torch brings), each of them sleeps after
every operation instead of spinning until the next one. So whatever runs once and on several cores does so in a thread
that ends (`in_own_thread`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from auras_ros.device.lane import DeviceError

T = TypeVar("T")
_STARTING = threading.Lock()  # torch's default number of threads is per process, so one thread starts at a time


def checked(lane: str, cores: Sequence[int] | None, threads: int | None) -> tuple[frozenset[int] | None, int]:
    """The cores (None: those of the calling thread) and the intra-op threads (1 by default) of `lane`.

    Raises DeviceError, naming the lane and the option: two threads on one core run far slower than one, so there are
    never more threads than cores (docs/pipeline.md, "Where work runs").
    """
    if cores is not None:
        if not cores or len(set(cores)) != len(cores) or min(cores) < 0:
            raise DeviceError(f"lane {lane!r}: cores must be different core numbers, at least one, got {cores!r}")
        if not hasattr(os, "sched_setaffinity"):
            raise DeviceError(f"lane {lane!r}: cores cannot be set on this system")
    count = 1 if threads is None else threads
    if count < 1:
        raise DeviceError(f"lane {lane!r}: threads must be at least 1, got {threads}")
    own = _inherited() if cores is None else len(cores)
    if count > own:
        raise DeviceError(f"lane {lane!r}: threads {count} on {own} core(s): never more threads than cores")
    return None if cores is None else frozenset(cores), count


def occupy(lane: str, cores: frozenset[int] | None, threads: int) -> None:
    """Bind the calling thread to `cores` and spread its operations over `threads`; before its first operation.

    Raises DeviceError if one of the cores is not available. Linux itself would silently use the others.
    """
    import torch

    if cores is not None:
        try:
            os.sched_setaffinity(0, cores)
        except OSError as error:
            raise _missing(lane, cores, frozenset()) from error
        got = frozenset(os.sched_getaffinity(0))
        if got != cores:
            raise _missing(lane, cores, got)
    torch.get_num_threads()  # from here on the number is this thread's own; see the module's docstring
    torch.set_num_threads(threads)


@contextmanager
def starting() -> Iterator[None]:
    """Around the start of a thread that occupies cores: restores the default of threads to come. The caller's own
    number is unchanged."""
    import torch

    with _STARTING:
        own = torch.get_num_threads()
        try:
            yield
        finally:
            torch.set_num_threads(own)


def thread_on(name: str, cores: frozenset[int] | None, threads: int) -> Executor:
    """A thread on these cores (None: those of the caller) whose operations have so many threads. Raises DeviceError,
    naming the cores that are not there."""
    executor = ThreadPoolExecutor(1, thread_name_prefix=name)
    try:
        with starting():
            executor.submit(occupy, name, cores, threads).result()
    except BaseException:
        executor.shutdown()
        raise
    return executor


def in_own_thread(work: Callable[[], T]) -> T:
    """In a thread that ends, and OpenMP's threads with it; its operations have as many as the caller's. Raises what
    `work` raises."""
    import torch

    with thread_on("loading", None, torch.get_num_threads()) as executor:
        return executor.submit(work).result()


def _missing(lane: str, cores: frozenset[int], got: frozenset[int]) -> DeviceError:
    return DeviceError(f"lane {lane!r}: cores {sorted(cores - got)} are not available here")


def _inherited() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
