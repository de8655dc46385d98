"""`auras bench lora-atmm --device cuda`: the tilings of the Triton kernels, searched and measured (VaLoRA 4.3.2).

A case's layers are one captured stage, as in a decode, in bfloat16 and with the groups that the engine launches. Its
time is that between the events around its launch, after a write that leaves nothing of it in the caches. Shrink and
expand are timed together, because expand adds up what shrink has divided: first each of shrink's tilings beside the
rule's for expand, then each of expand's beside the best for shrink. A tiling that asks for more shared memory than the
GPU has is left out. Punica and S-LoRA stand for their tilings in our kernels, not for theirs. None of this has run on a
GPU yet.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import geometric_mean, median
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from auras_ros.bench.lora.atmm_summary import ATMM
from auras_ros.bench.lora.search import in_time
from auras_ros.bench.lora.shapes import CaseRun, LoraCase
from auras_ros.device import make_device
from auras_ros.device.cuda import CudaDevice
from auras_ros.device.lane import Device, DeviceError, Stage
from auras_ros.device.spans import Spans
from auras_ros.kernels.grouped_lora import Factors, add_lora_
from auras_ros.kernels.lora_batch import LoraShape
from auras_ros.kernels.lora_index import GroupIndex, LayerPointers
from auras_ros.kernels.lora_table import FixedWay
from auras_ros.kernels.lora_tilings import (
    CATALOGUE,
    CONFIGURATIONS,
    EXPAND,
    PUNICA,
    SHRINK,
    SLORA,
    Tiling,
    TilingTable,
    rule,
)
from auras_ros.kernels.lora_ways import WAYS
from auras_ros.measure.cores import available
from auras_ros.measure.minutes import CUT, Ends, OverError
from auras_ros.measure.rounds import Rounds
from auras_ros.measure.window import Length
from auras_ros.report.result import Report, Say

PHASES = (SHRINK, EXPAND)
CACHE_MIB = 256  # more than the caches of any GPU hold
LAUNCHES = 1 << 12  # of a window, at most
APART = 3e-2  # of the largest number: bfloat16 keeps eight bits
Pair = Mapping[str, Tiling]
"""A tiling for shrink and one for expand."""
FIXED: dict[str, Pair] = {
    "punica": dict.fromkeys(PHASES, PUNICA),
    "slora": SLORA,
    **{name.replace(" ", "_"): dict.fromkeys(PHASES, each) for name, each in CONFIGURATIONS.items()},
}


class TiledKernels(Protocol):
    """`TritonLora`."""

    def add_(self, y: Tensor, x: Tensor, layer: LayerPointers, fixed: Pair) -> None: ...


class Gpu(NamedTuple):
    """name: of its table. make: kernels for an index, the largest rank and the most parts. fails: what they raise,
    and too_large for a tiling that the GPU has no room for."""

    name: str
    make: Callable[[GroupIndex, int, int], TiledKernels]
    fails: type[Exception]
    too_large: type[Exception]
    kind: str = "cuda"
    dtype: torch.dtype = torch.bfloat16


def this_gpu() -> Gpu:
    """Raises DeviceError without a GPU or without Triton."""
    device = make_device("cuda")
    device.close()
    try:
        from triton import TritonError
        from triton.runtime.errors import OutOfResources

        from auras_ros.kernels.grouped_lora_triton import TritonLora, table_name
    except ImportError as error:
        raise DeviceError(f"device 'cuda': tilings need Triton: {error}") from error
    return Gpu(table_name(device.tensors), TritonLora, TritonError, OutOfResources)


class StageTimer:
    """Times captured stages, each launch with cold caches."""

    def __init__(self, device: Device, spans: Spans, other: Tensor) -> None:
        """spans: the device's. other: is written before each launch, and larger than the caches."""
        self._device, self._spans, self._lane = device, spans, device.lane("atmm")
        self._overwrite = self.capture("overwrite", partial(other.fill_, 1))

    def capture(self, name: str, body: Callable[[], object]) -> Stage:
        def run() -> None:
            body()

        return self._device.capture(name, run, self._lane)

    def took_us(self, stage: Stage, length: Length) -> list[float]:
        """Of each launch in a window."""
        self._spans.clear()
        end_s, count = time.monotonic() + min(length.seconds, length.limit_s), 0
        while count < min(length.chunks, LAUNCHES) or (time.monotonic() < end_s and count < LAUNCHES):
            self._lane.launch(self._overwrite)
            self._lane.launch(stage).wait()
            count += 1
        if isinstance(self._device, CudaDevice):
            self._device.collect()
        return [(each.end_ns - each.start_ns) / 1e3 for each in self._spans.rows() if each.stage == stage.name]

    def close(self) -> None:
        self._device.close()


def timer_on(kind: str) -> StageTimer:
    spans = Spans(2 * LAUNCHES)
    device = make_device(kind, spans)
    return StageTimer(device, spans, torch.zeros(CACHE_MIB << 20, dtype=torch.uint8, device=device.tensors))


