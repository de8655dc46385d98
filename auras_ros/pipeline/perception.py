"""Perception in one stage or several (Auras 4.3.2): blocks of the policy, grouped to stages of equal work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from auras_ros.pipeline.context import as_tuple
from auras_ros.pipeline.plan import PlanError
from auras_ros.policies.policy import Policy

Block = Callable[..., Tensor | tuple[Tensor, ...]]


def perception_stages(policy: Policy, stages: int, images: Tensor, state: Tensor) -> list[list[Block]]:
    """The policy's blocks in `stages` groups whose largest count of operations is least. Raises PlanError."""
    blocks = perception_blocks(policy, stages)
    if stages == 1:
        return [blocks]
    cuts = split(operations(blocks, images[:1], state[:1]), stages)
    return [blocks[low:high] for low, high in pairwise(cuts)]


def perception_blocks(policy: Policy, stages: int) -> list[Block]:
    """What can be cut into so many stages; one stage is perception whole. Raises PlanError."""
    if stages == 1:
        return [policy.perceive]
    blocks: list[Block] = list(policy.perception_blocks())
    if len(blocks) < stages:
        raise PlanError(f"plan: pp_perception: {stages} stages, but this policy's perception has {len(blocks)} blocks")
    return blocks


@torch.no_grad()
def operations(blocks: Sequence[Block], images: Tensor, state: Tensor) -> list[int]:
    """Floating point operations of each block, counted by running them once."""
    counts, value = [], (images, state)
    for block in blocks:
        with FlopCounterMode(display=False) as counter:
            value = as_tuple(block(*value))  # type: ignore[assignment]
        counts.append(int(counter.get_total_flops()))
    return counts


def split(costs: Sequence[int], groups: int) -> tuple[int, ...]:
    """Bounds 0, ..., len(costs) of `groups` runs of neighbours, none empty, whose largest sum is least."""
    sums = [0, *accumulate(costs)]
    count = len(costs)
    best: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {(0, 0): (0, (0,))}  # (runs, blocks) -> sum, bounds
    for runs in range(1, groups + 1):
        for end in range(runs, count - (groups - runs) + 1):
            tries = (
                (max(best[runs - 1, start][0], sums[end] - sums[start]), (*best[runs - 1, start][1], end))
                for start in range(runs - 1, end)
                if (runs - 1, start) in best
            )
            best[runs, end] = min(tries)
    return best[groups, count][1]


def run_blocks(blocks: Sequence[Block], value: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    for block in blocks:
        value = as_tuple(block(*value))
    return value
