"""Adapters in memory: each slot is a run of the blocks that hold keys and values, so that both share one budget (VaLoRA
5: unified memory). A slot holds an adapter of the largest rank; a smaller one leaves its end unused."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from auras_ros.checkpoints.peft import LoraFactors, PeftAdapter
from auras_ros.checkpoints.task_head import TaskHead
from auras_ros.kernels.grouped_lora import Factors, FactorSet
from auras_ros.lora.sites import Site, up_to
from auras_ros.models.fused_llama import HEAD

LINE = 16  # bytes that a GPU's thread reads at once
KERNEL_RANKS = 8  # ranks are multiples of it for a GPU's kernels: rows of B begin at such bytes in half precision
FactorTable = dict[tuple[int, str], FactorSet]
"""(layer, site) -> slot -> what the adapter in it has there."""


@dataclass(frozen=True)
class Resident:
    """An adapter in a slot. vision: what it changes of the encoder and what follows it, by our layer's name. One that
    has left and was read again, to another slot perhaps, is equal."""

    adapter: str = field(compare=False)
    digest: str
    slot: int = field(compare=False)
    decoder: dict[tuple[int, str], Factors] = field(compare=False)
    vision: dict[str, LoraFactors] = field(compare=False)
    head: TaskHead | None = field(default=None, compare=False)


class AdapterSlots:
    """Raises ValueError if they leave no blocks."""

    def __init__(
        self,
        store: Tensor,
        sites: Sequence[Site],
        head: Site | None,
        rank: int,
        slots: int,
        kernels: bool = False,
        halves: bool = False,
    ) -> None:
        """store: `PagedKVCache.store`. head: of a model that has one. rank: the largest of a layer's adapter. kernels:
        whether our kernels for a GPU read the factors, and not a CPU's. halves: whether factors whose numbers are all
        bfloat16's, as files of adapters have them, are kept so in a float32 store: a CPU reads half as much."""
        self.rank, self.count, self._kernels, self._halves = rank, slots, kernels, halves
        self.placed_rank = placed_rank(rank, kernels)
        self._sites, self._head = sites, head
        self._layers = store.flatten(2)  # [layers, blocks, numbers]
        self.blocks = slot_blocks(sites, self.placed_rank, self._layers.shape[2])
        self._end = self._layers.shape[1]
        if slots * self.blocks > self._end - 2:
            raise ValueError(
                f"engine: max_loras: {slots} of rank {rank} take {slots * self.blocks} blocks, and kv_mib holds"
                f" {self._end - 1}: none would be left for keys and values"
            )
        self.table: FactorTable = {}
        self._changed, self._changing = set[tuple[int, str]](), threading.Lock()

    @property
    def device(self) -> torch.device:
        return self._layers.device

    def taken_changes(self) -> set[tuple[int, str]]:
        """Where the table has changed since the last call."""
        with self._changing:
            changed, self._changed = self._changed, set()
        return changed

    def aligned(self, site: Site) -> bool:
        """Whether all factors that a GPU's kernels read there, and their rows, begin at multiples of 16 bytes."""
        size = self._layers.element_size()
        return all(size * numbers % LINE == 0 for numbers in (site.width, KERNEL_RANKS, self._layers.shape[2]))

    def range(self, slot: int) -> range:
        """The blocks of a slot: the last ones first, as requests take the first ones."""
        end = self._end - slot * self.blocks
        return range(end - self.blocks, end)

    def check(self, adapter: PeftAdapter) -> None:
        """Raises ValueError if it is larger than a slot, or its numbers than the weights' type."""
        for name, factors in adapter.factors.items():
            if not all(bool(each.to(self._layers.dtype).isfinite().all()) for each in factors):
                raise ValueError(f"{name}: a number is beyond the range of {self._layers.dtype}")
            if len(factors.a) > self.rank and name.startswith("language."):
                raise ValueError(f"{name}: rank {len(factors.a)}, expected {self.rank} at most (max_lora_rank)")

    def write(self, slot: int, adapter: PeftAdapter) -> Resident:
        """Into the slot's blocks, which are nobody else's."""
        blocks, multiple = self.range(slot), placed_rank(1, self._kernels)
        decoder = dict[tuple[int, str], Factors]()
        for layer in range(len(self._layers)):
            room, begin = self._layers[layer, blocks.start : blocks.stop].view(-1), 0
            for site in self._sites:
                factors = site.factors(layer, adapter.factors, multiple)
                if factors is not None:
                    decoder[layer, site.name] = _placed(room[begin:], factors, self._kernels, self._halves)
                begin += site.numbers(self.placed_rank)
        if self._head is not None and (factors := self._head.factors(HEAD, adapter.factors, multiple)) is not None:
            room = self._layers.new_empty(sum(each.numel() for each in factors))
            decoder[HEAD, self._head.name] = _placed(room, factors, self._kernels, self._halves)
        vision = {
            name: LoraFactors(*(each.to(self._layers) for each in factors))
            for name, factors in adapter.factors.items()
            if not name.startswith("language.")
        }
        head, device = adapter.head, self.device
        if head is not None:
            head = replace(head, weight=head.weight.to(device), bias=head.bias.to(device))
        finish(device)
        return Resident(adapter.name, adapter.digest, slot, decoder, vision, head)

    def publish(self, resident: Resident) -> None:
        """Forwards find it from now on."""
        for place, factors in resident.decoder.items():
            self.table.setdefault(place, FactorSet())[resident.slot] = factors
        with self._changing:
            self._changed.update(resident.decoder)

    def withdraw(self, slot: int) -> None:
        changed = [place for place, factors in self.table.items() if factors.pop(slot, None) is not None]
        with self._changing:
            self._changed.update(changed)


def placed_rank(rank: int, kernels: bool) -> int:
    """With the zeros that make it one that a GPU's kernels read in whole lines. kernels: of `AdapterSlots`."""
    return up_to(rank, KERNEL_RANKS if kernels else 1)


def slot_blocks(sites: Sequence[Site], rank: int, numbers: int) -> int:
    """Blocks of a slot. rank: `placed_rank`. numbers: that a block has in a layer."""
    return -(-sum(site.numbers(rank) for site in sites) // numbers)


def finish(device: torch.device) -> None:
    """Waits until what this thread has written on a GPU is there for every stream."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def _placed(room: Tensor, factors: Factors, kernels: bool, halves: bool) -> Factors:
    """Copied to the beginning of `room`, in its type or, if nothing is lost, in bfloat16. For a CPU B's outputs stand
    side by side, as MKL and our own kernels read few rows' factors quickest; our kernels for a GPU expect the ranks."""
    if halves and all(torch.equal(each, each.bfloat16().float()) for each in factors):
        room = room.view(torch.bfloat16)
    a = room[: factors.a.numel()].view_as(factors.a)
    rest, b = room[factors.a.numel() :][: factors.b.numel()], factors.b
    b = rest.view_as(b) if kernels else rest.view(b.shape[1], -1).t()
    a.copy_(factors.a)
    b.copy_(factors.b)
    return Factors(a, b)
