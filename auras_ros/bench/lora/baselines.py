"""What ATMM is compared with: other systems' operators on a CPU, with the tiles and the gathering that they publish for
a GPU. On a CPU that costs: S-LoRA's tiles of 32 rows take longer than whole segments, which are the way `segmented` and
what `lora-load` gives its S-LoRA-style side.

All read factors that lie ready, as those systems keep them: their copies are made once, outside of what is timed. What
is fixed in each is what its paper fixes. How a tile's rows are divided further, among a GPU's warps, has no meaning
here; on a GPU the published tilings themselves are in `kernels.lora_tilings`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from auras_ros.kernels.lora_batch import AdapterRows, Way
from auras_ros.kernels.lora_factors import FactorSet
from auras_ros.kernels.lora_forms import pad
from auras_ros.kernels.lora_tilings import PUNICA, SHRINK, SLORA
from auras_ros.kernels.lora_ways import WAYS, tiles

_PUNICA_TILES, _SLORA_TILES = tiles(PUNICA.block_m), tiles(SLORA[SHRINK].block_m)


def einsum(y: Tensor, x: Tensor, batch: AdapterRows, factors: FactorSet, bounds: Sequence[int]) -> None:
    """dLoRA: einsum over the adapters' rows, filled up to the longest, with factors filled up to the largest rank."""
    a, b = factors.form(pad, batch.own_slots, bounds)
    filled, places = batch.padding
    inner = torch.einsum("gti,gir->gtr", x.index_select(0, filled).unflatten(0, (len(a), -1)), a)
    if batch.signs is not None:
        inner = inner * batch.signs
    for part, own, (low, high) in zip(b, inner.split(b[0].shape[1], 2), pairwise(bounds), strict=True):
        made = torch.einsum("gtr,gro->gto", own, part).flatten(0, 1).index_select(0, places)
        y[:, low:high].index_add_(0, batch.rows, made)


def punica(y: Tensor, x: Tensor, batch: AdapterRows, factors: FactorSet, bounds: Sequence[int]) -> None:
    """Punica: each row's factors gathered in a decode (its BGMV), segments in tiles of 16 rows else (its SGMV)."""
    gathers = max(each.end - each.begin for each in batch.groups) == 1 or batch.order is not None
    (WAYS["gathered"] if gathers else _PUNICA_TILES)(y, x, batch, factors, bounds)


def slora(y: Tensor, x: Tensor, batch: AdapterRows, factors: FactorSet, bounds: Sequence[int]) -> None:
    """S-LoRA: segments in tiles of 32 rows."""
    _SLORA_TILES(y, x, batch, factors, bounds)


BASELINES: Mapping[str, Way] = {"einsum": einsum, "punica": punica, "slora": slora}
