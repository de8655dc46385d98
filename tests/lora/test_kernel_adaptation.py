"""What a GPU's kernels are given of a batch and of the slots; and what they make of it, in Triton's interpreter.

Guards: factors of an adapter that has left its slot; a captured decode whose index is another one than is filled; more
groups than there is room for; rows that are taken away and not given back; a table
that a server is given and does not read; kernels that are compiled ahead for other launches than there are.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from auras_ros.kernels.grouped_lora import Factors, FactorSet
from auras_ros.kernels.lora_ahead import ENGINE
from auras_ros.kernels.lora_batch import LoraShape
from auras_ros.kernels.lora_index import GroupIndex, LayerPointers
from auras_ros.kernels.lora_table_file import write_table
from auras_ros.kernels.lora_tilings import EXPAND, SHRINK, Tiling
from auras_ros.lora import runtime
from auras_ros.lora.adaptation import row_groups
from auras_ros.lora.kernel_adaptation import KernelAdapters
from tests.kernels.interpreter import interpreted
from tests.lora.decoders import RANK, Decoder

PLACED = 8  # what a slot holds of RANK


class Kernels:
    """Compute nothing."""

    def __init__(self, index: GroupIndex, rank: int, parts: int) -> None:
        self.index, self.rank, self.parts = index, rank, parts
        self.given: list[LayerPointers] = []

    def add_(self, y: Tensor, x: Tensor, layer: LayerPointers) -> None:
        self.given.append(layer)


def adapters(decoder: Decoder) -> KernelAdapters:
    return KernelAdapters(decoder.slots, decoder.places, Kernels)


def test_a_tied_head_has_no_factors() -> None:
    """The decoder asks for them all the same."""
    decoder = Decoder(kernels=True, tied=True)
    decoder.put(0, RANK, 1)
    made, rows = adapters(decoder), row_groups([0], [1], None)
    assert rows is not None
    adaptation = made.adaptation(rows, 1, keep=False)
    assert decoder.llama.logits(torch.randn(1, 48), adaptation).shape == (1, 50)
    assert adaptation.kernels.given == []


def test_pointers_are_those_of_one_moment() -> None:
    """The engine's thread takes an adapter out of its slot while a forward of others begins."""

    class Changing(FactorSet):
        def __getitem__(self, slot: int) -> Factors:
            raise KeyError(slot)  # it has just gone

    decoder = Decoder(kernels=True)
    decoder.put(0, RANK, 1)
    for place, factors in decoder.slots.table.items():
        decoder.slots.table[place] = Changing(factors.by_slot)
    rows = row_groups([0], [1], None)
    assert rows is not None
    assert adapters(decoder).adaptation(rows, 1, keep=False) is not None


def test_pointers_follow_the_slots() -> None:
    decoder = Decoder(kernels=True)
    first = decoder.put(0, RANK, 1)
    made, rows = adapters(decoder), row_groups([0], [3], None)
    assert rows is not None
    qkv = made._layers[1, "qkv"]
    adaptation = made.adaptation(rows, 3, keep=False)
    factors = first.decoder[1, "qkv"]
    assert (qkv.a[0], qkv.b[0], qkv.ranks.tolist()) == (factors.a.data_ptr(), factors.b.data_ptr(), [PLACED, 0, 0])
    decoder.slots.withdraw(0)
    second = decoder.put(2, RANK - 2, 2)
    made.adaptation(rows, 3, keep=False)
    assert qkv.ranks.tolist() == [0, 0, PLACED]
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
    assert (one.kernels.rank, one.kernels.parts) == (PLACED, 3)  # type: ignore[attr-defined]


def test_what_is_compiled_ahead_is_what_is_launched() -> None:
    decoder = Decoder(torch.float16, kernels=True, hidden=81)
    made, rows = adapters(decoder), row_groups([0], [3], None)
    assert rows is not None
    ahead = [launch for own in ENGINE.values() for launch in own]
    assert {each.aligned for each in made._layers.values()} == {launch.aligned for launch in ahead}
    assert set(made.adaptation(rows, 3, keep=False).kernels.index.signs) == {each.sign for each in ENGINE[EXPAND]}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rows_begin_at_whole_lines_whatever_the_rank(dtype: torch.dtype) -> None:
    """The ranks that fill them up are zeros: slots had other adapters before, and B is added as a whole."""
    decoder, plain = Decoder(dtype, kernels=True), Decoder(dtype)
    made, rows = adapters(decoder), row_groups([0], [3], None)
    assert rows is not None
    for slot, rank in ((0, RANK), (1, RANK), (2, RANK), (0, 1), (1, 3), (2, 5)):
        decoder.put(slot, rank, 10 * slot + rank)
        plain.put(slot, rank, 10 * slot + rank)
    made.adaptation(rows, 3, keep=False)  # refuses factors that do not
    assert all(each.aligned for each in made._layers.values())
    own, other = decoder.slots.table[1, "qkv"], plain.slots.table[1, "qkv"]
    for slot in range(3):
        (a, b), (a_plain, b_plain) = own[slot], other[slot]
        assert (len(a), b.shape[1]) == (3 * PLACED, PLACED)
        assert torch.equal(a.unflatten(0, (3, -1))[:, : b_plain.shape[1]], a_plain.unflatten(0, (3, -1)))
        assert torch.equal(b[:, : b_plain.shape[1]], b_plain)
        assert not b[:, b_plain.shape[1] :].any()
        assert not a.unflatten(0, (3, -1))[:, b_plain.shape[1] :].any()


def test_in_the_interpreter_they_add_what_the_ways_of_a_cpu_add() -> None:
    found = interpreted("tests.lora.interpreted_adaptation")
    assert len(found) == 5
    assert max(found.values()) < 1e-4


def test_a_gpu_without_triton_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "auras_ros.kernels.grouped_lora_triton", raising=False)
    with pytest.raises(ValueError, match="engine: max_loras: adapters on a GPU need Triton: "):
        runtime._triton("", torch.device("cuda"))


def test_a_gpu_is_given_its_table_of_tilings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not another's, and no way of a CPU: a server would run on with what it was not asked for."""
    path, shape, cuda = tmp_path / "t.json", LoraShape(SHRINK, 4, 16, 256, 256, 1, 5), torch.device("cuda")
    write_table(path, "this GPU", {shape: "32x32x64 w4 s3 k2"})
    given = list[Any]()
    kernels = SimpleNamespace(
        TritonLora=lambda *sizes, **more: given.append(more), table_name=lambda device: "this GPU"
    )
    monkeypatch.setitem(sys.modules, "auras_ros.kernels.grouped_lora_triton", kernels)
    runtime._triton(str(path), cuda)(GroupIndex(4, 2, torch.device("cpu")), 16, 3)
    assert given[0]["tilings"].choose(shape) == Tiling(32, 32, 64, 4, 3, 2)
    assert runtime._triton("", cuda) is kernels.TritonLora
    for way in ("segmented", "compiled"):
        with pytest.raises(ValueError, match=f"engine: lora_ways: '{way}' is a CPU's way"):
            runtime._triton(way, cuda)
    kernels.table_name = lambda device: "another GPU"
    with pytest.raises(ValueError, match=r"engine: lora_ways: .*t\.json has no table of another GPU"):
        runtime._triton(str(path), cuda)
    with pytest.raises(FileNotFoundError, match="none"):
        runtime._triton(str(tmp_path / "none"), cuda)
