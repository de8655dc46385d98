"""The generation slab: one row of state for each request in the pipeline, oldest first (rule 5 of docs/pipeline.md).

Row r is in stage (rows - 1 - r). Addresses never change: a request moves up by one row at each frame boundary. A slab
only computes; it has no observations, epochs or times.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from auras_ros.pipeline.context import store
from auras_ros.pipeline.plan import Plan, stage_steps
from auras_ros.policies.policy import Policy, State

Bodies = list[Callable[[], None]]


class Slab:
    """What the two slabs have in common. state: tensors [rows, batch, ...] of a policy's state."""

    policy: Policy
    rows: int
    state: State
    needs_priming = False  # whether the first frame of an epoch needs initial tokens
    inspects_context = False  # whether `select_variant` reads the context's values

    def variants(self) -> dict[Hashable, Bodies]:
        """The bodies of a frame, by the key that `select_variant` returns."""
        raise NotImplementedError

    def fetch(self, context: Tensor) -> None:
        """Every row generates from this context from now on."""
        raise NotImplementedError

    def select_variant(self, context: Tensor) -> Hashable:
        """Which bodies the frame runs that generates from this context. None: every frame does the same."""
        return None

    def prime(self) -> None:
        """Fill what the first frame of an epoch needs."""

    def clear(self) -> None:
        """Reuse nothing that was generated before."""

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


class StageShare(NamedTuple):
    """Which steps each row does in one frame; the oldest row is in the last stage. due: how many; first: the first's
    number."""

    due: list[int]
    first: list[int]

    @classmethod
    def of(cls, steps: int, plan: Plan) -> StageShare:
        """Raises PlanError for fewer steps than stages."""
        due = list(reversed(stage_steps(steps, plan.pp_generation, plan.alpha)))
        return cls(due, [steps - sum(due[: row + 1]) for row in range(len(due))])


class _Micro(NamedTuple):
    """Rows that advance together by one step: views into the slab, or the rows to gather if they do not adjoin."""

    state: State
    context: Tensor
    step: Tensor  # int64, the step that each row of the batch is at
    gathered: Tensor | None


class DenoisingSlab(Slab):
    """`plan.pp_generation` requests of `batch` environments each, every one at its own step; `like` is one context
    [batch, ...]. step: the policy's, or a guided one."""

    def __init__(
        self, policy: Policy, plan: Plan, like: Tensor, step: Callable[[State, Tensor, Tensor], State]
    ) -> None:
        self.policy, self.rows = policy, plan.pp_generation
        self._step, self._batch, rows = step, len(like), plan.pp_generation
        start = policy.begin(torch.zeros((self._batch, *policy.noise_shape), device=like.device))
        self.state = start._make(
            torch.zeros((rows, *part.shape), dtype=part.dtype, device=like.device) for part in start
        )
        # All requests of a frame generate from one context. With one environment, every row is a view of one memory.
        self._own = like.new_zeros((1 if self._batch == 1 else rows, *like.shape))
        self.context = self._own.expand(rows, *like.shape)
        self._share = StageShare.of(policy.steps, plan)
        together = [list(range(rows))] if plan.batched else [[row] for row in range(rows)]
        self._micro = [
            [micro for k in range(max(self._share.due)) if (micro := self._made(group, k)) is not None]
            for group in together
        ]

    def _made(self, rows: list[int], k: int) -> _Micro | None:
        """Micro-step k of those of `rows` that have steps left in this frame."""
        active = [row for row in rows if self._share.due[row] > k]
        if not active:
            return None
        device, first = self.context.device, self._share.first
        index = torch.tensor([first[row] + k for row in active]).repeat_interleave(self._batch).to(device)
        if active != list(range(active[0], active[-1] + 1)):
            context = self.context[: len(active)].flatten(0, 1)  # all rows' contexts are equal
            return _Micro(self.state, context, index, torch.tensor(active, device=device))
        span = slice(active[0], active[-1] + 1)
        state = self.state._make(part[span].flatten(0, 1) for part in self.state)
        return _Micro(state, self.context[span].flatten(0, 1), index, None)

    def variants(self) -> dict[Hashable, Bodies]:
        """One frame's generation: all rows in one body, or a body for each row (unbatched)."""
        return {None: [partial(self._run, steps) for steps in self._micro]}

    def _run(self, steps: list[_Micro]) -> None:
        for micro in steps:
            if (rows := micro.gathered) is None:
                store(micro.state, self._step(micro.state, micro.context, micro.step))
                continue
            state = self.state._make(part.index_select(0, rows).flatten(0, 1) for part in self.state)
            new = self._step(state, micro.context, micro.step)
            for target, before, after in zip(self.state, state, new, strict=True):
                if after is not before:  # the noise tape is not changed by a step
                    target.index_copy_(0, rows, after.unflatten(0, (len(rows), self._batch)))

    def fetch(self, context: Tensor) -> None:
        """With one environment it is copied once; with several, once for each row, because a step reads the
        environments of all rows as one batch."""
        self._own.copy_(context.unsqueeze(0).expand_as(self._own))
