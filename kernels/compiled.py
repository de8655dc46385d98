"""How kernels that Numba compiles for a CPU are launched: in threads, with a table of numbers.

The threads are those that torch computes with, so that no second pool competes for the cores. Numba is an extra
(`numba`).
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LONG = 8  # bytes of a number of a table
PHASES = 2  # of a launch, at most
FREE = PHASES + 1  # the first number of a table that is the kernel's own
_LONG = ir.IntType(64)


@intrinsic
def number_at(typing, table, place):
    """The int64 at this place of a table. table: its address."""

    def generate(context, builder, signature, arguments):
        return number(builder, *arguments)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def take_share(typing, table, phase):
    """A number of the table, of this phase, which is one more for whoever asks next."""

    def generate(context, builder, signature, arguments):
        table, phase = arguments
        place = builder.add(table, builder.mul(phase, _LONG(LONG)))
        return builder.atomic_rmw("add", pointer(builder, place, _LONG), _LONG(1), "monotonic")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def wait_for_team(typing, table):
    """Until all threads of the launch are here: what they wrote may be read."""

    def generate(context, builder, signature, arguments):
        barrier = number(builder, arguments[0], _LONG(PHASES))
        with builder.if_then(builder.icmp_signed("!=", barrier, _LONG(0))):
            builder.call(pointer(builder, barrier, ir.FunctionType(ir.VoidType(), [])), [])
        return context.get_dummy_value()

    return types.void(types.int64), generate


class Launch:
    """A function compiled by `cfunc`, and the table (int64) whose address it gets. Its first numbers are for
    `take_share` and `wait_for_team`: each thread takes shares of a phase's work until there are none."""

    def __init__(self, kernel: Any, size: int) -> None:
        """size: of the table, the first FREE numbers with it."""
        self.table = np.zeros(size, np.int64)
        self._kernel, self._address = kernel.address, self.table.ctypes.data

    def run(self, threads: int) -> None:
        """In so many threads at once."""
        self.table[:FREE] = 0
        openmp = _openmp() if threads > 1 else None
        if openmp is None:
            _alone(self._kernel)(self._address)
        else:
            self.table[PHASES] = openmp.barrier
            openmp.team(self._kernel, self._address, threads, 0)


@cache
def _alone(kernel: int) -> Any:
    """Calls it in this thread."""
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(kernel)


class _OpenMP(NamedTuple):
    """team: starts one. barrier: the address of what its threads call."""

    team: Any
    barrier: int


@cache
def _openmp() -> _OpenMP | None:
    """Of the threads that torch computes with: of the OpenMP that was loaded before it, or of its own. None if it has
    another one; the calling thread does all shares then."""
    for path in (None, Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"):
        try:
            library = ctypes.CDLL(None if path is None else str(path))
            team, barrier = library.GOMP_parallel, ctypes.cast(library.GOMP_barrier, ctypes.c_void_p).value
        except (AttributeError, OSError):
            continue
        team.argtypes, team.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
        return _OpenMP(team, barrier or 0)
    return None


def pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def number(builder: Any, table: Any, place: Any) -> Any:
    return builder.load(pointer(builder, builder.add(table, builder.mul(place, _LONG(LONG))), _LONG))
