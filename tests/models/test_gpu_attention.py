"""Paged attention by kernels of GPUs, with doubles that compute plainly and refuse what the kernels refuse, against the
one that gathers blocks.

Guards: tokens beyond a sequence's own, a neighbour's block, or fill that is seen; a query of a later chunk that does
not see the earlier ones; a plan of another batch; indices in a type, or blocks of a size, that the kernels do not take.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from auras_ros.engine import build
from auras_ros.models import varlen_attention
from auras_ros.models.flashinfer_attention import FlashInferAttention
from auras_ros.models.paged_attention import DecodeRow, GatheredAttention, PagedAttention
from auras_ros.models.paged_kv import SPARE, PagedKVCache, PrefillSpan
from auras_ros.models.varlen_attention import VarlenAttention

LAYERS, BLOCKS, HEADS, GROUP, SIZE, ROWS, WIDTH = 2, 12, 2, 2, 8, 4, 4
CLOSE = {"atol": 0.02, "rtol": 0.02}


def paged(block: int, dtype: torch.dtype = torch.bfloat16) -> PagedKVCache:
    made = PagedKVCache(LAYERS, BLOCKS, block, HEADS, SIZE, dtype=dtype)
    made.store.copy_(torch.randn(made.store.shape, generator=torch.Generator().manual_seed(1)))
    return made


def seen(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The last query sees all keys, each one before it one less. query: [n, heads, d]; others [m, heads_kv, d]."""
    keys, values = (each.float().repeat_interleave(GROUP, 1) for each in (keys, values))
    scores = torch.einsum("nhd,mhd->hnm", query.float(), keys) / query.shape[-1] ** 0.5
    hidden = torch.ones(len(query), len(keys)).tril(len(keys) - len(query)) == 0
    return torch.einsum("hnm,mhd->nhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), values).to(query.dtype)


def varlen(
    query: Tensor, key: Tensor, value: Tensor, starts: Tensor, key_starts: Tensor, most: int, longest: int, *,
    window_size: tuple[int, int], enable_gqa: bool, seqused_k: Tensor, block_table: Tensor,
) -> Tensor:  # fmt: skip
    assert query.dtype == key.dtype == value.dtype
    assert query.element_size() == 2
    assert key.shape[1] % 256 == 0
    assert key.stride(-1) == value.stride(-1) == query.stride(-1) == 1
    assert all(each.dtype == torch.int32 for each in (starts, key_starts, seqused_k, block_table))
    assert len(starts) == len(key_starts) == len(seqused_k) + 1 == len(block_table) + 1
    assert window_size == (-1, 0)
    assert enable_gqa
    assert int(starts.diff().max()) <= most
    assert int(seqused_k.max()) <= longest <= block_table.shape[1] * key.shape[1]
    out = []
    for index, used in enumerate(seqused_k.tolist()):
        table = block_table[index].long()
        keys, values = (each[table].flatten(0, 1)[:used] for each in (key, value))
        out.append(seen(query[starts[index] : starts[index + 1]], keys, values))
    return torch.cat(out)


class Wrapper:
    """What both wrappers of FlashInfer have in common."""

    def __init__(self, workspace: Tensor, layout: str, **buffers: Any) -> None:
        assert workspace.dtype == torch.uint8
        assert layout == "NHD"
        self._buffers, self._planned = buffers, False

    def pages(self, starts: Tensor, blocks: Tensor, last: Tensor, *sizes: int) -> None:
        assert all(each.dtype == torch.int32 and each.device.type == "cpu" for each in (starts, blocks, last))
        assert int(starts[-1]) == len(blocks)
        assert len(starts) == len(last) + 1
        assert sizes[:3] == (HEADS * GROUP, HEADS, SIZE)
        assert bool(((last >= 1) & (last <= sizes[3])).all())
        assert bool((starts.diff() >= 1).all())
        if self._buffers:
            assert self._buffers["use_cuda_graph"]
            assert len(self._buffers["paged_kv_last_page_len_buffer"]) == len(last)
            assert len(self._buffers["paged_kv_indptr_buffer"]) == len(starts)
            assert len(self._buffers["paged_kv_indices_buffer"]) >= len(blocks)
        self.starts, self.blocks, self.last, self._planned = starts, blocks, last, True

    def run(self, query: Tensor, cache: tuple[Tensor, Tensor]) -> Tensor:
        assert self._planned, "run before plan"
        assert cache[0].stride() == cache[1].stride()
        assert len(query) == int(self.queries[-1])
        out = []
        for index, last in enumerate(self.last.tolist()):
            table = self.blocks[self.starts[index] : self.starts[index + 1]].long()
            used = (len(table) - 1) * cache[0].shape[1] + last
            keys, values = (each[table].flatten(0, 1)[:used] for each in cache)
            out.append(seen(query[self.queries[index] : self.queries[index + 1]], keys, values))
        return torch.cat(out)


class Decode(Wrapper):
    def plan(self, starts: Tensor, blocks: Tensor, last: Tensor, *sizes: int, **types: torch.dtype) -> None:
        assert set(types.values()) == {torch.bfloat16}
        self.pages(starts, blocks, last, *sizes)
        self.queries = torch.arange(len(last) + 1)


class Prefill(Wrapper):
    def plan(
        self, queries: Tensor, starts: Tensor, blocks: Tensor, last: Tensor, *sizes: int, causal: bool, **_: Any
    ) -> None:
        assert causal
        assert queries.dtype == torch.int32
        self.pages(starts, blocks, last, *sizes)
        self.queries = queries


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen_attention, "varlen_attn", varlen)
    wrappers = {"BatchDecodeWithPagedKVCacheWrapper": Decode, "BatchPrefillWithPagedKVCacheWrapper": Prefill}
    monkeypatch.setitem(sys.modules, "flashinfer", SimpleNamespace(**wrappers))


