"""Networks in consecutive parts, by name, so that an executor can spread them over frames.

A block takes the tensors that the one before it returned, and returns those for the next.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from torch import Tensor, nn

Block = Callable[..., tuple[Tensor, ...]]
Blocks = list[tuple[str, Block]]


def alone(body: Callable[[Tensor], Tensor]) -> Block:
    """A function of one tensor that returns one tensor, as a block."""
    return lambda x: (body(x),)


def carrying(block: Block) -> Block:
    """The block, with a last tensor that it does not use passed on behind its results."""
    return lambda *carried: (*block(*carried[:-1]), carried[-1])


def chain(blocks: Iterable[tuple[str, Block]], *carried: Tensor) -> Tensor:
    """Run all blocks in order; returns the first tensor of the last one."""
    for _, block in blocks:
        carried = block(*carried)
    return carried[0]


def named(**modules: nn.Module) -> nn.Sequential:
    """Consecutive modules whose parameters have these names."""
    return nn.Sequential(OrderedDict(modules))
