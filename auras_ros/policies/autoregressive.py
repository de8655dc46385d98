"""Autoregressive policies: a causal decoder writes a chunk's actions one token after the other.

The public context is X = [X_V, X_L, X_A] (Auras 4.2.2): `perceive` gives the embeddings of vision and language, and
generation adds the action tokens X_A. A single request decodes greedily with a KV cache (`complete`). Merged requests
share one causal forward (`refresh`): a token's hidden state depends only on the tokens up to it, so the forward over
the longest prefix holds the hidden states of every shorter one (Auras 4.2.3). This module knows neither frames nor
other requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from auras_ros.models.action_tokens import ActionTokens
from auras_ros.models.blocks import Blocks
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.module import ModulePolicy
from auras_ros.policies.perception import PerceptionBlock, without_grad


class TokenState(NamedTuple):
    """The tokens of requests, int64 [B, tokens]; tokens that are not yet written are 0."""

    tokens: Tensor


class CausalDecoder(Protocol):
    """Embeddings in, hidden states out; each sees itself and what comes before it (`models.llama.Llama`).

    The decoder chooses what its cache keeps at fixed addresses: keys and values, or the embeddings themselves
    (`models.x_decoder`). Hidden states at `positions` are the same as without a cache. gap: mask and places (`Llama`),
    for a decoder that can hide tokens, which a `GappedPrefix` needs.
    """

    def embed(self, ids: Tensor) -> Tensor: ...

    def logits(self, hidden: Tensor) -> Tensor: ...

    def make_cache(self, batch: int, length: int) -> Any: ...

    def __call__(
        self, embeddings: Tensor, positions: Tensor | None = None, cache: Any = None, *gap: Tensor
    ) -> Tensor: ...


class PrefixEncoder(Protocol):
    """A module: (images, state) -> embeddings [B, prefix, width]; its blocks in order give the same.

    segments: how many embeddings belong together, in order: an image's, the prompt's.
    """

    @property
    def segments(self) -> tuple[int, ...]: ...

    def blocks(self) -> Blocks: ...

    def __call__(self, images: Tensor, state: Tensor) -> Tensor: ...


@runtime_checkable
class PromptedPrefix(PrefixEncoder, Protocol):
    """A prefix that contains a prompt."""

    def set_ids(self, ids: Tensor) -> None: ...


@runtime_checkable
class GappedPrefix(PrefixEncoder, Protocol):
    """A prefix that is not always full: its gap is masked and not counted in positions."""

    def layout(self, slots: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """For a forward over `slots`, int64 [T], of `length`: (places int64 [T], mask bool [1, T, length])."""
        ...


class AutoregressivePolicy(ModulePolicy):
    """horizon * channels tokens a chunk, action by action; the codec defines what an id means.

    Greedy decoding over the whole vocabulary; an id that is not an action decodes to the nearest one that is.
    """

    def __init__(
        self,
        prefix: PrefixEncoder,
        decoder: CausalDecoder,
        codec: ActionTokens,
        architecture: Architecture,
    ) -> None:
        super().__init__(architecture)
        self.prefix, self.decoder, self.codec = prefix, decoder, codec
        self._gapped = isinstance(prefix, GappedPrefix)

    @property
    def steps(self) -> int:
        return self.architecture.horizon * self.architecture.actions

    @property
    def noise_shape(self) -> tuple[int]:
        return (0,)  # greedy: nothing is drawn

    @torch.no_grad()
    def perceive(self, images: Tensor, state: Tensor) -> Tensor:
        """-> X_V and X_L, embeddings [B, prefix, width]."""
        return self.prefix(images, state)

    def perception_blocks(self) -> list[PerceptionBlock]:
        return without_grad(self.prefix.blocks())

    def set_prompt(self, ids: Tensor) -> None:
        """Set another prompt, int64 [P]: copied to the fixed address that stages read. Raises ValueError, and keeps the
        old one, if it does not fit or the policy takes none."""
        if not isinstance(self.prefix, PromptedPrefix):
            raise ValueError("prompt: this policy takes none")
        self.prefix.set_ids(ids)

    def begin(self, noise: Tensor) -> TokenState:
        return TokenState(torch.zeros((len(noise), self.steps), dtype=torch.int64, device=noise.device))

    def step(self, state: TokenState, context: Tensor, index: Tensor) -> TokenState:
        """Each row's token `index` from its own tokens before it: the result that merging must reproduce."""
        fresh = self.refresh(state.tokens, context, self.steps)
        at = index[:, None]
        return TokenState(state.tokens.scatter(1, at, fresh.gather(1, at)))

    def finish(self, state: TokenState) -> Tensor:
        return self.codec.decode(state.tokens.unflatten(1, (-1, self.architecture.actions)))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> AutoregressivePolicy:
        """The codec follows the networks to their device."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.codec = self.codec.to(fn(torch.empty(0)).device)
        return self

    # -- several steps in one -----------------------------------------------------------------------------

    @property
    def segments(self) -> tuple[int, ...]:
        return self.prefix.segments

    def workspace(self, batch: int, prefix: int) -> Any:
        """Memory for `prefix` embeddings and the tokens that follow."""
        return self.decoder.make_cache(batch, prefix + self.steps - 1)

    @torch.no_grad()
    def complete(self, context: Tensor, workspace: Any, recompute: Tensor | None = None) -> TokenState:
        """All tokens of one batch of requests, with a KV cache (Auras equation 1). Positions of `recompute` are written
        before they are read; all of them unless given."""
        prefix = context.shape[1]
        positions = torch.arange(prefix + self.steps - 1, device=context.device)
        first = positions[:prefix] if recompute is None else recompute
        hidden = self.decoder(*self._inputs(context.index_select(1, first), first, workspace))
        ids = [self._likeliest(hidden[:, -1])]
        for at in range(prefix, prefix + self.steps - 1):
            embedded = self.decoder.embed(ids[-1][:, None])
            hidden = self.decoder(*self._inputs(embedded, positions[at : at + 1], workspace))
            ids.append(self._likeliest(hidden[:, -1]))
        return TokenState(torch.stack(ids, 1))

    @torch.no_grad()
    def refresh(
        self,
        tokens: Tensor,
        context: Tensor,
        count: int,
        workspace: Any = None,
        recompute: Tensor | None = None,
    ) -> Tensor:
        """One forward over [X_V, X_L, X_A] for the first `count` action tokens, each from those before it in `tokens`
        [B, tokens]: int64 [B, count].

        With a workspace the prefix is computed only at the positions `recompute`. That is exact if everything before
        the first of them is unchanged: a causal decoder's keys and values do not depend on later positions. If
        something unchanged follows something that changed, its keys and values belong to the old neighbours: an
        approximation.
        """
        return self._likeliest(self._follow(tokens, context, count, workspace, recompute))

    @torch.no_grad()
    def margins(self, context: Tensor) -> Tensor:
        """How clearly each token of a batch of requests wins: the best score minus the second best, in standard
        deviations of all scores at that position, [B, tokens]. If it is near zero, rounding decides."""
        tokens = self.begin(context.new_zeros((len(context), 0))).tokens
        for at in range(self.steps):
            tokens[:, at] = self.refresh(tokens, context, at + 1)[:, at]
        scores = self.decoder.logits(self._follow(tokens, context, self.steps)).double()
        best = scores.topk(2, -1).values
        return (best[..., 0] - best[..., 1]) / scores.std(-1)

    @torch.no_grad()
    def losses(self, context: Tensor, actions: Tensor) -> Tensor:
        """How far the tokens of these actions [B, horizon, channels], each after those before it, score below the best,
        in standard deviations of all scores at that position, [B, tokens]; 0 for the best token."""
        tokens = self.codec.encode(actions).flatten(1)
        scores = self.decoder.logits(self._follow(tokens, context, self.steps)).double()
        taken = scores.gather(-1, tokens[..., None])[..., 0]
        return (scores.max(-1).values - taken) / scores.std(-1)

    def _follow(
        self, tokens: Tensor, context: Tensor, count: int, workspace: Any = None, recompute: Tensor | None = None
    ) -> Tensor:
        """The hidden states that predict the first `count` tokens, [B, count, width]; see `refresh`."""
        written = self.decoder.embed(tokens[:, : count - 1])
        prefix = context.shape[1]
        positions = torch.arange(prefix + count - 1, device=context.device)
        if workspace is None:
            return self.decoder(*self._inputs(torch.cat([context, written], 1), positions))[:, -count:]
        first = positions[:prefix] if recompute is None else recompute
        embedded = torch.cat([context.index_select(1, first), written], 1)
        slots = torch.cat([first, positions[prefix:]])
        return self.decoder(*self._inputs(embedded, slots, workspace))[:, -count:]

    def _inputs(self, embedded: Tensor, slots: Tensor, workspace: Any = None) -> tuple[Any, ...]:
        """Arguments of one forward over the embeddings at these slots; without a workspace there are no others. A
        decoder for a prefix with a gap gets mask and places too (`models.llama.Llama`)."""
        if self._gapped:
            length = len(slots) if workspace is None else workspace.length
            places, mask = cast(GappedPrefix, self.prefix).layout(slots, length)
            return embedded, slots, workspace, mask, places
        return (embedded,) if workspace is None else (embedded, slots, workspace)

    def _likeliest(self, hidden: Tensor) -> Tensor:
        return self.decoder.logits(hidden).argmax(-1)
