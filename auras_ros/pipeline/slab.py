"""The generation slab: one row of state for each request in the pipeline, oldest first (rule 5 of docs/pipeline.md).

Row r is in stage (rows - 1 - r). Addresses never change: a request moves up by one row at each frame boundary. The
slab only computes; it has no observations, epochs or times.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

import torch
from torch import Tensor

from auras_ros.pipeline.context import store
from auras_ros.pipeline.guided import make_steps
from auras_ros.pipeline.plan import stage_steps
from auras_ros.policies.policy import Policy, State


class _Micro(NamedTuple):
    """Rows that advance together by one step: views into the slab, or the rows to gather if they do not adjoin."""

    state: State
    context: Tensor
    step: Tensor  # int64, the step that each row of the batch is at
    gathered: Tensor | None


class Slab:
    """`rows` requests of `batch` environments each; `like` is one context, [batch, ...]."""

    def __init__(
        self, policy: Policy, rows: int, alpha: float, batched: bool, like: Tensor, guide: str = "none"
    ) -> None:
        self.policy, self.rows, self.alpha, self.batched = policy, rows, alpha, batched
        self.batch, self.device = len(like), like.device
        noise = torch.zeros((self.batch, *policy.noise_shape), device=self.device)
        start = policy.begin(noise)
        self.state = start._make(
            torch.zeros((rows, *part.shape), dtype=part.dtype, device=self.device) for part in start
        )
        self.steps = make_steps(policy, guide, rows, self.batch, self.device)
        # All requests of a frame generate from one context. With one environment, every row is a view of one memory.
        self._own = like.new_zeros((1 if self.batch == 1 else rows, *like.shape))
        self.context = self._own.expand(rows, *like.shape)
        self._plan()

    def _plan(self) -> None:
        steps = stage_steps(self.policy.steps, self.rows, self.alpha)
        done = [sum(steps[:stage]) for stage in range(self.rows)]
        self._due = list(reversed(steps))  # by row: the oldest is in the last stage
        self._first = list(reversed(done))
        together = [list(range(self.rows))] if self.batched else [[row] for row in range(self.rows)]
        self._micro = [[self._step(rows, k) for k in range(max(self._due))] for rows in together]

    def _step(self, rows: list[int], k: int) -> _Micro | None:
        """Micro-step k of those of `rows` that have steps left in this frame."""
        active = [row for row in rows if self._due[row] > k]
        if not active:
            return None
        index = torch.tensor([self._first[row] + k for row in active]).repeat_interleave(self.batch).to(self.device)
        adjoining = active == list(range(active[0], active[-1] + 1))
        if not adjoining:
            return _Micro(self.state, self.context, index, torch.tensor(active, device=self.device))
        span = slice(active[0], active[-1] + 1)
        state = self.state._make(part[span].flatten(0, 1) for part in self.state)
        return _Micro(state, self.context[span].flatten(0, 1), index, None)

    needs_priming = False

    def variants(self) -> dict[Hashable, list[Callable[[], None]]]:
        """The bodies of a frame, by the key that `select_variant` returns."""
        return {None: self.bodies()}

    inspects_context = False  # whether `select_variant` looks at the context's values

    def select_variant(self, context: Tensor) -> Hashable:
        """Always None: no keys and values are reused, so every frame does the same work."""
        return None

    def clear(self) -> None:
        """Nothing to do: requests overwrite their rows."""

    def prime(self) -> None:
        """Nothing to do: every request begins with its own noise."""

    def bodies(self) -> list[Callable[[], None]]:
        """One frame's generation: all rows in one body, or a body for each row (unbatched)."""
        return [lambda steps=steps: self._run(steps) for steps in self._micro]  # type: ignore[misc]

    def _run(self, steps: list[_Micro | None]) -> None:
        for micro in steps:
            if micro is None:
                continue
            if micro.gathered is None:
                store(micro.state, self.steps.step(micro.state, micro.context, micro.step))
            else:
                self._gathered(micro.gathered, micro.step)

    def _gathered(self, rows: Tensor, index: Tensor) -> None:
        state = self.state._make(part.index_select(0, rows).flatten(0, 1) for part in self.state)
        new = self.steps.step(state, self.context[: len(rows)].flatten(0, 1), index)  # all rows' contexts are equal
        for target, before, after in zip(self.state, state, new, strict=True):
            if after is not before:  # the noise tape is not changed by a step
                target.index_copy_(0, rows, after.unflatten(0, (len(rows), self.batch)))

    def fetch(self, context: Tensor) -> None:
        """Every row generates from this context from now on. With one environment it is copied once; with several, once
        for each row, because a step reads the environments of all rows as one batch."""
        self._own.copy_(context.unsqueeze(0).expand_as(self._own))

    def admit(self, noise: Tensor) -> None:
        """Put a new request into the youngest row. noise [batch, *noise_shape], on the slab's device."""
        store(tuple(part[-1] for part in self.state), self.policy.begin(noise))

    def finish(self) -> Tensor:
        """Actions of the oldest row, float64 [batch, horizon, channels], on the slab's device."""
        return self.policy.finish(self.state._make(part[0] for part in self.state))

    def roll(self) -> None:
        """Move every request up by one row, one row after the other because the copies overlap."""
        for part in self.state:
            for row in range(self.rows - 1):
                part[row].copy_(part[row + 1])
