"""Requests' block tables: what of a prompt is there already, what its next tokens need, and what is given back."""

from __future__ import annotations

from typing import NamedTuple

import torch

from auras_ros.engine.active import ActiveRequest
from auras_ros.engine.blocks import BlockPool
from auras_ros.lora.runtime import LoraRuntime
from auras_ros.models.paged_kv import PagedKVCache


class EngineMemory(NamedTuple):
    """Keys and values of requests, and the adapters that stand in the same blocks; None: there are none."""

    cache: PagedKVCache
    lora: LoraRuntime | None = None


class BlockTables:
    """prefix: whether blocks of earlier prompts are used again. slots: of the last blocks, those that adapters have if
    any are in memory. reserved: blocks that no request can have now."""

    def __init__(self, cache: PagedKVCache, prefix: bool, slots: int = 0) -> None:
        self.reserved = 0
        self._cache, self._pool = cache, BlockPool(cache.blocks, prefix, slots)

    @property
    def free(self) -> int:
        return self._pool.free

    @property
    def size(self) -> int:
        return self._pool.size

    def reserve(self, blocks: range) -> bool:
        """These blocks for something else than keys and values, unless a request owns one of them."""
        taken = self._pool.take_these(blocks)
        self.reserved += len(blocks) if taken else 0
        return taken

    def unreserve(self, blocks: range) -> None:
        self._cache.clear(torch.tensor(blocks))  # what stood there may be no finite number as keys
        self._pool.give_back(blocks)
        self.reserved -= len(blocks)

    def remaining(self, active: ActiveRequest) -> int:
        """Tokens that a prefill has to compute, with what earlier prompts have left."""
        if active.table:
            return active.remaining
        return active.remaining - self._pool.known(active.reusable(self._cache.block)) * self._cache.block

    def lacking(self, active: ActiveRequest, count: int) -> int:
        """Blocks that `count` more tokens take from `free` at most."""
        done = len(active.ids) - self.remaining(active)
        there = len(active.table) or self._pool.owned(active.reusable(self._cache.block))
        return max(self._cache.needed(done + count) - there, 0)

    def share(self, active: ActiveRequest) -> None:
        """A request without blocks begins with those of earlier prompts that begin alike."""
        active.table = self._pool.share(active.reusable(self._cache.block))
        active.stored = len(active.table) * self._cache.block
        if not active.preempted:
            active.cached = active.stored

    def grow(self, active: ActiveRequest, count: int) -> bool:
        """Blocks for `count` more tokens; False and nothing taken if there are too few."""
        needed = self._cache.needed(active.stored + count) - len(active.table)
        blocks = self._pool.take(max(needed, 0))
        active.table += blocks or []
        return blocks is not None

    def stored(self, active: ActiveRequest, count: int) -> None:
        """`count` more tokens have their keys and values; full blocks can be found by others. To be called when the
        next token is known."""
        before, block = active.stored // self._cache.block, self._cache.block
        active.stored += count
        for index in range(before, active.stored // block):
            self._pool.keep(active.table[index], active.hashes(block)[index])

    def give_back(self, active: ActiveRequest, forget: bool = False) -> None:
        """All of its blocks. forget: they may hold numbers that are not finite."""
        if forget:
            self._cache.clear(torch.tensor(self._pool.forget(active.table), dtype=torch.int64))
        else:
            self._pool.give_back(active.table)
        active.table, active.stored = [], 0
