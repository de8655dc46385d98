"""Autoregressive policies: a causal decoder writes a chunk's actions one token after the other.

The public context is X = [X_V, X_L, X_A] (Auras 4.2.2): `perceive` gives the embeddings of vision and language, and
the action tokens X_A belong to whoever generates. One request alone decodes greedily with a KV cache (`complete`).
Requests side by side share one causal forward (`refresh`): the hidden state of a token depends on the tokens up to it
alone, so that of every shorter prefix lies in that of the longest (Auras 4.2.3). This module knows no frame and no
other request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from auras_ros.models.action_tokens import ActionTokens
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.perception import Body, PerceptionBlock


class TokenState(NamedTuple):
    """The tokens of requests, int64 [B, tokens]; those that are not yet written are 0."""

    tokens: Tensor


class CausalDecoder(Protocol):
    """Embeddings in, hidden states out; each sees itself and what comes before it (`models.llama.Llama`).

    What a cache keeps at fixed addresses is the decoder's own: keys and values, or the embeddings themselves
    (`models.x_decoder`). Hidden states at `positions` are the same as without one.
    """

    def embed(self, ids: Tensor) -> Tensor: ...

    def logits(self, hidden: Tensor) -> Tensor: ...

    def make_cache(self, batch: int, length: int) -> Any: ...

    def __call__(self, embeddings: Tensor, positions: Tensor | None = None, cache: Any = None) -> Tensor: ...


class PrefixEncoder(Protocol):
    """A module: (images, state) -> embeddings [B, prefix, width]; its blocks one after another are the same.

    segments: how many of them belong together, in order: a picture's, the prompt's.
    """

    @property
    def segments(self) -> tuple[int, ...]: ...

    def blocks(self) -> list[tuple[str, Body]]: ...

    def __call__(self, images: Tensor, state: Tensor) -> Tensor: ...


@runtime_checkable
class PromptedPrefix(PrefixEncoder, Protocol):
    """A prefix with a prompt in it."""

    def set_ids(self, ids: Tensor) -> None: ...


@runtime_checkable
class GappedPrefix(PrefixEncoder, Protocol):
    """A prefix that is not always full: what lies in its gap is masked away and not counted in positions."""

    def layout(self, slots: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Of a forward over `slots`, int64 [T], of `length`: (places int64 [T], mask bool [1, T, length])."""
        ...


