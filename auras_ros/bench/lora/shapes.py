"""The shapes that low-rank products are measured with (VaLoRA figure 17), and a run of one of them.

A run is what a forward does at one site: the same rows go through several layers, each with factors of its own, so
that these come from memory as they do in a model. What a way makes of the rows is made once in each run, as the layers
of a forward share it. Ranks are mixed: every other adapter has half the rank; one more, of rank 1, is in memory and in
no row, as a server has more adapters than a batch. In a decode the adapters' rows alternate; in a prefill each adapter
has a run of rows, of uneven lengths.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from auras_ros.kernels.grouped_lora import Factors, FactorSet, RowGroup, RowGroups, add_lora_
from auras_ros.kernels.lora_batch import LoraShape
from auras_ros.kernels.lora_table import WayChooser

LAYERS: dict[str, tuple[int, tuple[int, ...]]] = {  # width of the input, and the outputs that are joined
    "tiny": (16, (8, 4)),
    "o-256": (256, (256,)),
    "qkv-896": (896, (896, 128, 128)),
    "gate_up-896": (896, (4864, 4864)),
    "down-896": (4864, (896,)),
    "o-2048": (2048, (2048,)),
    "o-4096": (4096, (4096,)),  # the paper's models have this width
}
DECODES, PREFILLS = (1, 16), (17, 1 << 14)  # tokens of a batch, from and to
FEW, MANY = 8, 2  # layers of a run: of a decode, of a prefill


@dataclass(frozen=True)
class LoraCase:
    """tokens: rows of the batch, of so many adapters. rank: the largest."""

    layer: str
    phase: str
    tokens: int
    adapters: int
    rank: int

    def __str__(self) -> str:
        return f"{self.phase} of {self.tokens}, {self.adapters} x rank {self.rank}, {self.layer}"

    @property
    def ranks(self) -> list[int]:
        return [self.rank if number % 2 == 0 else max(1, self.rank // 2) for number in range(self.adapters)]

    @property
    def layers(self) -> int:
        """Of a run."""
        return FEW if self.phase == "decode" else MANY

    @property
    def mib(self) -> float:
        """The memory of a run with its joined copies: twice the factors, the rows in and out."""
        width, outputs = LAYERS[self.layer]
        factors = sum(self.ranks) * (len(outputs) * width + sum(outputs))
        return 4 * self.layers * (3 * factors + self.tokens * (width + sum(outputs))) / 2**20

    def fits(self, way: str, mib: float) -> bool:
        """Whether what a way makes at each call fits too: factors for each row are more than the rows."""
        width, outputs = LAYERS[self.layer]
        gathered = 4 * self.tokens * self.rank * (len(outputs) * width + sum(outputs)) / 2**20
        return way != "gathered" or gathered <= mib


def cases(
    layers: Sequence[str], tokens: Sequence[int], ranks: Sequence[int], adapters: Sequence[int], mib: float
) -> Iterator[LoraCase]:
    """All that fit into this memory (algorithm 2: GetRange). tokens: up to 16 as a decode, more as a prefill."""
    for layer in layers:
        for rank in ranks:
            for phase, counts in (("decode", DECODES), ("prefill", PREFILLS)):
                for count in tokens:
                    for each in adapters:
                        case = LoraCase(layer, phase, count, each, rank)
                        inside = counts[0] <= count <= counts[1] and each <= count
                        if inside and case.mib <= mib:
                            yield case


class CaseRun:
    """A case with random numbers. shape: its key in a table."""

    def __init__(self, case: LoraCase, seed: int) -> None:
        self.case = case
        width, outputs = LAYERS[case.layer]
        self.bounds = (0, *accumulate(outputs))
        random_, out = torch.Generator().manual_seed(seed), sum(outputs)
        self.layers = list[tuple[Tensor, Tensor, FactorSet]]()
        for _ in range(case.layers):
            x, y = torch.randn(case.tokens, width, generator=random_), torch.zeros(case.tokens, out)
            factors = {
                slot: Factors(
                    torch.randn(len(outputs) * rank, width, generator=random_) / width**0.5,
                    (torch.randn(rank, out, generator=random_) / 1e3).t(),  # as `AdapterSlots` places it
                )
                for slot, rank in enumerate([*case.ranks, 1])
            }
            self.layers.append((x, y, FactorSet(factors)))
        self._groups, self._order = _rows(case, random.Random(seed))
        x, _, factors_ = self.layers[0]
        self.shape: LoraShape = self.rows().batch(factors_.kind, x).shape

    def rows(self) -> RowGroups:
        return RowGroups(self._groups, self._order)

    def forward(self, chooser: WayChooser) -> None:
        rows = self.rows()
        for x, y, factors in self.layers:
            add_lora_(y, x, rows, factors, self.bounds, chooser)

    def check(self, one: WayChooser, other: WayChooser) -> float:
        """The largest difference of the two in a layer, over the largest number."""
        x, y, factors = self.layers[0]
        made = [torch.zeros_like(y) for _ in range(2)]
        for each, chooser in zip(made, (one, other), strict=True):
            add_lora_(each, x, self.rows(), factors, self.bounds, chooser)
        return float((made[0] - made[1]).abs().max() / made[0].abs().max())


def _rows(case: LoraCase, chance: random.Random) -> tuple[list[RowGroup], Tensor | None]:
    if case.phase == "prefill":
        cuts = sorted(chance.sample(range(1, case.tokens), case.adapters - 1))
        runs = pairwise([0, *cuts, case.tokens])
        return [RowGroup(slot, begin, end) for slot, (begin, end) in enumerate(runs)], None
    rows = [list(range(slot, case.tokens, case.adapters)) for slot in range(case.adapters)]
    ends = [0, *accumulate(map(len, rows))]
    groups = [RowGroup(slot, begin, end) for slot, (begin, end) in enumerate(pairwise(ends))]
    apart = case.adapters > 1 and case.tokens > case.adapters
    return groups, torch.tensor([row for own in rows for row in own]) if apart else None
