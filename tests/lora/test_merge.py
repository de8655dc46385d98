"""An adapter in the decoder's weights, and out of them again.

Guards: weights that are not the base model's bit for bit after many switches; one form of a weight that is changed and
the other not; outputs that share a block with others; a product in half precision that is rounded twice.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace

import pytest
import torch

from auras_ros.kernels.grouped_lora import Factors
from auras_ros.lora.adaptation import Adaptation, row_groups, site_bounds
from auras_ros.lora.merge import MergedWeights, _MergedLinear, drift
from auras_ros.lora.slots import Resident
from auras_ros.models.fused_llama import FusedLlama
from auras_ros.models.linear import AnyLinear, Int8Linear, Linear, WeightBlocks, block_form, fastest, weight_blocks
from tests.lora.decoders import RANK, Decoder

IDS = [3, 1, 4, 1, 5, 9, 2, 6]


def blocks(llama: FusedLlama) -> list[torch.Tensor]:
    linears = [each for layer in llama.layers for each in layer.linears().values()]
    return [form.data for linear in linears for form in weight_blocks(linear)]


@pytest.mark.parametrize(("in_place", "rank"), [(False, 3), (True, 3), (False, 17)])
@pytest.mark.parametrize("numba", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("out", "inputs"), [(64, 64), (96, 48), (48, 40), (100, 72), (130, 33), (320, 512)])
def test_the_blocks_of_a_weight_are_where_they_are_said_to_be(
    out: int, inputs: int, dtype: torch.dtype, numba: bool, in_place: bool, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever form it multiplies: plain, packed, or both."""
    if numba:
        pytest.importorskip("numba")
    monkeypatch.setattr("auras_ros.models.linear.NUMBA", numba)
    torch.manual_seed(1)
    weight, a, b = (
        torch.randn(out, inputs).to(dtype),
        torch.randn(rank, inputs).to(dtype),
        torch.randn(out // 2, rank).to(dtype),
    )
    layer, first = fastest(weight.clone()), out // 4
    for form in weight_blocks(layer):
        form.add_(form.data if in_place else form.data.clone(), a, b, first, 1)
    wanted = weight.float()
    wanted[first : first + len(b)] += b.float() @ a.float()
    close = {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    one = torch.eye(inputs).to(dtype)  # its product is the weight itself
    few, many = torch.cat([layer(one[row : row + 1]) for row in range(inputs)]), layer(one)
    for found in (few, many):
        torch.testing.assert_close(found.float().t(), wanted, **close)


def test_nothing_is_added_to_weights_in_8_bits() -> None:
    with pytest.raises(ValueError, match="nothing can be added to weights in 8 bits"):
        weight_blocks(Int8Linear(torch.randn(16, 16), None))


def test_a_plain_weight_is_its_own_block() -> None:
    weight = torch.randn(4, 3)
    assert weight_blocks(Linear(weight, None)) == [WeightBlocks(weight, 3)]


def test_the_order_of_blocks_is_found_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert block_form(128, 64, torch.float32)[1] == 1
    monkeypatch.setattr("auras_ros.models.linear.BLOCK_WIDTHS", ())
    with pytest.raises(ValueError, match="a weight of 8 x 24 in blocks whose order is not known"):
        block_form(8, 24, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_after_a_thousand_switches_the_weights_are_the_base_models(dtype: torch.dtype) -> None:
    decoder = Decoder(dtype)
    golden = [each.clone() for each in blocks(decoder.llama)]
    residents = [decoder.put(slot, rank, slot) for slot, rank in enumerate((2, RANK, 3))]
    weights = MergedWeights(decoder.llama, decoder.sites, decoder.head)
    weights.switch(residents[1])
    once = [each.clone() for each in blocks(decoder.llama)]
    assert not all(map(torch.equal, once, golden))
    chance = random.Random(0)
    for _ in range(1000):
        weights.switch(chance.choice([None, *residents]))
    for resident, wanted in ((None, golden), (residents[1], once), (None, golden)):
        weights.switch(resident)
        assert all(map(torch.equal, blocks(decoder.llama), wanted))


def test_an_adapters_weights_are_computed_once_and_the_base_models_never_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Forwards take turns with both: a choice of layers, and the captured stages of either stay right."""
    decoder = Decoder()
    linears = layers_of(decoder)
    base = [form.data for linear in linears for form in weight_blocks(linear)]
    golden, first = [each.clone() for each in base], decoder.put(0, RANK, 1)
    weights = MergedWeights(decoder.llama, decoder.sites, decoder.head)
    weights.switch(first)
    wanted, took_ns, replaced = decoder.hidden(IDS), weights.took_ns, weights.replaced
    assert replaced == {(0, place) for place in first.decoder}
    failing(monkeypatch, layers=0)
    for _ in range(3):
        weights.switch(None)
        assert all(one is other for one, other in zip(linears, layers_of(decoder), strict=True))
        assert not weights.replaced
        weights.switch(first)
        assert torch.equal(decoder.hidden(IDS), wanted)
        assert (weights.took_ns, weights.replaced) == (took_ns, replaced)
    assert all(map(torch.equal, base, golden))


def test_several_adapters_weights_are_kept_and_the_longest_unused_ones_go(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = Decoder()
    golden = [each.clone() for each in blocks(decoder.llama)]
    first, second, third = (decoder.put(0, RANK, 1), decoder.put(1, 4, 2, names="q_proj"), decoder.put(2, 2, 3))
    alone, wanted = MergedWeights(decoder.llama, decoder.sites, decoder.head), {}
    for resident in (first, second, third):
        alone.switch(resident)
        wanted[resident] = [each.clone() for each in blocks(decoder.llama)]
    alone.switch(None)
    weights, computed, own = MergedWeights(decoder.llama, decoder.sites, decoder.head, copies=2), [], _MergedLinear.add

    def counted(linear: _MergedLinear, factors: Factors, sign: int = 1) -> None:
        computed.append(factors)
        own(linear, factors, sign)

    monkeypatch.setattr(_MergedLinear, "add", counted)
    weights.reserve()
    monkeypatch.setattr("auras_ros.lora.merge.duplicate", None)  # nothing is allocated any more
    keys = set()
    for resident, anew in (
        (first, True), (second, True), (first, False), (None, False), (second, False), (first, False),
        (third, True), (first, False), (second, True), (third, True), (None, False),
    ):  # fmt: skip
        computed.clear()
        weights.switch(resident)
        assert len(computed) == (len(resident.decoder) if anew and resident is not None else 0)
        assert all(map(torch.equal, blocks(decoder.llama), golden if resident is None else wanted[resident]))
        keys.add(weights.replaced)
    assert len(keys) == 4  # no layers, all of the first copy, some and all of the second: what a captured stage has


def test_one_that_was_read_again_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = Decoder()
    weights, first = MergedWeights(decoder.llama, decoder.sites, decoder.head), decoder.put(0, RANK, 1)
    weights.switch(first)
    wanted = [each.clone() for each in blocks(decoder.llama)]
    moved = replace(first, slot=3)
    failing(monkeypatch, layers=0)
    for before in (first, None):
        weights.switch(before)
        weights.switch(moved)
        assert weights.merged is moved  # whose slot is taken away from others' rows
        assert all(map(torch.equal, blocks(decoder.llama), wanted))


def test_a_sum_that_fails_leaves_no_copy_to_two(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = Decoder()
    residents = [decoder.put(slot, RANK, slot) for slot in range(3)]
    weights = MergedWeights(decoder.llama, decoder.sites, decoder.head, copies=2)
    for resident in residents[:2]:
        weights.switch(resident)
    wanted = [each.clone() for each in blocks(decoder.llama)]
    with monkeypatch.context() as patch:
        failing(patch, layers=2)
        with pytest.raises(MemoryError):
            weights.switch(residents[2])
    weights.switch(residents[2])  # an engine makes no other change
    weights.switch(residents[1])
    assert all(map(torch.equal, blocks(decoder.llama), wanted))


def layers_of(decoder: Decoder) -> list[AnyLinear]:
    return [each for layer in decoder.llama.layers for each in layer.linears().values()]


def test_without_a_copy_the_weights_drift_and_it_is_measured() -> None:
    decoder = Decoder()
    golden = [each.clone() for each in blocks(decoder.llama)]
    residents = [decoder.put(slot, RANK, slot) for slot in range(3)]
    weights = MergedWeights(decoder.llama, decoder.sites, decoder.head, copies=0)
    for number in range(300):
        weights.switch(residents[number % 3])
    weights.switch(None)
    found = max(map(drift, blocks(decoder.llama), golden))
    assert 0 < found < 1e-3


def test_without_a_copy_an_adapter_is_taken_away_whose_slot_is_anothers() -> None:
    """Its factors are what was added, not what stands in its slot meanwhile."""
    decoder = Decoder()
    golden = [each.clone() for each in blocks(decoder.llama)]
    weights = MergedWeights(decoder.llama, decoder.sites, decoder.head, copies=0)
    for seed in range(3):
        weights.switch(decoder.put(0, RANK, seed))
    weights.switch(None)
    assert max(map(drift, blocks(decoder.llama), golden)) < 1e-5


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float16, 5e-3), (torch.bfloat16, 4e-2)])
def test_all_modes_make_the_same_rows(dtype: torch.dtype, tolerance: float) -> None:
    """Merged, unmerged, and mixture, where half of the rows get rid of the merged adapter."""
    decoder = Decoder(dtype)
    residents = [decoder.put(0, 4, 1), decoder.put(1, 2, 2, names="v_proj"), decoder.put(2, RANK, 3, names="mlp")]
    weights, bounds = MergedWeights(decoder.llama, decoder.sites, decoder.head), site_bounds(decoder.all_sites)

    def hidden(owners: list[int], merged: Resident | None) -> torch.Tensor:
        weights.switch(merged)
        counts = [len(IDS) // len(owners) for _ in owners]
        rows = row_groups(owners, counts, None if merged is None else merged.slot)
        adapt = None if rows is None else Adaptation(rows, decoder.slots.table, bounds)
        return decoder.hidden(IDS, adapt).double()

    for resident, other in zip(residents, [*residents[1:], residents[0]], strict=True):
        own, mixed = [resident.slot], [resident.slot, other.slot]
        base = hidden([], None)
        for owners in (own, mixed):
            unmerged = hidden(owners, None)
            found = float((hidden(owners, resident) - unmerged).norm() / unmerged.norm())
            assert found <= tolerance
            assert float((unmerged - base).norm() / unmerged.norm()) > 2 * tolerance


def test_a_part_of_the_layers_leaves_the_others() -> None:
    """A switch from one adapter to another that has other layers takes the first one's away."""
    decoder = Decoder()
    base, first, second = decoder.hidden(IDS), decoder.put(0, 4, 1, names="q_proj"), decoder.put(1, 4, 2, names="down")
    weights = MergedWeights(decoder.llama, decoder.sites, decoder.head)
    weights.switch(second)
    wanted = decoder.hidden(IDS)
    weights.switch(first)
    weights.switch(second)
    assert torch.equal(decoder.hidden(IDS), wanted)
    weights.switch(None)
    assert torch.equal(decoder.hidden(IDS), base)


def test_two_forwards_that_begin_together_find_the_change_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefill and decode on threads of their own: the second one waits, and finds nothing left to change."""
    decoder = Decoder()
    resident = decoder.put(0, RANK, 1)
    weights = MergedWeights(decoder.llama, decoder.sites, decoder.head)
    begin, changed, inside, own = threading.Barrier(2), list[str](), list[str](), _MergedLinear.add

    def slow(linear: _MergedLinear, factors: Factors, sign: int = 1) -> None:
        inside.append(threading.current_thread().name)
        time.sleep(1e-3)  # long enough for the other thread to come in, if it may
        changed.append(threading.current_thread().name)
        assert inside == changed
        own(linear, factors, sign)

    monkeypatch.setattr(_MergedLinear, "add", slow)

    def forward() -> None:
        begin.wait()
        weights.switch(resident)

    threads = [threading.Thread(target=forward) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(changed) == len(resident.decoder)
    assert len(set(changed)) == 1
    assert weights.merged is resident


def failing(monkeypatch: pytest.MonkeyPatch, layers: int) -> None:
    """Changes of a layer fail after so many."""
    own, left = _MergedLinear.add, iter([True] * layers)

    def fails(linear: _MergedLinear, factors: Factors, sign: int = 1) -> None:
        if next(left, None) is None:
            raise MemoryError("no more")
        own(linear, factors, sign)

    monkeypatch.setattr(_MergedLinear, "add", fails)


def test_a_change_that_fails_leaves_the_base_model_and_no_other_is_made(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    decoder = Decoder()
    base = decoder.hidden(IDS)
    first, second = decoder.put(0, RANK, 1), decoder.put(1, RANK, 2)
    weights = MergedWeights(decoder.llama, decoder.sites, decoder.head)
    weights.switch(first)
    failing(monkeypatch, layers=2)
    with pytest.raises(MemoryError):
        weights.switch(second)
    assert weights.merged is None
    assert torch.equal(decoder.hidden(IDS), base)
    assert weights.refusal == "a change of the weights failed: no more"
    assert f"no adapter is merged any more: {weights.refusal}" in caplog.text
    weights.switch(None)  # the base model's serve


def test_after_a_change_that_fails_without_a_copy_nothing_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = Decoder()
    weights = MergedWeights(decoder.llama, decoder.sites, decoder.head, copies=0)
    failing(monkeypatch, layers=2)
    with pytest.raises(MemoryError):
        weights.switch(decoder.put(0, RANK, 1))
    for wanted in (None, decoder.put(1, RANK, 2)):
        with pytest.raises(RuntimeError, match="no more; without a copy of them"):
            weights.switch(wanted)


def test_int8_weights_take_no_adapter_and_stay() -> None:
    decoder = Decoder(int8=True)
    weights = MergedWeights(decoder.llama, decoder.sites, decoder.head)
    with pytest.raises(ValueError, match="8 bits"):
        weights.switch(decoder.put(0, 2, 1))
    assert weights.merged is None
