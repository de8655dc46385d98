"""A device whose stages are what a CUDA graph is: the operations that ran when it was captured, on the same tensors.

The body's Python runs once, at the first launch. What it reads then, and not from a tensor that keeps its address, is
what every later launch computes with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from auras_ros.device.cpu import CpuDevice
from auras_ros.device.lane import Lane, Stage
from auras_ros.kernels.grouped_lora import RowGroup, RowGroups, add_lora_
from auras_ros.kernels.lora_index import GroupIndex, LayerPointers
from auras_ros.kernels.lora_table import FixedWay
from auras_ros.kernels.lora_ways import way_named

SEGMENTED = FixedWay(way_named("segmented"))
READS_BACK = torch.ops.aten._local_scalar_dense.default


class Tape(TorchDispatchMode):
    """The operations of one body. launches: how often it ran."""

    def __init__(self, body: Callable[[], None]) -> None:
        super().__init__()
        self._body, self.launches = body, 0
        self._calls = list[tuple[Callable[..., Any], Any, Any, Any]]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is READS_BACK:
            raise AssertionError("a value is read back while the stage is captured")
        out = func(*args, **(kwargs or {}))
        self._calls.append((func, args, kwargs or {}, out))
        return out

    def call(self, run: Callable[..., None], *args: Any) -> None:
        """A kernel of our own: one operation, whatever it reads."""
        with _disable_current_modes():
            run(*args)
        self._calls.append((run, args, {}, None))

    def __call__(self) -> None:
        self.launches += 1
        if self.launches == 1:
            TAPES.append(self)
            with self:
                self._body()
            return
        for func, args, kwargs, out in self._calls:
            again = func(*args, **kwargs)
            for kept, new in zip(tree_leaves(out), tree_leaves(again), strict=True):
                if isinstance(kept, Tensor) and kept.data_ptr() != new.data_ptr():
                    kept.copy_(new)


TAPES: list[Tape] = []
"""In the order in which they were captured: the last one is that of the body that runs."""


class ReplayingDevice(CpuDevice):
    def __init__(self) -> None:
        super().__init__()
        self.tapes = list[Tape]()

    def capture(self, name: str, body: Callable[[], None], lane: Lane) -> Stage:
        self.tapes.append(Tape(body))
        return super().capture(name, self.tapes[-1], lane)


class TorchKernels:
    """What `TritonLora` does, by the reference: groups, ranks and factors are found at each launch in what the index
    and the layer's tensors have then, factors by their addresses. forgetful: groups are those of the capture."""

    forgetful = False

    def __init__(self, index: GroupIndex, rank: int, parts: int) -> None:
        self.index, self.rank, self.parts = index, rank, parts

    def add_(self, y: Tensor, x: Tensor, layer: LayerPointers) -> None:
        captured = bool(TAPES) and torch.utils._python_dispatch._len_torch_dispatch_stack() > 0
        groups = self._groups() if self.forgetful and captured else None
        if captured:
            TAPES[-1].call(self._launch, y, x, layer, groups)
        else:
            self._launch(y, x, layer, groups)

    def _launch(self, y: Tensor, x: Tensor, layer: LayerPointers, groups: RowGroups | None) -> None:
        rows, held = groups or self._groups(), {each.a.data_ptr(): each for each in layer._held}
        factors = {slot: held[address] for slot, address in enumerate(layer.a.tolist()) if address}
        for slot, each in factors.items():
            assert (each.b.data_ptr(), each.b.shape[1]) == (int(layer.b[slot]), int(layer.ranks[slot]))
        add_lora_(y, x, rows, factors, layer.bounds.tolist(), SEGMENTED)

    def _groups(self) -> RowGroups:
        with _disable_current_modes():
            found = list[RowGroup]()
            for sign in self.index.signs:
                lists = zip(*(each.tolist() for each in self.index.of(sign)), strict=True)
                found += [RowGroup(slot, begin, end, sign) for begin, end, slot in lists if end > begin]
            return RowGroups(found, self.index.order[: max((each.end for each in found), default=0)].long())
