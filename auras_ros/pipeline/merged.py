"""The generation of autoregressive requests side by side: one causal forward for all of them (Auras 4.2.3).

The action tokens X_A are part of the public context: every request sees the newest tokens of all, and takes those whose
turn it is. Row r is in stage (rows - 1 - r), as in the slab of denoising (rule 5 of docs/pipeline.md), but all rows
share one forward instead of being a batch. Addresses never change.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable
from functools import partial
from itertools import accumulate, chain, pairwise, product

import torch
from torch import Tensor

from auras_ros.pipeline.context import store
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.slab import Bodies, Slab, StageShare
from auras_ros.policies.policy import CausalPolicy

APPROXIMATE_FRAMES = 30  # after this many frames with reused keys and values, recompute all of them


class MergedSlab(Slab):
    """`plan.pp_generation` requests of `batch` environments each; `like` is one context [batch, prefix, width].

    merge "step": micro-step k of a frame is one forward over the longest prefix among the rows that have a k-th token
    left. A stage's first token follows the X_A of the previous frame, its others follow one another as in plain
    decoding; X_A may begin empty. merge "frame": one forward a frame, from which a row takes all of its stage's tokens;
    each follows the X_A of the previous frame. So X_A needs initial tokens: `prime` (Auras 6.7). If every stage has one
    token, both give the same.

    emit "own": a finished request emits the tokens that it took, each in the frame whose turn it was. "newest": it
    emits the newest X_A. Every token was refreshed in the last frame, so all requests emit the same.

    reuse: keys and values of the prefix that are kept from the previous frame, by the policy's segments. "exact" keeps
    those before the first segment that changed. "approximate" also keeps those of later segments that did not change
    themselves, although they were computed behind another picture, for APPROXIMATE_FRAMES at most. X_A is always
    computed.
    """

    def __init__(self, policy: CausalPolicy, plan: Plan, like: Tensor) -> None:
        self.policy: CausalPolicy = policy
        self.rows, self._merge, self._reuse = plan.pp_generation, plan.merge, plan.reuse
        # One request at a time, token by token: nothing to merge, and a KV cache is faster than a forward a token.
        self._plain = self.rows == 1 and plan.merge == "step"
        self._newest = plan.emit == "newest" and not self._plain
        self.needs_priming, self.inspects_context = plan.merge == "frame", plan.reuse != "none"
        self._share = StageShare.of(policy.steps, plan)
        batch = len(like)
        start = policy.begin(like.new_zeros((batch, *policy.noise_shape)))
        self.context = torch.zeros_like(like)
        self.public = torch.zeros((batch, policy.steps), dtype=torch.int64, device=like.device)  # X_A
        self.tokens = self.public.new_zeros((self.rows, *self.public.shape))  # each row's own
        self.state = start._make([self.tokens])
        self._workspace = policy.workspace(batch, like.shape[1])
        keeps = self.inspects_context or (plan.merge == "step" and max(self._share.due) > 1)
        self._reused = self._workspace if keeps else None  # by the next frame, or the next micro-step of this one
        self._spans = list(pairwise(accumulate(policy.segments, initial=0)))
        if self._spans[-1][1] != like.shape[1]:
            raise ValueError(f"segments {policy.segments} of a context of {like.shape[1]} embeddings")
        self._last = self._positions((False,) * len(self._spans))
        self._recompute = {key: self._positions(key) for key in self._keys()}
        self._kept = False  # whether the workspace holds keys and values of `context`
        self._about = 0  # number of frames since some of them were computed behind another picture

    def _keys(self) -> list[tuple[bool, ...]]:
        """Which prefix segments a frame may have to recompute."""
        count = len(self._spans)
        if self._reuse == "approximate":
            return list(product((True, False), repeat=count))
        most = count if self._reuse == "exact" else 0
        return [(False,) * kept + (True,) * (count - kept) for kept in range(most + 1)]

    def _positions(self, recompute: tuple[bool, ...]) -> Tensor:
        """Positions of these segments, and the last one of the prefix, which the first token follows."""
        found = [range(low, high) for (low, high), wanted in zip(self._spans, recompute, strict=True) if wanted]
        last = self._spans[-1][1] - 1
        return torch.tensor(sorted({*chain(*found), last}), device=self.context.device)

    def prime(self) -> None:
        """Fill X_A by plain decoding from the fetched context."""
        store((self.public,), self.policy.complete(self.context, self._workspace))

    def variants(self) -> dict[Hashable, Bodies]:
        """By which prefix segments are recomputed."""
        body = self._decode if self._plain else self._once if self._merge == "frame" else self._stepwise
        return {key: [partial(body, recompute)] for key, recompute in self._recompute.items()}

    def select_variant(self, context: Tensor) -> Hashable:
        """Which segments changed since the last frame. Compares values, so on a GPU it synchronises."""
        if self._reuse == "none" or not self._kept or self._about >= APPROXIMATE_FRAMES:
            self._kept, self._about = True, 0
            return (True,) * len(self._spans)
        changed = [not torch.equal(context[:, low:high], self.context[:, low:high]) for low, high in self._spans]
        behind = list(accumulate(changed, operator.or_))
        if self._reuse == "exact":
            return tuple(behind)
        if all(changed):
            self._about = 0
        elif self._about or changed != behind:
            self._about += 1
        return tuple(changed)

    def clear(self) -> None:
        """Recompute all keys and values in the next frame. Tokens that requests in flight have taken are kept."""
        self._kept = False

    def _decode(self, recompute: Tensor) -> None:
        store((self.tokens[0],), self.policy.complete(self.context, self._workspace, recompute))

    def _once(self, recompute: Tensor) -> None:
        count = self.policy.steps
        self.public.copy_(self.policy.refresh(self.public, self.context, count, self._reused, recompute))
        for row, (first, due) in enumerate(zip(self._share.first, self._share.due, strict=True)):
            self._take(row, first, due)

    def _stepwise(self, recompute: Tensor) -> None:
        due, first = self._share.due, self._share.first
        for k in range(max(due)):
            active = [row for row in range(self.rows) if due[row] > k]
            longest = max(first[row] for row in active) + k + 1
            self.public[:, :longest] = self.policy.refresh(self.public, self.context, longest, self._reused, recompute)
            recompute = self._last  # within a frame the prefix does not change
            for row in active:
                self._take(row, first[row] + k, 1)

    def _take(self, row: int, first: int, count: int) -> None:
        span = slice(first, first + count)
        self.tokens[row, :, span] = self.public[:, span]

    def fetch(self, context: Tensor) -> None:
        self.context.copy_(context)

    def finish(self) -> Tensor:
        return self.policy.finish(self.state._make([self.public])) if self._newest else super().finish()
