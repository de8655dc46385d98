"""What the tests ask of a Llama beyond its forward: every layer's hidden states, and plain greedy decoding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from auras_ros.models.kv_cache import StaticKVCache
from auras_ros.models.llama import Llama
from auras_ros.models.vision_language import VisionLanguage


def hidden_states(decoder: Llama, embeddings: Tensor, *rest: Any) -> list[Tensor]:
    """The embeddings, then what each layer hands on; of the last layer behind the norm. rest: as `Llama.forward`."""
    found = [embeddings]
    hooks = [layer.register_forward_hook(lambda _layer, _given, out: found.append(out)) for layer in decoder.layers]
    try:
        last = decoder(embeddings, *rest)
    finally:
        for hook in hooks:
            hook.remove()
    return [*found[:-1], last]


def scores(model: VisionLanguage, images: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """The next token's scores at every position of [before, picture, after], [B, T, vocabulary]."""
    return model.language.logits(model.language(model.prefix(model.see(images), before, after)))


@torch.no_grad()
def greedy(decoder: Llama, prefix: Tensor, steps: int, cache: StaticKVCache) -> Tensor:
    """The `steps` most likely tokens after `prefix` [B, P, width], one after the other: ids int64 [B, steps].

    Positions 0 to P + steps - 2 of the cache are overwritten; it need not be empty.
    """
    tokens = prefix.shape[1]
    positions = torch.arange(tokens + steps - 1, device=prefix.device)
    hidden = decoder(prefix, positions[:tokens], cache)
    ids = [decoder.logits(hidden[:, -1]).argmax(-1)]
    for at in range(tokens, tokens + steps - 1):
        hidden = decoder(decoder.embed(ids[-1][:, None]), positions[at : at + 1], cache)
        ids.append(decoder.logits(hidden[:, -1]).argmax(-1))
    return torch.stack(ids, 1)
