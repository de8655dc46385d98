"""Paged attention by FlashInfer (Ye et al. 2025), of GPUs, if it is installed: blocks of any size, nothing is copied.

It plans how a batch is divided among the GPU's multiprocessors before it runs. `follow` does that for a decode, outside
of what is captured, and each size of batch has a wrapper of its own, whose buffers a captured decode reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from auras_ros.models.fused_llama import Attend
from auras_ros.models.paged_attention import DecodeRow
from auras_ros.models.paged_kv import SPARE, PagedKVCache, PrefillSpan

WORKSPACE = 128 << 20  # bytes, as FlashInfer recommends
LAYOUT = "NHD"  # of a page: tokens, heads, numbers


class FlashInferAttention:
    """For caches in half precision."""

    def __init__(self, cache: PagedKVCache, query_heads: int, rows: int, width: int) -> None:
        """rows, width: of the largest batch and its longest table."""
        import flashinfer

        self.cache, self._wrappers = cache, flashinfer
        self._sizes = (query_heads, cache.heads, cache.store.shape[-1], cache.block)
        self._types = {"q_data_type": cache.store.dtype, "kv_data_type": cache.store.dtype}
        self._workspace = self._zeros(WORKSPACE, torch.uint8)
        self._indices = rows * width
        self._decoders: dict[int, Any] = {}
        self._prefiller = flashinfer.BatchPrefillWithPagedKVCacheWrapper(self._zeros(WORKSPACE, torch.uint8), LAYOUT)

    @staticmethod
    def takes(cache: PagedKVCache) -> bool:
        return cache.half and find_spec("flashinfer") is not None

    def follow(self, rows: Sequence[DecodeRow], batch: int, width: int) -> None:
        tables = [(row.table[: self.cache.needed(row.stored + 1)], row.stored + 1) for row in rows]
        tables += [([SPARE], 1)] * (batch - len(rows))
        self._decoder(batch).plan(*self._pages(tables), *self._sizes, **self._types)

    def decode(self, tables: Tensor, positions: Tensor) -> Attend:
        return self._attend(self._decoder(len(tables)), self.cache.slots(tables, positions))

    def prefill(self, spans: Sequence[PrefillSpan]) -> Attend:
        device = self.cache.store.device
        slots = [
            self.cache.slots(span.table.to(device), torch.arange(span.first, span.end, device=device)) for span in spans
        ]
        starts = torch.tensor([0, *(span.count for span in spans)]).cumsum(0).int()
        tables = [(span.table[: self.cache.needed(span.end)].tolist(), span.end) for span in spans]
        self._prefiller.plan(starts, *self._pages(tables), *self._sizes, causal=True, **self._types)
        return self._attend(self._prefiller, torch.cat(slots))

    def _attend(self, wrapper: Any, slots: Tensor) -> Attend:
        def attend(layer: int, query: Tensor, kv: Tensor) -> Tensor:
            self.cache.write(layer, slots, kv)
            seen: Tensor = wrapper.run(query, self.cache.pages(layer))
            return seen.flatten(1)

        return attend

    def _pages(self, tables: Sequence[tuple[Sequence[int], int]]) -> tuple[Tensor, Tensor, Tensor]:
        """Where each table begins, all tables, and the tokens in each one's last block; int32, on the host, where the
        plan is made. tables: blocks and tokens."""
        starts = torch.tensor([0, *(len(blocks) for blocks, _ in tables)]).cumsum(0).int()
        blocks = torch.tensor([block for blocks, _ in tables for block in blocks], dtype=torch.int32)
        last = torch.tensor([(tokens - 1) % self.cache.block + 1 for _, tokens in tables], dtype=torch.int32)
        return starts, blocks, last

    def _decoder(self, batch: int) -> Any:
        if batch not in self._decoders:
            self._decoders[batch] = self._wrappers.BatchDecodeWithPagedKVCacheWrapper(
                self._workspace,
                LAYOUT,
                use_cuda_graph=True,
                paged_kv_indptr_buffer=self._zeros(batch + 1),
                paged_kv_indices_buffer=self._zeros(self._indices),
                paged_kv_last_page_len_buffer=self._zeros(batch),
            )
        return self._decoders[batch]

    def _zeros(self, count: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.zeros(count, dtype=dtype, device=self.cache.store.device)
