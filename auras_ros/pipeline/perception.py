"""Perception in one stage or several (Auras 4.3.2): blocks of the policy, grouped into stages of equal work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from auras_ros.pipeline.context import as_tuple
from auras_ros.pipeline.plan import PlanError
from auras_ros.pipeline.slicing import Slice, SliceError, counting, slice_module, split
from auras_ros.policies.policy import BlockPolicy, Policy

Block = Callable[..., Tensor | tuple[Tensor, ...]]


def perception_stages(policy: Policy, stages: int, images: Tensor, state: Tensor) -> list[list[Block]]:
    """Perception in `stages` groups of blocks. The grouping minimises the operations of the largest group. Raises
    PlanError.

    The blocks are the policy's own if it has any; otherwise its perception is traced and cut (`slicing`).
    """
    if stages == 1:
        return [[policy.perceive]]
    if not isinstance(policy, BlockPolicy):
        return [[block] for block in _sliced(policy, stages, images[:1], state[:1])]
    blocks = _own(policy, stages)
    cuts = split(operations(blocks, images[:1], state[:1]), stages)
    return [blocks[low:high] for low, high in pairwise(cuts)]


def check_stages(policy: Policy, stages: int) -> None:
    """Raise PlanError if perception has fewer blocks than stages. A policy without blocks is checked when it is cut."""
    if stages > 1 and isinstance(policy, BlockPolicy):
        _own(policy, stages)


def _own(policy: BlockPolicy, stages: int) -> list[Block]:
    blocks: list[Block] = list(policy.perception_blocks())
    if len(blocks) < stages:
        raise PlanError(f"plan: pp_perception: {stages} stages, but this policy's perception has {len(blocks)} blocks")
    return blocks


def _sliced(policy: Policy, stages: int, images: Tensor, state: Tensor) -> list[Slice]:
    if not isinstance(policy, nn.Module):
        what = type(policy).__name__
        raise PlanError(
            f"plan: pp_perception: {stages} stages, but {what} has no perception_blocks and is no nn.Module"
        )
    try:
        return slice_module(_Perceive(policy), (images, state), stages)
    except SliceError as error:
        raise PlanError(f"plan: pp_perception: {type(policy).__name__}: {error}") from error


class _Perceive(nn.Module):
    """A policy's perception as a module, so that it can be traced."""

    def __init__(self, policy: nn.Module) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, images: Tensor, state: Tensor) -> Tensor:
        perceived: Tensor = self.policy.perceive(images, state)  # type: ignore[operator]
        return perceived


@torch.no_grad()
def operations(blocks: Sequence[Block], images: Tensor, state: Tensor) -> list[int]:
    """Floating point operations of each block, counted by running them once."""
    counts, value = [], (images, state)
    for block in blocks:
        with counting() as counter:
            value = as_tuple(block(*value))  # type: ignore[assignment]
        counts.append(int(counter.get_total_flops()))
    return counts


def run_blocks(blocks: Sequence[Block], value: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    for block in blocks:
        value = as_tuple(block(*value))
    return value
