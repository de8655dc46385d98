"""Low-rank products of many adapters in one batch: y[rows] += sign * (x[rows] A^T) B^T for each group of rows.

Rows of a group have one adapter; groups may have other ranks, and a row may be in two (the deLoRA branch, VaLoRA 4.4.2:
the merged adapter's product is subtracted, the row's own added). A layer whose outputs are joined (queries, keys and
values) has the adapters of its parts one after another in A, and each part's B for its own outputs.

There are several ways to the same result (`lora_ways`). Which is the quickest depends on the shapes: a table that was
searched on this machine chooses it (ATMM, VaLoRA 4.3; `lora_table`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from auras_ros.kernels.lora_batch import AdapterRows, RowGroup
from auras_ros.kernels.lora_factors import Factors, FactorSet, LayerKind
from auras_ros.kernels.lora_table import RULE, WayChooser

__all__ = ["FactorSet", "Factors", "RowGroup", "RowGroups", "add_lora_"]


@dataclass(frozen=True, eq=False)
class RowGroups:
    """order: int64 [n], the rows of the batch, group by group; None: the rows as they stand.

    All layers of a forward have the same one: what is made of it for one of them is kept for the others."""

    groups: Sequence[RowGroup]
    order: Tensor | None = None
    batches: dict[LayerKind, AdapterRows] = field(default_factory=dict, init=False, repr=False)

    def batch(self, kind: LayerKind, x: Tensor) -> AdapterRows:
        """For layers of this kind. x: [T, in], the rows of the batch."""
        found = self.batches.get(kind)
        if found is None:
            found = self.batches[kind] = AdapterRows(self.groups, self.order, kind, len(x), x.dtype)
        return found


def add_lora_(
    y: Tensor,
    x: Tensor,
    rows: RowGroups,
    factors: Mapping[int, Factors],
    bounds: Sequence[int],
    chooser: WayChooser = RULE,
) -> None:
    """x [T, in], y [T, out]. factors: by slot; a `FactorSet` keeps what is made of them, any other mapping is read at
    each call. A group whose slot has none adds nothing. bounds: where the parts of the outputs begin, and their end.
    chooser: of the way, once for all layers of a kind."""
    own = factors if isinstance(factors, FactorSet) else FactorSet(factors)
    batch = rows.batch(own.kind, x)
    if batch.chooser is not chooser:
        batch.chooser = chooser
        if batch.groups:
            batch.way = chooser.choose(batch.shape)
    batch.way(y, x, batch, own, bounds)
