"""What passes through a process leaves its heap again.

Guards: a heap that grows for ever after one huge message; a program that forgets to ask.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from auras_ros import heap
from auras_ros.nodes.actuator import node as actuator
from auras_ros.nodes.agent import node as agent
from auras_ros.nodes.vlm import node as vlm
from auras_ros.ros import process
from auras_ros.sim.bridge import node as bridge

ROOT = Path(__file__).resolve().parents[1]
HUGE = """
import ctypes, json
from auras_ros import heap
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena o s hblks h u f uo fo k".split()]
libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
{before}
libc.free(libc.malloc(10 << 20))  # a huge prompt came and went
mapped = libc.mallinfo2().hblks
block = libc.malloc(2 << 20)
print(json.dumps(libc.mallinfo2().hblks - mapped))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs a C library with mallinfo2 (glibc 2.33)")
@pytest.mark.parametrize(("before", "mapped"), [("assert heap.bound_heap()", 1), ("", 0)])
def test_a_large_block_is_mapped_for_itself_even_after_a_larger_one(before: str, mapped: int) -> None:
    """The second case is what the first is for: the C library's own rule puts the block into the heap."""
    code = HUGE.format(before=before)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == mapped


def test_every_setting_is_tried_and_a_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    def mallopt(key: int, value: int) -> int:
        calls.append((key, value))
        return int(key != refused)

    library: Any = SimpleNamespace(mallopt=mallopt)
    monkeypatch.setattr(ctypes, "CDLL", lambda *rest: library)
    refused = 0
    assert heap.bound_heap()
    assert calls == [(-3, 1 << 20), (-1, 8 << 20), (-8, 2)]
    assert heap.bound_heap(heap.TENSOR_BLOCK)
    assert calls[3:] == [(-3, 1 << 25), (-1, 1 << 25), (-8, 2)]
    refused = -3
    assert not heap.bound_heap()
    assert len(calls) == 9
    del library.mallopt
    assert not heap.bound_heap()


IMAGES = """
import ctypes, json, resource
from auras_ros import heap
{before}
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
size = 640 * 480 * 3
def image():
    copies = [libc.malloc(size) for _ in range(3)]  # a payload, a message, an array
    for copy in copies:
        ctypes.memset(copy, 1, size)
    for copy in copies:
        libc.free(copy)
image()
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    image()
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc")
def test_an_image_finds_the_memory_of_the_image_before() -> None:
    """Guards against a page fault for each 4 KiB of each copy: 13,500 of them here, half of an image's latency."""
    code = IMAGES.format(before="assert heap.bound_heap()")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) < 500


class AskedError(Exception):
    pass


@pytest.mark.parametrize("module", [agent, actuator, bridge, vlm])
def test_every_program_that_stays_asks_first(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it reads its arguments: threads that run already keep the heaps that they have."""
    asked: list[int] = []

    def ask(large: int) -> bool:
        asked.append(large)
        raise AskedError

    monkeypatch.setattr(process, "bound_heap", ask)
    with pytest.raises(AskedError):
        module.main(["--ros-args", "-r", "not a remapping"])
    assert asked == [heap.TENSOR_BLOCK if module is vlm else heap.LARGE_BLOCK]
