"""`TRITON_INTERPRET=1 python -m tests.kernels.interpreted_lora`: the Triton kernels on a CPU, a line for each case with
the largest difference from the plain sum. A process of its own, because Triton decides at import."""

from __future__ import annotations

import json

import torch

from auras_ros.kernels.grouped_lora import RowGroups
from auras_ros.kernels.grouped_lora_triton import TritonLora
from auras_ros.kernels.lora_batch import LoraShape
from auras_ros.kernels.lora_index import GroupIndex, LayerPointers
from auras_ros.kernels.lora_tilings import EXPAND, SHRINK, SLORA, Tiling, TilingTable
from tests.kernels.lora_examples import EXAMPLES, Example, wanted

TILINGS = {
    "small": {SHRINK: Tiling(16, 16, 16), EXPAND: Tiling(16, 16, 16)},
    "split": {SHRINK: Tiling(16, 16, 16, split_k=4), EXPAND: Tiling(16, 32, 16)},
    "slora": SLORA,
}
SLOTS, TOKENS, GROUPS, RANK = 7, 32, 4, 16
CPU = torch.device("cpu")


def kernels(example: Example, subtracts: bool) -> TritonLora:
    return TritonLora(GroupIndex(TOKENS, GROUPS, CPU, subtracts), RANK, len(example.bounds) - 1)


def difference(example: Example, tilings: dict[str, Tiling], dtype: torch.dtype) -> float:
    """Of the largest number."""
    y, x, factors = example.tensors(dtype=dtype)
    expected = wanted(y, x, example.rows(), factors, example.bounds)
    pointers = LayerPointers(SLOTS, example.bounds, CPU)
    pointers.fill(factors)
    made = kernels(example, any(each[3:] == (-1,) for each in example.groups))
    made.index.fill(example.rows(), len(x))
    made.add_(y, x, pointers, tilings)
    return float((y.double() - expected).abs().max() / expected.abs().max().clamp_min(1))


def replayed() -> float:
    """One launch's tensors, filled with one batch after another, as a captured graph sees them."""
    names = ["ragged, unaligned", "one adapter twice", "empty groups"]
    example = EXAMPLES[names[0]]
    y, x, factors = example.tensors()
    pointers = LayerPointers(SLOTS, example.bounds, CPU)
    pointers.fill(factors)
    made, worst = kernels(example, False), 0.0
    for groups in (example.groups, ((4, 0, 1), (0, 1, 20)), ()):
        rows = RowGroups(example._replace(groups=groups).rows().groups)
        expected = wanted(y, x, rows, factors, example.bounds)
        made.index.fill(rows, len(x))
        made.add_(y, x, pointers)
        worst = max(worst, float((y.double() - expected).abs().max() / expected.abs().max()))
    return worst


class Asked(TilingTable):
    """Remembers what it chose."""

    def __init__(self, entries: dict[LoraShape, str]) -> None:
        super().__init__(entries)
        self.chosen = dict[LoraShape, Tiling]()

    def choose(self, shape: LoraShape) -> Tiling:
        return self.chosen.setdefault(shape, super().choose(shape))


def looked_up() -> float:
    """With tilings from a table, which is asked for the shapes that a search writes."""
    example = EXAMPLES["rows apart, three parts"]
    y, x, factors = example.tensors()
    shapes = [LoraShape(phase, len(x), RANK, example.width, len(y[0]), 3, GROUPS) for phase in (SHRINK, EXPAND)]
    names = ["16x32x16 w4 s2 k4", "32x16x16 w4 s2 k1"]
    table = Asked(dict(zip(shapes, names, strict=True)))
    made = TritonLora(GroupIndex(TOKENS, GROUPS, CPU), RANK, 3, table)
    expected = wanted(y, x, example.rows(), factors, example.bounds)
    pointers = LayerPointers(SLOTS, example.bounds, CPU)
    pointers.fill(factors)
    made.index.fill(example.rows(), len(x))
    made.add_(y, x, pointers)
    assert {shape: each.name for shape, each in table.chosen.items()} == dict(zip(shapes, names, strict=True))
    return float((y.double() - expected).abs().max() / expected.abs().max())


def main() -> None:
    found = {}
    for name, example in EXAMPLES.items():
        for kind, tilings in TILINGS.items():
            found[f"{name}; {kind}"] = difference(example, tilings, torch.float32)
        found[f"{name}; float16"] = difference(example, TILINGS["split"], torch.float16)
    found["replayed"], found["looked up"] = replayed(), looked_up()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
