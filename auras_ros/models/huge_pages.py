"""Weights in huge pages: a processor that reads hundreds of megabytes in every decode then looks up a few hundred
addresses for them, not a hundred thousand."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

from torch import Tensor

HUGE, COLLAPSE = 2 << 20, 25  # bytes of a page; Linux's MADV_COLLAPSE, from 6.1 on


def move_to_huge_pages(data: Tensor) -> bool:
    """Moves what this tensor has in a CPU's memory into huge pages; its address stays. Takes about as long as copying
    it a few times. Returns False, and changes nothing, where it is smaller than some pages or the system has none to
    give: it is slower then, and as right."""
    size = data.numel() * data.element_size()
    if data.device.type != "cpu" or size < 2 * HUGE or not data.is_contiguous():
        return False
    first = -(-data.data_ptr() // HUGE) * HUGE
    end = (data.data_ptr() + size) // HUGE * HUGE
    advise = _advise()
    return advise is not None and advise(first, end - first, COLLAPSE) == 0


@cache
def _advise() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        advise = ctypes.CDLL(None).madvise
    except (AttributeError, OSError):
        return None
    advise.argtypes, advise.restype = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int], ctypes.c_int
    return advise
