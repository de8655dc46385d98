"""The C library's heap, set for a process that lives for days. Every program of this package that stays calls it.

It changes how memory is given back and nothing else; where the C library knows no such setting, nothing happens.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of glibc's mallopt
LARGE_BLOCK = 1 << 20  # bytes; one as large as this is mapped for itself and given back when it is freed
TENSOR_BLOCK = 1 << 25  # the same where large tensors come and go in every forward; glibc takes no more
KEPT_FREE = 8 << 20  # bytes at a heap's end that stay when they are freed: a raw image is copied several times
ARENAS = 2  # heaps that threads share; glibc's default is eight for each core


def bound_heap(large: int = LARGE_BLOCK) -> bool:
    """Keep the heap from growing with what once passed through it. Call it before threads start.

    glibc raises the size from which blocks are mapped for themselves to the largest one that was ever freed: after one
    prompt of 10 MB every image lies in the heap, between blocks that stay. And each thread takes a heap of its own,
    which is never whole again. large: bytes from which a block is mapped for itself; each time that costs a page fault
    for every 4 KiB, which was half of a vision-language request's CPU time. The same page faults were half of the time
    that an image of 640x480 takes between two rclpy processes (docs/fastdds.md), where the heap gave its end back after
    each. False where not all of it was granted.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    values = ((M_MMAP_THRESHOLD, large), (M_TRIM_THRESHOLD, max(large, KEPT_FREE)), (M_ARENA_MAX, ARENAS))
    granted = [bool(mallopt(key, value)) for key, value in values]  # each is tried, whatever became of the others
    return all(granted)


def trim_heap() -> None:
    """Give free memory between blocks in use back to the system: after much that was large has gone."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
