"""The generation of autoregressive requests side by side: one causal forward for all of them (Auras 4.2.3).

The action tokens X_A are part of the public context: every request sees the newest tokens of all, and takes those whose
turn it is. Row r is in stage (rows - 1 - r), as in the slab of denoising (rule 5 of docs/pipeline.md), but all rows
share one forward instead of being a batch. Addresses never change.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable
from itertools import accumulate, chain, pairwise, product

import torch
from torch import Tensor

from auras_ros.pipeline.context import store
from auras_ros.pipeline.plan import Plan, stage_steps
from auras_ros.policies.policy import CausalPolicy

APPROXIMATE_FRAMES = 30  # after this many frames with reused keys and values, recompute all of them


class MergedSlab:
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
        self.policy, self.rows, self._merge = policy, plan.pp_generation, plan.merge
        self._newest, self._reuse = plan.emit == "newest", plan.reuse
        steps = stage_steps(policy.steps, self.rows, plan.alpha)
        self._due = list(reversed(steps))  # by row: the oldest is in the last stage
        self._first = [policy.steps - sum(self._due[: row + 1]) for row in range(self.rows)]
        batch = len(like)
        self._start = policy.begin(like.new_zeros((batch, *policy.noise_shape)))
        self.context = torch.zeros_like(like)
        self.public = torch.zeros((batch, policy.steps), dtype=torch.int64, device=like.device)  # X_A
        self.tokens = self.public.new_zeros((self.rows, *self.public.shape))  # each row's own
        self._workspace = policy.workspace(batch, like.shape[1])
        self._spans = list(pairwise(accumulate(policy.segments, initial=0)))
        if self._spans[-1][1] != like.shape[1]:
            raise ValueError(f"segments {policy.segments} of a context of {like.shape[1]} embeddings")
        self._last = self._positions((False,) * len(self._spans))
        self._kept = False  # whether the workspace holds keys and values of `context`
        self._about = 0  # number of frames since some of them were computed behind another picture

    @property
    def _plain(self) -> bool:
        """One request at a time, token by token: nothing to merge, and a KV cache is faster than a forward a token."""
        return self.rows == 1 and self._merge == "step"

    @property
    def needs_priming(self) -> bool:
        """Whether the first frame of an epoch needs initial tokens."""
        return self._merge == "frame"

    def prime(self) -> None:
        """Fill X_A by plain decoding from the fetched context."""
        store((self.public,), self.policy.complete(self.context, self._workspace))

    def variants(self) -> dict[Hashable, list[Callable[[], None]]]:
        """Stage bodies by the key that `select_variant` returns: which prefix segments to recompute."""
        count = len(self._spans)
        keys: list[tuple[bool, ...]] = [(True,) * count]
        if self._reuse == "exact":
            keys += [(False,) * kept + (True,) * (count - kept) for kept in range(1, count + 1)]
        elif self._reuse == "approximate":
            keys = list(product((True, False), repeat=count))
        self._recompute = {key: self._positions(key) for key in keys}
        return {key: [self._body(recompute)] for key, recompute in self._recompute.items()}

    @property
    def inspects_context(self) -> bool:
        """Whether `select_variant` reads the context's values."""
        return self._reuse != "none"

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

    def _positions(self, recompute: tuple[bool, ...]) -> Tensor:
        """Positions of these segments, and the last one of the prefix, which the first token follows."""
        found = [range(low, high) for (low, high), wanted in zip(self._spans, recompute, strict=True) if wanted]
        last = self._spans[-1][1] - 1
        return torch.tensor(sorted({*chain(*found), last}), device=self.context.device)

    def _body(self, recompute: Tensor) -> Callable[[], None]:
        if self._plain:
            return lambda: store((self.tokens[0],), self.policy.complete(self.context, self._workspace, recompute))
        return lambda: self._once(recompute) if self._merge == "frame" else self._stepwise(recompute)

    def _refresh(self, count: int, recompute: Tensor) -> Tensor:
        workspace = self._workspace if self._keeps else None
        return self.policy.refresh(self.public, self.context, count, workspace, recompute)

    @property
    def _keeps(self) -> bool:
        """Whether keys and values are reused: by the next frame, or by the next micro-step of this one."""
        return self._reuse != "none" or (self._merge == "step" and max(self._due) > 1)

    def _once(self, recompute: Tensor) -> None:
        self.public.copy_(self._refresh(self.policy.steps, recompute))
        for row, (first, due) in enumerate(zip(self._first, self._due, strict=True)):
            self._take(row, first, due)

    def _stepwise(self, recompute: Tensor) -> None:
        for k in range(max(self._due)):
            active = [row for row in range(self.rows) if self._due[row] > k]
            longest = max(self._first[row] for row in active) + k + 1
            self.public[:, :longest] = self._refresh(longest, recompute)
            recompute = self._last  # within a frame the prefix does not change
            for row in active:
                self._take(row, self._first[row] + k, 1)

    def _take(self, row: int, first: int, count: int) -> None:
        span = slice(first, first + count)
        self.tokens[row, :, span] = self.public[:, span]

    def fetch(self, context: Tensor) -> None:
        """Every row generates from this context from now on."""
        self.context.copy_(context)

    def admit(self, noise: Tensor) -> None:
        """Put a new request into the youngest row. noise [batch, *noise_shape], on the slab's device."""
        store((self.tokens[-1],), self.policy.begin(noise))

    def finish(self) -> Tensor:
        """Actions of the oldest row, float64 [batch, horizon, channels], on the tokens' device."""
        done = self.public if self._newest and not self._plain else self.tokens[0]
        return self.policy.finish(self._start._make([done]))

    def roll(self) -> None:
        """Move every request up by one row, one row after the other because the copies overlap."""
        for row in range(self.rows - 1):
            self.tokens[row].copy_(self.tokens[row + 1])
