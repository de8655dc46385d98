"""Any decoder of the x-transformers library as a generation module, given by the library's own keywords (Auras 5).

Embeddings go through the library's whole forward, so that every keyword keeps its meaning. Keys and values are not
kept: the library's cache grows by concatenation and takes only the next token, while a refresh writes positions in the
middle and a captured stage needs fixed addresses. Embeddings are kept instead (`EmbeddingStore`) and each forward
covers all of them. A causal decoder's hidden states do not depend on later positions, so stale or zero embeddings there
change nothing. A decoder that is not causal is refused at construction (`x_check`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from auras_ros.models.x_check import KeywordError, refuse_unless_causal

# Of the wrapper's keywords, those that follow from the arguments here; and the one whose generate ends a loop early,
# depending on a value: a captured stage cannot do that, and a forward alone does not.
OURS = {"num_tokens", "max_seq_len", "attn_layers", "token_emb", "to_logits", "logits_dim"}
EARLY = "looped"


class EmbeddingStore:
    """The embeddings of a whole sequence, allocated once: `embeddings` [B, length, width], zero if not yet written."""

    def __init__(self, batch: int, length: int, width: int, dtype: torch.dtype, device: torch.device) -> None:
        for name, size in (("batch", batch), ("length", length)):
            if size < 1:
                raise ValueError(f"embedding store: {name}: {size} is less than 1")
        self.embeddings = torch.zeros(batch, length, width, dtype=dtype, device=device)

    @property
    def length(self) -> int:
        return self.embeddings.shape[1]

    def put(self, positions: Tensor, embeddings: Tensor) -> None:
        """positions: int64 [T] for every row, or [B, T]; embeddings [B, T, width]."""
        if positions.dim() == 1:
            self.embeddings.index_copy_(1, positions, embeddings)
        else:
            self.embeddings.scatter_(1, positions[..., None].expand_as(embeddings), embeddings)


class XDecoder(nn.Module):
    """`policies.autoregressive.CausalDecoder` made of TransformerWrapper(attn_layers=Decoder(**decoder), **wrapper).

    vocabulary: num_tokens. tokens: max_seq_len, how many tokens can follow the prefix. prefix: how many embeddings come
    before them, as the library's `prepend_embeds`: without absolute positions, which count from the first token. With
    prefix 0, the embeddings are those of tokens from the first one on. Raises ValueError, naming the keyword without
    which it would be a causal decoder of embeddings, and ImportError without the library.
    """

    def __init__(
        self,
        vocabulary: int,
        tokens: int,
        decoder: Mapping[str, Any],
        wrapper: Mapping[str, Any] | None = None,
        prefix: int = 0,
    ) -> None:
        super().__init__()
        for name, size, least in (("vocabulary", vocabulary, 1), ("tokens", tokens, 1), ("prefix", prefix, 0)):
            if type(size) is not int or size < least:
                raise ValueError(f"x-transformers: {name}: {size!r} is not a whole number of at least {least}")
        for key in sorted(OURS & (wrapper or {}).keys()):
            raise ValueError(f"x-transformers: keyword '{key}' is set here and cannot be given")
        if (wrapper or {}).get(EARLY):
            raise ValueError(f"x-transformers: keyword '{EARLY}': the number of loops depends on the values")
        self.vocabulary, self.tokens, self.prefix = vocabulary, tokens, prefix
        self.decoder_keywords, self.wrapper_keywords = dict(decoder), dict(wrapper or {})
        refuse_unless_causal(_build, run, tokens, prefix, self.decoder_keywords, self.wrapper_keywords)
        self.net: Any = _build(vocabulary, tokens, self.decoder_keywords, self.wrapper_keywords)

    @property
    def width(self) -> int:
        """Width of the input embeddings."""
        return int(self.net.emb_dim)

    def embed(self, ids: Tensor) -> Tensor:
        """Token ids int64 [...] -> [..., width], without positions: the forward adds them."""
        embedded: Tensor = self.net.token_emb(ids)
        return embedded

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states [..., dim] -> the next token's scores [..., vocabulary]."""
        scores: Tensor = self.net.to_logits(hidden)
        return scores

    def make_cache(self, batch: int, length: int) -> EmbeddingStore:
        """Memory for prefix and tokens, `length` in all. Raises ValueError for more than the keywords allow."""
        self._check(length)
        weight: Tensor = self.net.token_emb.emb.weight
        return EmbeddingStore(batch, length, self.width, weight.dtype, weight.device)

    def forward(
        self, embeddings: Tensor, positions: Tensor | None = None, cache: EmbeddingStore | None = None
    ) -> Tensor:
        """Embeddings [B, T, width] -> hidden states [B, T, dim], normalised: the input of `logits`.

        Without a store they are a sequence from its start, prefix first. With one they are stored at `positions` (int64
        [T] or [B, T]) and see everything before each. Raises ValueError for one without the other.
        """
        if (positions is None) != (cache is None):
            raise ValueError("x-transformers: positions need a store, and a store needs positions")
        if positions is None or cache is None:
            self._check(embeddings.shape[1])
            return run(self.net, embeddings, self.prefix)
        cache.put(positions, embeddings)
        hidden = run(self.net, cache.embeddings, self.prefix)
        if positions.dim() == 1:
            return hidden.index_select(1, positions)
        return hidden.gather(1, positions[..., None].expand(-1, -1, hidden.shape[-1]))

    def _check(self, length: int) -> None:
        if length > self.prefix + self.tokens:
            room = f"{self.prefix} of prefix and {self.tokens} tokens"
            raise ValueError(f"x-transformers: {length} embeddings, but there is room for {room}")


def run(net: nn.Module, embeddings: Tensor, prefix: int) -> Tensor:
    """A wrapper's hidden states of a whole sequence of embeddings, whose first `prefix` are its prefix."""
    before = embeddings[:, :prefix] if prefix else None
    hidden: Tensor = net(embeddings[:, prefix:], prepend_embeds=before, return_embeddings=True)
    return hidden


def _build(vocabulary: int, tokens: int, decoder: Mapping[str, Any], wrapper: Mapping[str, Any]) -> nn.Module:
    """The library's wrapper, whose token embedding returns embeddings unchanged. Raises what the library raises."""
    from x_transformers import Decoder, TransformerWrapper
    from x_transformers.x_transformers import TokenEmbedding

    class _TokenPositions(TokenEmbedding):  # type: ignore[misc]
        """Ids are embedded, embeddings are not."""

        def forward(self, x: Tensor) -> Tensor:
            embedded: Tensor = x if x.is_floating_point() else super().forward(x)
            return embedded

    if "emb_dim" not in wrapper and "dim" not in decoder:
        raise KeywordError("keyword 'dim' is missing")
    layers = Decoder(**{"verbose": False, **decoder})
    width = wrapper.get("emb_dim") or decoder["dim"]
    table = _TokenPositions(width, vocabulary, l2norm_embed=wrapper.get("l2norm_embed", False))
    net: nn.Module = TransformerWrapper(
        num_tokens=vocabulary, max_seq_len=tokens, attn_layers=layers, token_emb=table, **wrapper
    )
    return net