class AutoregressivePolicy(nn.Module):
    """horizon * channels tokens a chunk, action by action; what an id means is the codec's matter.

    The most likely of all ids of the vocabulary is taken, as greedy decoding does; an id that is no action decodes to
    the nearest that is.
    """

    def __init__(
        self,
        prefix: PrefixEncoder,
        decoder: CausalDecoder,
        codec: ActionTokens,
        horizon: int,
        channels: int,
        architecture: Architecture | None = None,
    ) -> None:
        super().__init__()
        self.prefix, self.decoder, self.codec = prefix, decoder, codec
        self.horizon, self._channels = horizon, channels
        self.architecture = architecture
        self._gapped = isinstance(prefix, GappedPrefix)

    @property
    def steps(self) -> int:
        return self.horizon * self._channels

    @property
    def noise_shape(self) -> tuple[int]:
        return (0,)  # greedy: nothing is drawn

    def example(self, batch: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Random images and state of this policy's shapes (`Architecture.example`). Raises ValueError without one."""
        if self.architecture is None:
            raise ValueError("this policy was made without an architecture: the shapes of its inputs are not known")
        return self.architecture.example(batch, generator)

    @torch.no_grad()
    def perceive(self, images: Tensor, state: Tensor) -> Tensor:
        """-> X_V and X_L, embeddings [B, prefix, width]."""
        return self.prefix(images, state)

    def perception_blocks(self) -> list[PerceptionBlock]:
        return [PerceptionBlock(name, _without_grad(body)) for name, body in self.prefix.blocks()]

    def set_prompt(self, ids: Tensor) -> None:
        """Another prompt, int64 [P], as its tokenizer gives it: a copy to where the last one lies; of one that is
        refused nothing is copied. Raises ValueError where it does not fit, or there is no prompt."""
        if not isinstance(self.prefix, PromptedPrefix):
            raise ValueError("prompt: this policy takes none")
        self.prefix.set_ids(ids)

    def begin(self, noise: Tensor) -> TokenState:
        return TokenState(torch.zeros((len(noise), self.steps), dtype=torch.int64, device=noise.device))

    def step(self, state: TokenState, context: Tensor, index: Tensor) -> TokenState:
        """Each row's own token `index` from its own tokens before it: what merging must come out as."""
        fresh = self.refresh(state.tokens, context, self.steps)
        at = index[:, None]
        return TokenState(state.tokens.scatter(1, at, fresh.gather(1, at)))

    def finish(self, state: TokenState) -> Tensor:
        return self.codec.decode(state.tokens.unflatten(1, (self.horizon, self._channels)))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> AutoregressivePolicy:
        """The codec follows the networks to their device."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.codec = self.codec.to(fn(torch.empty(0)).device)
        return self

    # -- what several steps are in one --------------------------------------------------------------------

    @property
    def segments(self) -> tuple[int, ...]:
        return self.prefix.segments

    def workspace(self, batch: int, prefix: int) -> Any:
        """Room for `prefix` embeddings and the tokens that follow."""
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

        With a workspace the prefix is computed at the positions `recompute` alone. That is exact where everything
        before the first of them is as it was: a causal decoder's keys and values there do not know what comes later.
        Where something unchanged follows something that changed, its keys and values are of the old neighbours: an
        approximation.
        """
        return self._likeliest(self._follow(tokens, context, count, workspace, recompute))

    @torch.no_grad()
    def margins(self, context: Tensor) -> Tensor:
        """How clearly each token of a batch of requests wins: the best score above the second best, in standard
        deviations of all scores at that place, [B, tokens]. Where it is next to nothing, rounding decides."""
        tokens = self.begin(context.new_zeros((len(context), 0))).tokens
        for at in range(self.steps):
            tokens[:, at] = self.refresh(tokens, context, at + 1)[:, at]
        scores = self.decoder.logits(self._follow(tokens, context, self.steps)).double()
        best = scores.topk(2, -1).values
        return (best[..., 0] - best[..., 1]) / scores.std(-1)

    @torch.no_grad()
    def losses(self, context: Tensor, actions: Tensor) -> Tensor:
        """By how much the tokens of these actions [B, horizon, channels], each after those before it, lose against the
        likeliest, in standard deviations of all scores at that place, [B, tokens]; 0 for those that would be taken."""
        tokens = self.codec.encode(actions).flatten(1)
        scores = self.decoder.logits(self._follow(tokens, context, self.steps)).double()
        taken = scores.gather(-1, tokens[..., None])[..., 0]
        return (scores.max(-1).values - taken) / scores.std(-1)

    def _follow(
        self, tokens: Tensor, context: Tensor, count: int, workspace: Any = None, recompute: Tensor | None = None
    ) -> Tensor:
        """What the first `count` tokens follow from, hidden states [B, count, width]; see `refresh`."""
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
        """Of one forward over the embeddings at these slots; without a workspace they are all there is. A decoder whose
        prefix has a gap can leave tokens out of sight, as `models.llama.Llama` can: it takes their mask and places."""
        if self._gapped:
            length = len(slots) if workspace is None else workspace.length
            places, mask = cast(GappedPrefix, self.prefix).layout(slots, length)
            return embedded, slots, workspace, mask, places
        return (embedded,) if workspace is None else (embedded, slots, workspace)

    def _likeliest(self, hidden: Tensor) -> Tensor:
        return self.decoder.logits(hidden).argmax(-1)


def _without_grad(body: Body) -> Callable[..., tuple[Tensor, ...]]:
    return torch.no_grad()(body)
