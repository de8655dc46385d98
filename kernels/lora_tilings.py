"""The tilings of the Triton kernels: which there are, and which one a shape gets (VaLoRA 4.3.2, Appendix A).

Sides of a block are powers of two and 16 at least, as the matrix units of a GPU ask for. The published fixed tilings of
Punica and S-LoRA are among them, as baselines; not those that spill registers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from auras_ros.kernels.lora_batch import LoraShape
from auras_ros.kernels.lora_table import NearestShapes

SHRINK, EXPAND = "shrink", "expand"  # a shape's phase in a table of tilings


class Tiling(NamedTuple):
    """A program computes block_m rows of block_n columns, block_k products at a time. warps: of a program. stages: how
    many blocks are loaded ahead of the products. split_k: over how many programs a sum is divided (shrink alone)."""

    block_m: int
    block_n: int
    block_k: int
    warps: int = 4
    stages: int = 2
    split_k: int = 1

    @property
    def name(self) -> str:
        m, n, k, warps, stages, split_k = self
        return f"{m}x{n}x{k} w{warps} s{stages} k{split_k}"


PUNICA = Tiling(16, 64, 64, 4, 2)  # VaLoRA, table 1
SLORA = {SHRINK: Tiling(32, 16, 128, 4, 2), EXPAND: Tiling(32, 128, 16, 4, 2)}  # lora_prefill.py of its repository
CONFIGURATIONS = {"config 1": Tiling(64, 32, 32, 4, 2), "config 2": Tiling(64, 64, 64, 4, 2)}  # VaLoRA, table 1

CATALOGUE: Mapping[str, tuple[Tiling, ...]] = {
    SHRINK: (
        *(Tiling(16, 16, 128, 4, 4, split) for split in (1, 4, 16)),
        *(Tiling(16, 32, 256, 4, 3, split) for split in (1, 4, 16)),
        *(Tiling(32, 32, 128, 4, 4, split) for split in (1, 4, 8)),
        *(Tiling(64, 32, 64, 4, 4, split) for split in (1, 2, 8)),
        *(Tiling(64, 64, 64, 4, 3, split) for split in (1, 2, 4)),
        *(Tiling(128, 64, 64, 8, 3, split) for split in (1, 2)),
        Tiling(128, 128, 64, 8, 3),
        PUNICA, SLORA[SHRINK], *CONFIGURATIONS.values(),
    ),
    EXPAND: (
        Tiling(16, 64, 16), Tiling(16, 128, 32), Tiling(32, 64, 16), Tiling(32, 128, 32), Tiling(64, 64, 32, 8),
        Tiling(64, 128, 32, 8), Tiling(128, 64, 16, 8), PUNICA, SLORA[EXPAND], CONFIGURATIONS["config 1"],
    ),
}  # fmt: skip
MOST_SPLIT = 16
PROGRAMS = 132  # that a rule wants at least: as many multiprocessors as an H100 has


def tiling(name: str) -> Tiling:
    """Raises ValueError for a name that is no tiling's."""
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+) w(\d+) s(\d+) k(\d+)", name)
    made = Tiling(*map(int, found.groups())) if found else None
    if made is None or made.split_k > MOST_SPLIT or min(made[:3]) < 16 or any(size & (size - 1) for size in made[:4]):
        raise ValueError(f"'{name}' is no tiling: expected powers of two from 16 on, as '64x32x64 w4 s3 k2'")
    return made


def rule(shape: LoraShape) -> Tiling:
    """Without a table: blocks of as many rows as a group has on average, and sums divided until there are programs
    enough."""
    rows = shape.tokens / shape.adapters
    m = 16 if rows <= 16 else 32 if rows <= 64 else 64
    if shape.phase == EXPAND:
        return Tiling(m, 128 if m > 16 else 64, 32 if shape.rank > 16 else 16, 8 if m == 64 else 4)
    n = 16 if shape.parts * shape.rank <= 16 else 32
    programs = (shape.tokens // m + shape.adapters) * -(-shape.parts * shape.rank // n)
    split = 1
    while split < MOST_SPLIT and programs * split < PROGRAMS and shape.width // (2 * split) >= 256:
        split *= 2
    return Tiling(m, n, 64 if m == 64 else 128, 4, 4, split)


class TilingTable:
    """For a GPU: the searched tiling of the nearest shape, or the rule's."""

    def __init__(self, entries: Mapping[LoraShape, str]) -> None:
        """Raises ValueError for a name that is no tiling's."""
        self._tilings = {name: tiling(name) for name in set(entries.values())}
        self._shapes = NearestShapes(entries)

    def choose(self, shape: LoraShape) -> Tiling:
        name = self._shapes.name(shape)
        return rule(shape) if name is None else self._tilings[name]
