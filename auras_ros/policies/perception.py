"""Perception in consecutive blocks, so that an executor can spread them over frames.

A block takes the tensors that the one before it returned and returns the tensors of the next; the first takes (images,
state), the last returns only the context. Shapes are fixed for a batch. The executor decides how blocks are grouped
(pp_perception stages of equal work); this module never runs a stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from auras_ros.models.blocks import Block, Blocks, alone
from auras_ros.policies.precision import like_weights


@dataclass(frozen=True)
class PerceptionBlock:
    """One block: `carried = block(*carried)`. The state is the last of the tensors that are passed on."""

    name: str
    body: Block

    def __call__(self, *carried: Tensor) -> tuple[Tensor, ...]:
        return self.body(*carried)


def without_grad(blocks: Blocks) -> list[PerceptionBlock]:
    """A model's blocks as blocks of a policy, without gradients."""
    return [PerceptionBlock(name, torch.no_grad()(block)) for name, block in blocks]


def cut(encoder: nn.Module, marked: nn.Module) -> list[PerceptionBlock]:
    """Perception with this encoder in parts: its `blocks()`, or the whole encoder if it has none. marked: the module
    whose weights define the type of images and context (`precision.mark`)."""
    own: Callable[[], Blocks] | None = getattr(encoder, "blocks", None)
    parts = [("encoder", alone(encoder))] if own is None else own()
    last = len(parts) - 1
    return [PerceptionBlock(name, _block(part, marked, i == 0, i == last)) for i, (name, part) in enumerate(parts)]


def encode(encoder: nn.Module, marked: nn.Module, images: Tensor, state: Tensor) -> Tensor:
    """Images [B, history, cameras, channels, h, w] and state [B, history, D] -> the context; see `cut`."""
    return context_of(encoder(like_weights(marked, images.flatten(0, 2))), state, marked)


def context_of(features: Tensor, state: Tensor, marked: nn.Module) -> Tensor:
    """Features [B * history * cameras, ...], F numbers each, and state [B, history, D] -> [B, history * (cameras * F +
    D)]."""
    batch, history = state.shape[:2]
    width = features.numel() // (batch * history)  # 0 without cameras, for which -1 would have no meaning
    instants = features.view(batch, history, width)
    return like_weights(marked, torch.cat([instants, state], -1).flatten(1))


def _block(part: Block, marked: nn.Module, first: bool, last: bool) -> Block:
    """A part of the encoder as a block of perception; the state is passed on and joined to the features at the end."""

    @torch.no_grad()
    def run(*carried: Tensor) -> tuple[Tensor, ...]:
        *hidden, state = carried
        if first:
            hidden = [like_weights(marked, hidden[0].flatten(0, 2))]
        out = part(*hidden)
        return (context_of(out[0], state, marked),) if last else (*out, state)

    return run
