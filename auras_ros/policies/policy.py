"""The four methods that every policy has. What differs between families is behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

State = Any  # a NamedTuple of tensors, each [B, ...]: passed from step to step, different for each policy


class Policy(Protocol):
    """perceive -> context; begin -> state; step (n times) -> state; finish -> chunk. Pure functions of tensors.

    B is the batch: rows are independent requests. Contexts and states have fixed shapes, so that a stage can be
    captured once and replayed.
    """

    @property
    def steps(self) -> int:
        """Generation steps of one request."""
        ...

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """Shape of one request's noise tape, without the batch."""
        ...

    def perceive(self, images: Tensor, state: Tensor) -> Tensor:
        """Preprocessed images [B, history, cameras, 3, h, w] and state [B, history, D] -> context [B, C]."""
        ...

    def begin(self, noise: Tensor) -> State:
        """Noise tape [B, *noise_shape] -> the state before step 0."""
        ...

    def step(self, state: State, context: Tensor, index: Tensor) -> State:
        """One generation step; `index` int64 [B] is each row's own step. Unchanged tensors are returned as they were.
        The rows of `context` may share memory, which is only read."""
        ...

    def finish(self, state: State) -> Tensor:
        """The state after the last step -> actions [B, horizon, channels] in physical units, float64."""
        ...


@runtime_checkable
class BlockPolicy(Policy, Protocol):
    """A policy that defines where its perception can be cut; others are traced and cut (`pipeline.slicing`)."""

    def perception_blocks(self) -> Sequence[Callable[..., tuple[Tensor, ...]]]:
        """`perceive` in blocks: each takes the tensors that the one before it returned; the first takes (images,
        state), the last returns only the context."""
        ...


@runtime_checkable
class PromptedPolicy(Policy, Protocol):
    """A policy that takes a prompt."""

    def set_prompt(self, ids: Tensor) -> None:
        """Set another prompt, int64 [P], as its tokenizer gives it: copied to a fixed address, which every later frame
        reads. Raises ValueError, and keeps the old one, if the policy cannot take it."""
        ...


@runtime_checkable
class CausalPolicy(Policy, Protocol):
    """An autoregressive policy: steps of several requests are one causal forward (Auras 4.2.3). Its state is one
    tensor of tokens, int64 [B, steps]; its context embeddings [B, prefix, width]."""

    @property
    def segments(self) -> tuple[int, ...]:
        """How many embeddings of a context belong together, in order: they change together or not at all."""
        ...

    def workspace(self, batch: int, prefix: int) -> Any:
        """Keys and values of prefix and tokens, at fixed addresses."""
        ...

    def complete(self, context: Tensor, workspace: Any, recompute: Tensor | None = None) -> State:
        """All steps of a batch of requests, one after the other. recompute: positions of the prefix to compute, rising,
        including the last one of the prefix; keys and values of the others are in the workspace. None: all."""
        ...

    def refresh(
        self, tokens: Tensor, context: Tensor, count: int, workspace: Any = None, recompute: Tensor | None = None
    ) -> Tensor:
        """The first `count` tokens, each from those before it in `tokens` [B, steps]: int64 [B, count]. recompute: as
        in `complete`; without a workspace nothing is kept."""
        ...


@runtime_checkable
class TokenPolicy(Policy, Protocol):
    """A policy that writes the likeliest token; see `policies.autoregressive`."""

    def margins(self, context: Tensor) -> Tensor:
        """By how much each token wins, float64 [B, tokens]."""
        ...

    def losses(self, context: Tensor, actions: Tensor) -> Tensor:
        """How far the tokens of these actions score below the best, float64 [B, tokens]."""
        ...


def generate(policy: Policy, noise: Tensor, context: Tensor) -> Tensor:
    """All steps of one batch of requests, one after the other: actions [B, horizon, channels]."""
    state = policy.begin(noise)
    for i in range(policy.steps):
        state = policy.step(state, context, torch.full((len(noise),), i, device=noise.device))
    return policy.finish(state)
