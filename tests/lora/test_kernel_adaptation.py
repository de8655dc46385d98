"""What a GPU's kernels are given of a batch and of the slots; and what they make of it, in Triton's interpreter.

Guards: factors of an adapter that has left its slot; a captured decode whose index is another one than is filled; more
groups than there is room for; rows that are taken away and not given back.
"""

from __future__ import annotations

import sys

import pytest
from torch import Tensor

from auras_ros.kernels.lora_index import GroupIndex, LayerPointers
from auras_ros.lora import runtime
from auras_ros.lora.adaptation import row_groups
from auras_ros.lora.kernel_adaptation import KernelAdapters
from tests.kernels.interpreter import interpreted
from tests.lora.decoders import RANK, Decoder


class Kernels:
    """Compute nothing."""

    def __init__(self, index: GroupIndex, rank: int, parts: int) -> None:
        self.index, self.rank, self.parts = index, rank, parts
        self.given: list[LayerPointers] = []

    def add_(self, y: Tensor, x: Tensor, layer: LayerPointers) -> None:
        self.given.append(layer)


def adapters(decoder: Decoder) -> KernelAdapters:
    return KernelAdapters(decoder.slots, decoder.places, Kernels)


def test_pointers_follow_the_slots() -> None:
    decoder = Decoder(kernels=True)
    first = decoder.put(0, RANK, 1)
    made, rows = adapters(decoder), row_groups([0], [3], None)
    assert rows is not None
    qkv = made._layers[1, "qkv"]
    adaptation = made.adaptation(rows, 3, keep=False)
    factors = first.decoder[1, "qkv"]
    assert (qkv.a[0], qkv.b[0], qkv.ranks.tolist()) == (factors.a.data_ptr(), factors.b.data_ptr(), [RANK, 0, 0])
    decoder.slots.withdraw(0)
    second = decoder.put(2, RANK - 2, 2)
    made.adaptation(rows, 3, keep=False)
    assert qkv.ranks.tolist() == [0, 0, RANK - 2]
    assert qkv.b[2] == second.decoder[1, "qkv"].b.data_ptr()
    x = decoder.llama.embed(Tensor([1, 2, 3]).long())
    adaptation(1, "qkv", x, x)
    assert adaptation.kernels.given == [qkv]  # type: ignore[attr-defined]


def test_what_is_kept_is_one_for_each_size_and_has_the_newest_batch() -> None:
    decoder = Decoder(kernels=True)
    made = adapters(decoder)
    rows = [row_groups(owners, [1] * 4, merged) for owners, merged in (([0, 1, 0, None], None), ([1, 0, 2, None], 0))]
    assert rows[0] is not None
    assert rows[1] is not None
    one = made.adaptation(rows[0], 8, keep=True)
    assert one.kernels.index.of(1).slots[:2].tolist() == [0, 1]
    assert made.adaptation(rows[1], 8, keep=True) is one
    index = one.kernels.index
    assert (index.of(1).slots[:2].tolist(), index.of(1).begins[:2].tolist()) == ([1, 2], [0, 2])
    assert (index.of(-1).slots[:2].tolist(), index.of(-1).ends[:2].tolist()) == ([0, 0], [1, 4])
    assert made.adaptation(rows[0], 4, keep=True) is not one
    assert made.adaptation(rows[0], 8, keep=False) is not one
    assert (one.kernels.rank, one.kernels.parts) == (RANK, 3)  # type: ignore[attr-defined]


def test_in_the_interpreter_they_add_what_the_ways_of_a_cpu_add() -> None:
    found = interpreted("tests.lora.interpreted_adaptation")
    assert len(found) == 5
    assert max(found.values()) < 1e-4


def test_a_gpu_without_triton_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "auras_ros.kernels.grouped_lora_triton", raising=False)
    with pytest.raises(ValueError, match="engine: max_loras: adapters on a GPU need Triton: "):
        runtime._triton()