FORMS: dict[str, tuple[int, Callable[[PagedKVCache], PagedAttention]]] = {
    "varlen": (256, VarlenAttention),
    "flashinfer": (4, lambda cache: FlashInferAttention(cache, HEADS * GROUP, ROWS, WIDTH)),
}


@pytest.fixture(params=FORMS)
def both(request: pytest.FixtureRequest, kernels: None) -> tuple[PagedAttention, PagedAttention, int]:
    """The reference, the form, and tokens of a block."""
    block, make = FORMS[request.param]
    return GatheredAttention(paged(block)), make(paged(block)), block


def compare(both: Sequence[PagedAttention], attends: Sequence[Any], tokens: int, counted: int, seed: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    for layer in range(LAYERS):
        query = torch.randn(tokens, HEADS * GROUP, SIZE, generator=chance).bfloat16()
        kv = torch.randn(tokens, 2 * HEADS, SIZE, generator=chance).bfloat16()
        wanted, got = (attend(layer, query, kv)[:counted] for attend in attends)
        torch.testing.assert_close(got, wanted, **CLOSE)
    stores = [each.cache.store[:, SPARE + 1 :] for each in both]  # type: ignore[attr-defined]  # all forms have one
    assert torch.equal(*stores)


@torch.inference_mode()
def test_prefill_of_whole_prompts_and_of_later_chunks(both: tuple[PagedAttention, PagedAttention, int]) -> None:
    *forms, block = both
    spans = [
        PrefillSpan(0, block + 2, torch.tensor([3, 7, 1])),
        PrefillSpan(block - 1, 2, torch.tensor([5, 2])),
        PrefillSpan(2 * block, 1, torch.tensor([4, 9, 6])),
    ]
    count = sum(span.count for span in spans)
    compare(forms, [form.prefill(spans) for form in forms], count, count, 3)


@torch.inference_mode()
def test_decode_of_batches_that_change(both: tuple[PagedAttention, PagedAttention, int]) -> None:
    *forms, block = both
    steps: list[tuple[list[tuple[list[int], int]], int]] = [  # tables and tokens stored, and rows
        ([([3, 7], block), ([5], 2), ([4, 9, 6], 3 * block - 1)], 4),
        ([([5], 3), ([3, 7], block + 1)], 2),
        ([([5, 8], block), ([3, 7], block + 2), ([10], 0)], 4),
    ]
    for seed, (sequences, rows) in enumerate(steps):
        tables, positions = torch.full((rows, WIDTH), SPARE), torch.zeros(rows, dtype=torch.int64)
        for row, (table, stored) in enumerate(sequences):
            tables[row, : len(table)], positions[row] = torch.tensor(table), stored
        for form in forms:
            form.follow([DecodeRow(row, *each) for row, each in enumerate(sequences)], rows, WIDTH)
        compare(forms, [form.decode(tables, positions) for form in forms], rows, len(sequences), seed)


def test_a_size_of_batch_has_buffers_that_stay(kernels: None) -> None:
    form = FlashInferAttention(paged(4), HEADS * GROUP, ROWS, WIDTH)
    for rows in (2, 4, 2):
        form.follow([], rows, 1)
    assert sorted(form._decoders) == [2, 4]


def test_varlen_takes_no_other_blocks() -> None:
    said = r"varlen attention: torch\.bfloat16 in blocks of 16 tokens; it must be half precision, in a multiple of 256"
    with pytest.raises(ValueError, match=said):
        VarlenAttention(paged(16))
    assert not VarlenAttention.takes(paged(256, torch.float32))


@pytest.mark.parametrize(
    ("block", "dtype", "installed", "form"),
    [
        (16, torch.bfloat16, True, FlashInferAttention),
        (256, torch.bfloat16, False, VarlenAttention),
        (16, torch.bfloat16, False, GatheredAttention),
        (256, torch.float32, True, GatheredAttention),
    ],
)
def test_a_gpu_gets_the_fastest_form_that_takes_its_cache(
    block: int, dtype: torch.dtype, installed: bool, form: type[PagedAttention], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[type[PagedAttention]] = []

    def known(kind: type[PagedAttention]) -> type[PagedAttention]:
        return type(kind.__name__, (kind,), {"__init__": lambda *_: made.append(kind)})

    monkeypatch.setattr(FlashInferAttention, "takes", lambda cache: installed and cache.half)
    for kind in (FlashInferAttention, VarlenAttention, GatheredAttention):
        monkeypatch.setattr(build, kind.__name__, known(kind))
    cache = SimpleNamespace(store=SimpleNamespace(device=SimpleNamespace(type="cuda")), block=block,
                            half=dtype == torch.bfloat16)  # fmt: skip
    decoder = SimpleNamespace(config=SimpleNamespace(heads=4))
    build._attention(cache, decoder, ROWS, WIDTH)  # type: ignore[arg-type]  # no GPU here
    assert made == [form]
