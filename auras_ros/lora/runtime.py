"""What the engine's workers do with adapters: which rows of a forward get which, and what is merged meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from auras_ros.checkpoints.peft import AdapterTargets
from auras_ros.kernels import NUMBA, prepare
from auras_ros.kernels.lora_table import LIBRARIES, RULE, FixedWay, WayChooser, rule, rule_of_libraries
from auras_ros.kernels.lora_table_file import read_tilings, read_ways
from auras_ros.kernels.lora_ways import TILINGS, WAYS, way_named
from auras_ros.lora.adaptation import Adaptation, row_groups, site_bounds
from auras_ros.lora.kernel_adaptation import KernelAdapters, MakeKernels
from auras_ros.lora.merge import MergedWeights
from auras_ros.lora.registry import AdapterRegistry
from auras_ros.lora.sites import decoder_sites, head_site
from auras_ros.lora.slots import AdapterSlots, Resident
from auras_ros.models.fused_llama import HEAD, Adapt, FusedLlama


class LoraRuntime:
    """Raises ValueError for sizes that do not fit, or ways to multiply that there are not here; OSError for their
    file."""

    def __init__(
        self,
        decoder: FusedLlama,
        store: Tensor,
        targets: AdapterTargets,
        slots: int,
        rank: int,
        ways: str = "",
        copies: int = 1,
    ) -> None:
        """store: of keys and values. rank: the largest of a layer's adapter. ways: how products are multiplied: the
        name of one way, or the file of a searched table; without either by a rule. On a GPU: the file of a table of
        tilings, which must have this GPU's. copies: see `MergedWeights`."""
        config = decoder.config
        sites, head = decoder_sites(config), None if config.tied else head_site(config)
        kernels = has_kernels(store.device)
        compiled = NUMBA and not kernels and store.dtype == torch.float32
        self.slots = AdapterSlots(store, sites, head, rank, slots, kernels, compiled and ways in ("", *TILINGS))
        self.registry = AdapterRegistry(targets, self.slots.check)
        self.weights = MergedWeights(decoder, sites, head, copies)
        self._chooser = _chooser("" if kernels else ways, compiled)
        self._bounds = site_bounds([*sites, *([] if head is None else [head])])
        self._kernels = None
        self._kept: tuple[Any, Adapt | None] = None, None
        if compiled:
            prepare()
        if kernels:
            places = {(layer, site.name): site for layer in range(config.layers) for site in sites}
            places |= {} if head is None else {(HEAD, head.name): head}
            self._kernels = KernelAdapters(self.slots, places, _triton(ways, store.device))

    def enter(self, merged: Resident | None) -> None:
        """Before a forward of the decoder: this adapter is in the weights then."""
        self.weights.switch(merged)

    def adapt(
        self, residents: Sequence[Resident | None], counts: Sequence[int], tokens: int | None = None, keep: bool = False
    ) -> Adapt | None:
        """Of rows of requests, one after another; None if no row needs anything. tokens: rows of the batch, if it has
        more. keep: of the decode, whose batch is mostly that of the one before: what was made of its rows is used
        again, and a captured one finds it where it was."""
        merged = None if self.weights.merged is None else self.weights.merged.slot
        owners = [None if each is None else each.slot for each in residents]
        if self._kernels is not None:
            rows = row_groups(owners, counts, merged)
            return None if rows is None else self._kernels.adaptation(rows, tokens or sum(counts), keep)
        key = (tuple(owners), tuple(counts), merged, torch.get_num_threads())
        if keep and key == self._kept[0]:
            return self._kept[1]
        rows = row_groups(owners, counts, merged)
        made = None if rows is None else Adaptation(rows, self.slots.table, self._bounds, self._chooser)
        if keep:
            self._kept = key, made
        return made


def has_kernels(device: torch.device) -> bool:
    """Whether products are Triton's kernels there, which can be captured, and not a CPU's ways."""
    return device.type != "cpu"


def _chooser(ways: str, compiled: bool) -> WayChooser:
    if not ways:
        return RULE if compiled else LIBRARIES
    try:
        if ways in WAYS or ways in TILINGS:
            return FixedWay(way_named(ways))
        return read_ways(Path(ways), otherwise=rule if compiled else rule_of_libraries)
    except FileNotFoundError:
        raise ValueError(f"engine: lora_ways: '{ways}' is no file, and no way: {', '.join(WAYS)}") from None
    except ValueError as error:
        raise ValueError(f"engine: lora_ways: {error}") from error


def _triton(ways: str, device: torch.device) -> MakeKernels:
    """ways: the file of a table of tilings; empty: the rule's. Raises ValueError without Triton, for the name of a
    CPU's way, and for a file without a table of this GPU; OSError."""
    if ways in WAYS or ways in TILINGS:
        raise ValueError(
            f"engine: lora_ways: '{ways}' is a CPU's way: expected the file of this GPU's table of tilings"
        )
    try:
        from auras_ros.kernels.grouped_lora_triton import TritonLora, table_name
    except ImportError as error:
        raise ValueError(f"engine: max_loras: adapters on a GPU need Triton: {error}") from error
    if not ways:
        return TritonLora
    try:
        return partial(TritonLora, tilings=read_tilings(Path(ways), table_name(device)))
    except ValueError as error:
        raise ValueError(f"engine: lora_ways: {error}") from error
