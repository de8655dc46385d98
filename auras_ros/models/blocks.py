"""Networks in parts that follow one another, by name, so that an executor can spread them over frames.

A block takes the tensors that the one before it returned, and returns those of the next.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from torch import Tensor, nn

Block = Callable[..., tuple[Tensor, ...]]
Blocks = list[tuple[str, Block]]


def alone(body: Callable[[Tensor], Tensor]) -> Block:
    """What takes and gives one tensor, as a block."""
    return lambda x: (body(x),)


def carrying(block: Block) -> Block:
    """The block with what it does not look at, the last tensor, handed on behind what it returns."""
    return lambda *carried: (*block(*carried[:-1]), carried[-1])


def chain(blocks: Iterable[tuple[str, Block]], *carried: Tensor) -> Tensor:
    """All of them one after another: the first tensor that the last one returns."""
    for _, block in blocks:
        carried = block(*carried)
    return carried[0]


def named(**modules: nn.Module) -> nn.Sequential:
    """Modules one after another, whose parameters go by these names."""
    return nn.Sequential(OrderedDict(modules))
