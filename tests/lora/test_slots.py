"""How an adapter lies in its slot, for whoever multiplies by it.

Guards: a form that is read slowly; numbers that are rounded to save memory; a layer whose neighbour has another type.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from auras_ros.checkpoints.peft import LoraFactors
from auras_ros.lora.adaptation import Adaptation, row_groups, site_bounds
from auras_ros.lora.merge import MergedWeights
from auras_ros.lora.slots import KERNEL_RANKS
from tests.lora.decoders import RANK, Decoder, adapter


def test_a_cpu_has_the_outputs_of_b_side_by_side() -> None:
    """As MKL multiplies few rows quickest; the kernels have its ranks side by side, and equal numbers."""
    cpu, gpu = (Decoder(kernels=kernels).put(0, RANK, 1).decoder[1, "qkv"] for kernels in (False, True))
    assert (cpu.b.stride(), gpu.b.stride()) == ((1, len(cpu.b)), (KERNEL_RANKS, 1))
    assert torch.equal(cpu.b, gpu.b[:, :RANK])
    assert torch.equal(cpu.a.unflatten(0, (3, -1)), gpu.a.unflatten(0, (3, -1))[:, :RANK])


def test_bfloat16_is_kept_where_nothing_is_lost_and_computes_the_same() -> None:
    """Adapter 1 has bfloat16's numbers, but for one of its layers; adapter 2 has others."""
    pytest.importorskip("numba")
    made = list[torch.Tensor]()
    for halves in (False, True):
        decoder = Decoder(halves=halves)
        whole, other = adapter(decoder, RANK, 1), adapter(decoder, RANK - 1, 2)
        name = next(each for each in whole.factors if "layers.1" in each and "o_proj" in each)
        rounded = {
            each: LoraFactors(*(part if each == name else part.bfloat16().float() for part in own))
            for each, own in whole.factors.items()
        }
        residents = [decoder.slots.write(0, replace(whole, factors=rounded)), decoder.slots.write(2, other)]
        for each in residents:
            decoder.slots.publish(each)
        types = [{place for place, own in each.decoder.items() if own.a.dtype == torch.bfloat16} for each in residents]
        assert types == [set(residents[0].decoder) - {(1, "o")} if halves else set(), set()]
        rows = row_groups([0, 2, None], [2, 3, 1], None)
        assert rows is not None
        made.append(
            decoder.hidden([1, 2, 3, 4, 5, 6], Adaptation(rows, decoder.slots.table, site_bounds(decoder.sites)))
        )
        weights = MergedWeights(decoder.llama, decoder.sites, decoder.head)
        weights.switch(residents[0])
        made.append(decoder.hidden([1, 2, 3]))
    assert torch.equal(made[0], made[2])
    assert torch.equal(made[1], made[3])
