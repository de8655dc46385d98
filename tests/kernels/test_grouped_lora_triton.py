"""The Triton kernels: in Triton's interpreter against the plain sum, and compiled ahead for GPUs that are not here.

Guards: rows beyond a group's end; ranks or sizes that are no multiple of a block; outputs of one part in another; a sum
that is divided and not added up; a row that two programs add to; a table that is not looked up; registers that are
spilled, and blocks that cannot start; what is compiled and is not what runs. bfloat16 is compared on a GPU alone: the
interpreter is wrong there.
"""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch

from auras_ros.kernels.grouped_lora import Factors, RowGroup, RowGroups
from auras_ros.kernels.lora_ahead import ENGINE, SHARED_KIB, Specialization, compiled
from auras_ros.kernels.lora_index import GroupIndex, LayerPointers
from auras_ros.kernels.lora_tilings import CATALOGUE, EXPAND, SHRINK, Tiling
from tests.kernels.interpreter import interpreted
from tests.kernels.lora_examples import EXAMPLES, wanted

CPU = torch.device("cpu")
NAMES = [f"{name}; {kind}" for name in EXAMPLES for kind in ("small", "split", "slora", "float16")]
NAMES += ["replayed", "looked up"]


@pytest.fixture(scope="module")
def differences() -> dict[str, float]:
    return interpreted("tests.kernels.interpreted_lora")


@pytest.mark.parametrize("name", NAMES)
def test_in_the_interpreter_it_is_the_plain_sum(name: str, differences: dict[str, float]) -> None:
    assert set(differences) == set(NAMES)
    assert differences[name] < (3e-3 if "float16" in name else 1e-5)


LARGEST = {phase: max(tilings, key=lambda each: each.block_m * each.block_n) for phase, tilings in CATALOGUE.items()}
AHEAD = [
    (SHRINK, CATALOGUE[SHRINK][0], "fp16"),
    (SHRINK, LARGEST[SHRINK], "bf16"),
    (EXPAND, CATALOGUE[EXPAND][0], "bf16"),
    (EXPAND, LARGEST[EXPAND], "fp16"),
]


@pytest.mark.parametrize("capability", SHARED_KIB)
@pytest.mark.parametrize(("phase", "tiling", "dtype"), AHEAD)
def test_compiled_ahead_it_fits_the_gpu(phase: str, tiling: Tiling, dtype: str, capability: int) -> None:
    """The smallest and the largest tilings; `make test-triton` compiles the whole catalogue."""
    pytest.importorskip("triton", reason="needs Triton: make test-triton")
    for launch in ENGINE[phase]:
        made = compiled(phase, tiling, capability, launch, dtype, parts=3)
        assert made.registers > 16
        assert made.shared > 0
        assert made.fits(capability) if launch.divisible else made.starts(capability), (launch, made)


def test_compiled_ahead_a_launch_makes_a_difference() -> None:
    pytest.importorskip("triton", reason="needs Triton: make test-triton")
    each = (Specialization(), Specialization(divisible=False), Specialization(aligned=True))
    assert len({compiled(SHRINK, CATALOGUE[SHRINK][0], 90, launch) for launch in each}) == 3


def test_what_there_is_no_room_for_is_refused() -> None:
    index = GroupIndex(4, 2, CPU)
    index.fill(RowGroups([RowGroup(0, 0, 2)]), 4)
    assert index.of(1).ends.tolist() == [2, 0]
    with pytest.raises(ValueError, match="3 groups, room for 2"):
        index.fill(RowGroups([RowGroup(slot, slot, slot + 1) for slot in range(3)]), 4)
    with pytest.raises(ValueError, match="5 rows, room for 4"):
        index.fill(RowGroups([]), 5)
    with pytest.raises(ValueError, match="a group is subtracted"):
        index.fill(RowGroups([RowGroup(0, 0, 1, -1)]), 4)


def test_factors_that_the_kernels_cannot_read_are_refused() -> None:
    pointers = LayerPointers(1, (0, 8), CPU, aligned=True)
    pointers.fill({0: Factors(torch.zeros(8, 16), torch.zeros(8, 8))})
    with pytest.raises(ValueError, match="do not begin at multiples of 16 bytes"):
        pointers.fill({0: Factors(torch.zeros(3, 16), torch.zeros(8, 3))})
    with pytest.raises(ValueError, match="gaps"):
        pointers.fill({0: Factors(torch.zeros(16, 8).t(), torch.zeros(8, 8))})


def test_addresses_stay() -> None:
    """A captured graph has them."""
    index = GroupIndex(4, 2, CPU, subtracts=True)
    before = [each.data_ptr() for each in (*index.of(1), *index.of(-1), index.order)]
    index.fill(RowGroups([RowGroup(0, 0, 2, -1), RowGroup(1, 1, 2)], torch.tensor([3, 1])), 4)
    assert [each.data_ptr() for each in (*index.of(1), *index.of(-1), index.order)] == before
    assert index.of(-1).ends.tolist() == [2, 0]
    assert index.order.tolist() == [3, 1, 0, 0]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_on_a_gpu_a_captured_graph_follows_the_index(dtype: torch.dtype) -> None:
    pytest.importorskip("triton", reason="needs Triton: make test-triton")
    from auras_ros.kernels.grouped_lora_triton import TritonLora

    cuda, bounds, random = torch.device("cuda"), (0, *accumulate((96, 32, 32))), torch.Generator().manual_seed(0)
    factors = {
        slot: Factors(torch.randn(3 * rank, 128, generator=random), torch.randn(160, rank, generator=random) / 8)
        for slot, rank in ((0, 8), (2, 16), (3, 64))
    }
    held = {slot: Factors(*(each.to(cuda, dtype) for each in own)) for slot, own in factors.items()}
    pointers, made = LayerPointers(4, bounds, cuda, True), TritonLora(GroupIndex(64, 4, cuda, True), 64, 3)
    pointers.fill(held)
    x, y = torch.randn(64, 128, generator=random).to(cuda, dtype), torch.zeros(64, 160, device=cuda, dtype=dtype)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        made.add_(y, x, pointers)
    stream.synchronize()
    with torch.cuda.graph(graph):
        made.add_(y, x, pointers)
    for groups in ([(0, 0, 30), (2, 30, 64)], [(3, 0, 64, -1), (0, 1, 2), (2, 5, 60)], []):
        rows = RowGroups([RowGroup(*each) for each in groups])
        made.index.fill(rows, 64)
        y.zero_()
        graph.replay()
        expected = wanted(
            torch.zeros(64, 160), x.cpu(), rows, {s: Factors(*(e.cpu() for e in f)) for s, f in held.items()}, bounds
        )
        torch.testing.assert_close(y.double().cpu(), expected, rtol=2e-2, atol=2e-1)
