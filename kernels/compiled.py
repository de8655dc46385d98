"""How kernels that Numba compiles for a CPU are launched: in threads, with a table of numbers.

The threads are those that torch computes with, so that no second pool competes for the cores. Numba is an extra
(`numba`).
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LONG = 8  # bytes of a number of a table
_LONG = ir.IntType(64)


@intrinsic
def number_at(typing, table, place):
    """The int64 at this place of a table. table: its address."""

    def generate(context, builder, signature, arguments):
        return number(builder, *arguments)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def take_share(typing, table):
    """The table's first number, which is one more for whoever asks next."""

    def generate(context, builder, signature, arguments):
        return builder.atomic_rmw("add", pointer(builder, arguments[0], _LONG), _LONG(1), "monotonic")

    return types.int64(types.int64), generate


class Launch:
    """A function compiled by `cfunc`, and the table (int64) whose address it gets. Its first number is for
    `take_share`: each thread takes shares of the work until there are none."""

    def __init__(self, kernel: Any, size: int) -> None:
        self.table = np.zeros(size, np.int64)
        self._kernel, self._address = kernel.address, self.table.ctypes.data
        self._alone = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._kernel)

    def run(self, threads: int) -> None:
        """In so many threads at once."""
        self.table[0] = 0
        team = _openmp() if threads > 1 else None
        if team is None:
            self._alone(self._address)
        else:
            team(self._kernel, self._address, threads, 0)


@cache
def _openmp() -> Any:
    """What starts a team of the threads that torch computes with: of the OpenMP that was loaded before it, or of its
    own. None if it has another one; the calling thread does all shares then."""
    for library in (None, Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"):
        try:
            team = ctypes.CDLL(None if library is None else str(library)).GOMP_parallel
        except (AttributeError, OSError):
            continue
        team.argtypes, team.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
        return team
    return None


def pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def number(builder: Any, table: Any, place: Any) -> Any:
    return builder.load(pointer(builder, builder.add(table, builder.mul(place, _LONG(LONG))), _LONG))
