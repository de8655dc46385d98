"""One side of `auras bench nova-offload`, in a process of its own: a vision tower whose weights are where the side has
them. It computes on one core; the physical layers' copies run on another.

Speaks JSON lines: once what it is, then for each line that it reads the times of some forwards.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import resource
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from auras_ros.device.cores import occupy
from auras_ros.device.cpu import CpuDevice
from auras_ros.device.offload import Offload, in_file, place
from auras_ros.device.swap import swap_layers
from auras_ros.device.swap_store import PREFIX
from auras_ros.device.weights import MB, Use
from auras_ros.heap import TENSOR_BLOCK, bound_heap, trim_heap
from auras_ros.models.linear import repack
from auras_ros.models.vit import Vit, VitConfig

HEAD, PATCH_PX = 64, 14
MADV_PAGEOUT = 21  # of Linux: give these pages back, those of the page cache too
LEFT = 0.02  # share of a file that may stay in the page cache when it is emptied
LEFT_PAGES = 31  # and of a core: those of its batch that no list of the kernel has yet, for as long as it is busy
PAGE_OUTS, PAGE_OUT_S = 50, 0.02  # pages that another core has just touched stay for a moment
ROLLUP = Path("/proc/self/smaps_rollup")
Facts = dict[str, Any]


def tower(spec: Facts) -> Vit:
    """Random weights, from the seed."""
    torch.manual_seed(spec["seed"])
    config = VitConfig(
        spec["px"], PATCH_PX, spec["width"], spec["layers"], spec["width"] // HEAD, 4 * spec["width"], feature_layer=-1
    )
    return Vit(config).eval().requires_grad_(False)


class Side:
    """resident, plain; or swap-K, accelerate, mmap. Packed ones multiply from oneDNN's blocks, as the engine does;
    the others' weights stay as they are, because neither accelerate nor a mapped file knows those blocks."""

    def __init__(self, spec: Facts) -> None:
        name, self._folder, self._mapped = spec["side"], Path(spec["folder"]), list[Tensor]()
        self._vision, self._device = tower(spec), CpuDevice()
        self.facts: Facts = {"layer_bytes": sum(each.nbytes for each in self._vision.layers[0].parameters())}
        self.facts["tower_bytes"] = sum(each.nbytes for each in self._vision.parameters())
        self._x = torch.randn(1, 3, spec["px"], spec["px"])
        if name == "resident" or name.startswith("swap-"):
            repack(self._vision)
        if name.startswith("swap-"):
            self._swap(int(name.removeprefix("swap-")), spec["copy_core"])
        elif name == "mmap":
            self._map()
        elif name == "accelerate":
            self._offload()
        trim_heap()
        output = self._forward()
        self.facts["digest"] = sha256(output.numpy().tobytes()).hexdigest()
        if self._mapped:
            os.sync()  # pages that are not yet written stay

    def times(self, count: int, cold: bool) -> Facts:
        """Of so many forwards after one that does not count, ms; and the memory after the last one."""
        took_ms, faults = [], _major_faults()
        for number in range(1 + count):
            if cold:
                self._page_out()
            began_s = time.perf_counter()
            self._forward()
            if number:
                took_ms.append(1e3 * (time.perf_counter() - began_s))
        trim_heap()
        lines = (line.split() for line in ROLLUP.read_text().splitlines()[1:])
        sizes = {line[0]: int(line[1]) << 10 for line in lines}
        memory = {"resident_bytes": sizes["Rss:"], "cached_bytes": self._cached()}
        return {"ms": took_ms, "major_faults": (_major_faults() - faults) / (1 + count), **memory}

    def _forward(self) -> Tensor:
        with torch.no_grad():
            output: Tensor = self._vision(self._x)
        return output

    def _swap(self, physical: int, core: int) -> None:
        lane = self._device.lane("swap", [core], 1)
        plan = swap_layers(self._vision.layers, physical, self._folder, self._device, lane, self._forward)
        self.facts |= {"bandwidth": plan.bandwidth, "demand": plan.demand, "holds": plan.hidden, "plan": str(plan)}
        self.facts["layers_resident"] = len(plan.resident)

    def _map(self) -> None:
        """The layers' weights are the pages of a file."""
        weights = list(self._vision.layers.parameters())
        self._mapped = in_file(weights, self._folder)
        for weight, mapped in zip(weights, self._mapped, strict=True):
            weight.data = mapped

    def _offload(self) -> None:
        """accelerate's hooks copy in what is not within the limit: as much stays as two layers, beside what must."""
        layers = sum(each.nbytes for each in self._vision.layers.parameters())
        limit = self.facts["tower_bytes"] - layers + 2 * self.facts["layer_bytes"]
        offload = Offload(limit / MB, self._folder)
        place(self._vision, torch.device("cpu"), offload, lambda: [Use(self._forward)])
        hooks: list[Any] = [getattr(part, "_hf_hook", None) for part in self._vision.modules()]
        self._mapped = [each for hook in hooks if hook is not None for each in hook.weights_map.values()]

    def _page_out(self) -> None:
        """A mapped file's pages leave the process and the page cache. Raises OSError if they stay."""
        if not self._mapped:
            return
        start, size = _span(self._mapped)
        may_stay = LEFT * size + LEFT_PAGES * mmap.PAGESIZE * (os.cpu_count() or 1)
        for _ in range(PAGE_OUTS):
            if _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), MADV_PAGEOUT):
                raise OSError(ctypes.get_errno(), "madvise")
            if (left := _in_core(start, size)) <= may_stay:
                return
            time.sleep(PAGE_OUT_S)
        raise OSError(f"{left} of {size} bytes stay in the page cache")

    def _cached(self) -> int:
        """Bytes of the swap file in the page cache, which no process's own memory shows; a mapped file's pages are in
        the resident set."""
        found = 0
        for each in Path("/proc/self/fd").iterdir():
            if PREFIX in (os.readlink(each) if each.is_symlink() else ""):
                with mmap.mmap(int(each.name), 0, flags=mmap.MAP_SHARED) as mapped:
                    found += _in_core(torch.frombuffer(mapped, dtype=torch.uint8).data_ptr(), len(mapped))
        return found


def _span(tensors: list[Tensor]) -> tuple[int, int]:
    """Address and size of the pages around all of them, which lie in one mapping."""
    start = min(each.data_ptr() for each in tensors) // mmap.PAGESIZE * mmap.PAGESIZE
    return start, max(each.data_ptr() + each.nbytes for each in tensors) - start


def _in_core(start: int, size: int) -> int:
    """Bytes of the file mapped there that are in memory, whoever holds them."""
    pages = (ctypes.c_uint8 * -(-size // mmap.PAGESIZE))()
    if _libc().mincore(ctypes.c_void_p(start), ctypes.c_size_t(size), pages):
        raise OSError(ctypes.get_errno(), "mincore")
    return sum(each & 1 for each in pages) * mmap.PAGESIZE


def _major_faults() -> int:
    """Times that this process waited for a page from a disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def main(say: Callable[[str], Any] = lambda line: print(line, flush=True)) -> None:
    spec = json.loads(sys.argv[1])
    bound_heap(TENSOR_BLOCK)
    occupy(spec["side"], frozenset({spec["core"]}), 1)
    side = Side(spec)
    say(json.dumps(side.facts))
    for line in sys.stdin:
        say(json.dumps(side.times(**json.loads(line))))


if __name__ == "__main__":
    main()