class TiledRun:
    """A case on the GPU, launched as by the engine: also for groups that are taken away, of which there are none."""

    def __init__(self, case: LoraCase, seed: int, gpu: Gpu) -> None:
        run, device = CaseRun(case, seed), torch.device(gpu.kind)
        self.case, self._shape, self._gpu = case, run.shape, gpu
        index = GroupIndex(case.tokens, case.adapters, device, subtracts=True)
        index.fill(run.rows(), case.tokens)
        self._kernels = gpu.make(index, case.rank, len(run.bounds) - 1)
        self._layers = list[tuple[Tensor, Tensor, LayerPointers]]()
        for x, y, factors in run.layers:
            pointers = LayerPointers(len(factors), run.bounds, device)
            pointers.fill({
                slot: Factors(*(each.to(device, gpu.dtype).contiguous() for each in own))
                for slot, own in factors.items()
            })  # fmt: skip
            self._layers.append((y.to(device, gpu.dtype), x.to(device, gpu.dtype), pointers))
        x, y, factors = run.layers[0]
        self._wanted = torch.zeros_like(y)
        add_lora_(self._wanted, x, run.rows(), factors, run.bounds, FixedWay(WAYS["segmented"]))

    def shape(self, phase: str) -> LoraShape:
        """As `TritonLora` asks a table for it."""
        return self._shape._replace(phase=phase)

    def forward(self, pair: Pair) -> None:
        for y, x, layer in self._layers:
            self._kernels.add_(y, x, layer, pair)

    def check(self, pair: Pair) -> None:
        """Raises RuntimeError unless it computes what a CPU does."""
        y, x, layer = self._layers[0]
        y.zero_()
        self._kernels.add_(y, x, layer, pair)
        apart = float((y.float().cpu() - self._wanted).abs().max() / self._wanted.abs().max())
        if not apart < APART:
            raise RuntimeError(f"differs from the reference by {apart:.1e}")

    def contest(
        self, pairs: Mapping[str, Pair], timer: StageTimer, options: argparse.Namespace, report: Report, ends: Ends
    ) -> dict[str, list[float]]:
        """Layers per second of each in interleaved rounds. What fails is in the report, and what does not fit."""
        stages, large = dict[str, Stage](), set[str]()

        def prepare(name: str) -> None:
            try:
                self.check(pairs[name])
                stages[name] = timer.capture(name, partial(self.forward, pairs[name]))
            except self._gpu.fails as error:
                if isinstance(error, self._gpu.too_large):
                    large.add(name)
                raise RuntimeError(str(error)) from error

        def rate(name: str, length: Length) -> float:
            return 1e6 * len(self._layers) / median(timer.took_us(stages[name], length))

        rounds: Rounds[str] = Rounds(str(self.case), rate, options, ends, lambda text: None)
        rounds.contest(list(pairs), prepare)
        rounds.aside |= {name: rounds.failed.pop(name) for name in large}
        rounds.tell(report)
        return rounds.rates


def search(
    todo: Sequence[LoraCase], gpu: Gpu, timer: StageTimer, options: argparse.Namespace, report: Report, say: Say,
    ends: Ends,
) -> dict[LoraShape, str]:  # fmt: skip
    """The table's entries; the report gets a row for each case."""
    entries = dict[LoraShape, str]()
    for case in in_time("search", todo, report, say, ends):
        run = TiledRun(case, options.seed, gpu)
        pair = {phase: rule(run.shape(phase)) for phase in PHASES}
        for phase in PHASES:
            tilings = {each.name: each for each in (pair[phase], *CATALOGUE[phase])}
            pairs = {name: {**pair, phase: each} for name, each in tilings.items()}
            rates = run.contest(pairs, timer, options, report, ends)
            if not rates or time.monotonic() > ends.hard_s:  # not all were measured
                break
            best = max(rates, key=lambda name: median(rates[name]))
            pair[phase] = tilings[best]
        else:
            entries |= {run.shape(phase): pair[phase].name for phase in PHASES}
            report.rows.append({**_row(case, pair), "us": 1e6 / median(rates[best])})
    if not entries:
        raise OverError(CUT)
    return entries


def measure(
    todo: Sequence[LoraCase], table: TilingTable, gpu: Gpu, timer: StageTimer, options: argparse.Namespace,
    report: Report, say: Say, ends: Ends,
) -> None:  # fmt: skip
    """The table's tilings beside the rule's and the published ones. In the summary over_X: how much quicker than X, the
    geometric mean over the shapes."""
    for case in in_time("atmm", todo, report, say, ends):
        run = TiledRun(case, options.seed, gpu)
        chosen = {phase: table.choose(run.shape(phase)) for phase in PHASES}
        pairs = {ATMM: chosen, "rule": {phase: rule(run.shape(phase)) for phase in PHASES}, **FIXED}
        rates = run.contest(pairs, timer, options, report, ends)
        if ATMM in rates:
            us = {f"{name}_us": 1e6 / median(values) for name, values in rates.items()}
            gains = {f"over_{name}": median(np.divide(rates[ATMM], values).tolist()) for name, values in rates.items()}
            del gains[f"over_{ATMM}"]
            report.rows.append({**_row(case, chosen), **us, **gains, "rounds": len(rates[ATMM])})
    if not report.rows:
        raise OverError(CUT)
    report.summary["shapes"] = len(report.rows)
    for name in dict.fromkeys(name for row in report.rows for name in row if name.startswith("over_")):
        report.summary[name] = geometric_mean(row[name] for row in report.rows if name in row)


def _row(case: LoraCase, pair: Pair) -> dict[str, Any]:
    return {**vars(case), "cores": available(), **{phase: pair[phase].name for phase in PHASES}}
