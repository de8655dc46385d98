"""Greedy decoding of a prompt, without an engine: what an engine's tokens must equal."""

from __future__ import annotations

import torch
from torch import Tensor

from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.models.cogagent import CogAgent, blind, looking
from auras_ros.models.vlm import ImageEmbeddings, Vlm


@torch.inference_mode()
def greedy(model: Vlm, prompt: VlmPrompt, count: int) -> list[int]:
    """The first `count` tokens of the answer."""
    return greedy_logits(model, prompt, count)[0]


@torch.inference_mode()
def greedy_logits(model: Vlm, prompt: VlmPrompt, count: int) -> tuple[list[int], Tensor]:
    """The tokens, and the scores that each was chosen by [count, vocabulary]."""
    grids, look, seen = [image.grid for image in prompt.images], blind, list[ImageEmbeddings]()
    if prompt.images:
        seen = model.see(torch.cat([image.pixels for image in prompt.images]).to(dtype(model)), grids)
    starts = [int(start) for start in prompt.at[torch.tensor([0, *(len(each.tokens) for each in seen)]).cumsum(0)[:-1]]]
    x = model.language.embed(prompt.ids)[None]
    if seen:
        x = x.index_copy(1, prompt.at, torch.cat([each.tokens for each in seen])[None])
    length = len(prompt.ids)
    places = model.places(length, prompt.at, grids)
    following = int(places.max()) + 1
    cache = model.language.make_cache(1, length + count)
    at, chosen, scores = torch.arange(length), list[int](), []
    for step in range(count):
        if isinstance(model, CogAgent):
            look = looking(seen, starts, at)
            hidden = model.language(x, at, cache, look)
        else:
            hidden = model.language(x, at, cache, places=places)
        scores.append(model.language.logits(hidden[0, -1]))
        chosen.append(int(scores[-1].argmax()))
        x = model.language.embed(torch.tensor([chosen[-1:]]))
        places, at = torch.full_like(places[..., -1:], following + step), torch.tensor([length + step])
    return chosen, torch.stack(scores)


def dtype(model: Vlm) -> torch.dtype:
    return next(model.parameters()).dtype
