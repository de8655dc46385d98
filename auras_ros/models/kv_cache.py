"""Keys and values of past tokens, kept between forwards.

A forward gives its positions once (`at`) and gets an `Attend`: each layer passes queries, keys and values to it and
gets the attention's output. The cache decides where keys lie and how they are read. A cache knows neither requests nor
time, nor whether a kept key still fits the current input: its owner writes again from the first stale position on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, query [B, heads, T, d], key and value [B, heads_kv, T, d]) -> [B, heads, T, d]; heads_kv divides heads."""


class KVCache(Protocol):
    """Where a forward's keys and values go and what its queries see."""

    def at(self, positions: Tensor, mask: Tensor | None = None) -> Attend: ...


def within(mask: Tensor | None = None) -> Attend:
    """Causal attention of the tokens of one forward to one another; nothing is kept. `mask`: bool [B or 1, T, T]."""

    def attend(_layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if mask is None:
            return attention(query, key, value)
        tokens = query.shape[2]
        earlier = torch.ones(tokens, tokens, dtype=torch.bool, device=query.device).tril()
        return attention(query, key, value, (mask & earlier)[:, None])

    return attend


def attention(query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None = None) -> Tensor:
    """Softmax attention with grouped heads; `visible` bool [B or 1, 1, T, S], or None: causal with T = S."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    return F.scaled_dot_product_attention(query, key, value, visible, is_causal=visible is None)


class StaticKVCache:
    """One block of memory for all layers, allocated once: `store` [layers, 2, B, heads_kv, length, head_dim].

    A position is visible once it has been written, so a gap is never read. Capturable: no method reads a value back,
    and addresses never change.
    """

    def __init__(
        self,
        layers: int,
        batch: int,
        heads: int,
        length: int,
        head_dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        for name, size in (("layers", layers), ("batch", batch), ("heads", heads), ("length", length)):
            if size < 1:
                raise ValueError(f"KV cache: {name}: {size} is less than 1")
        self.store = torch.zeros(layers, 2, batch, heads, length, head_dim, dtype=dtype, device=device)
        self.written = torch.zeros(batch, length, dtype=torch.bool, device=device)
        self._all = torch.arange(length, device=device)

    @property
    def length(self) -> int:
        return self.store.shape[4]

    @property
    def batch(self) -> int:
        return self.store.shape[2]

    def at(self, positions: Tensor, mask: Tensor | None = None) -> Attend:
        """The attention of one forward over `positions`: int64 [T] for every row, or [B, T]; each once in a row.

        Each layer's keys and values are stored there; then query t sees every stored position up to its own. `mask`
        (bool [B or 1, T, length]) hides more where it is False, never all that a query sees. Raises ValueError, naming
        the shape that does not fit.
        """
        self._check(positions, mask)
        shared = positions.dim() == 1
        rows = positions.expand(self.batch, -1)
        self.written.scatter_(1, rows, True)
        visible = (self._all <= rows[..., None]) & self.written[:, None]
        visible = (visible if mask is None else visible & mask)[:, None]

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            keys, values = self.store[layer]
            for kept, new in ((keys, key), (values, value)):
                if shared:
                    kept.index_copy_(2, positions, new)
                else:
                    kept.scatter_(2, rows[:, None, :, None].expand_as(new), new)
            return attention(query, keys, values, visible)

        return attend

    def _check(self, positions: Tensor, mask: Tensor | None) -> None:
        tokens = positions.shape[-1] if positions.dim() else 0
        if positions.dtype != torch.int64 or positions.shape not in ((tokens,), (self.batch, tokens)):
            got = f"{positions.dtype} {list(positions.shape)}"
            raise ValueError(f"KV cache: positions: {got}, expected torch.int64 [T] or [{self.batch}, T]")
        if not 0 < tokens <= self.length:
            raise ValueError(f"KV cache: positions: {tokens} tokens, but there is room for {self.length}")
        if mask is not None and mask.shape not in ((1, tokens, self.length), (self.batch, tokens, self.length)):
            expected = f"[{self.batch} or 1, {tokens}, {self.length}]"
            raise ValueError(f"KV cache: mask: {list(mask.shape)}, expected {expected}")
