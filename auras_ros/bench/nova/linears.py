"""Two matrix products beside each other, per split: the largest of CogAgent's decoder and of its vision tower, with
random values and as often as the paper has them (Nova table IV, figure 4)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from auras_ros.device.lane import Device
from auras_ros.device.partition import Partition, Partitions
from auras_ros.report.statistics import spread
from auras_ros.report.table import Row

BOTH = ("decode", "vision")
Case = tuple[tuple[str, ...], int | None]
"""Which products run, and units of decode's part; None: on the whole device."""
Took = Mapping[Case, Mapping[str, float]]
"""One round: ms until all products of a kind were done."""


@dataclass(frozen=True)
class LinearSizes:
    """Rows, inputs and outputs of each product, and how often it is done. decode: gate and up projection for three
    requests, 224 MB of weights, which are table IV's 640 GB/s in 0.35 ms. vision: an image of 80 x 80 pieces; blocks of
    128 x 256 results are table IV's 3000."""

    decode: tuple[int, int, int] = (3, 4096, 2 * 13696)
    vision: tuple[int, int, int] = (6400, 1792, 15360)
    decodes: int = 2000
    visions: int = 200
    dtype: torch.dtype = torch.bfloat16


class PreparedLinears:
    """Both products, captured for every part."""

    def __init__(self, device: Device, partitions: Partitions, sizes: LinearSizes) -> None:
        self._runs: dict[tuple[str, int | None], Callable[[], Future[int]]] = {}
        for name, (rows, inputs, outputs) in (("decode", sizes.decode), ("vision", sizes.vision)):
            x = torch.randn(rows, inputs, dtype=sizes.dtype, device=device.tensors)
            weight = torch.randn(inputs, outputs, dtype=sizes.dtype, device=device.tensors)
            count = sizes.decodes if name == "decode" else sizes.visions
            self._runs[name, None] = _prepared(device, partitions.whole(), name, x, weight, count)
            for units in partitions.sizes:
                part = partitions.first(units) if name == "decode" else partitions.second(units)
                self._runs[name, units] = _prepared(device, part, name, x, weight, count)
        self.cases: list[Case] = [(("decode",), None), (("vision",), None), (BOTH, None)]
        self.cases += [(BOTH, units) for units in partitions.sizes]

    def run(self, case: Case) -> dict[str, float]:
        names, units = case
        began_ns = time.monotonic_ns()
        futures = {name: self._runs[name, units]() for name in names}
        return {name: (future.result() - began_ns) / 1e6 for name, future in futures.items()}


def _prepared(
    device: Device, part: Partition, name: str, x: torch.Tensor, weight: torch.Tensor, count: int
) -> Callable[[], Future[int]]:
    """Starts all products of this kind; the future has when they ended, ns."""
    out = torch.empty(len(x), weight.shape[1], dtype=x.dtype, device=x.device)
    executor, lane = part.executor(name), part.lane(name)

    def body() -> None:
        torch.mm(x, weight, out=out)

    stage = device.capture(f"{name} linear", body, lane)

    def all_of_them() -> int:
        marks = [lane.launch(stage) for _ in range(count)]
        marks[-1].wait()
        return time.monotonic_ns()

    return lambda: executor.submit(all_of_them)


def rounds(
    prepared: PreparedLinears, count: int, order: random.Random, before: Callable[[int], None]
) -> Iterator[Took]:
    """Each time all cases in another order. before: called before each one with the round's number, of which 0 warms
    up; what it raises ends the rounds."""
    for number in range(count + 1):
        found: dict[Case, Mapping[str, float]] = {}
        for case in order.sample(prepared.cases, len(prepared.cases)):
            before(number)
            found[case] = prepared.run(case)
        if number:
            yield found


def linear_rows(found: Sequence[Took], cores: int) -> list[dict[str, Any]]:
    """gain: one kind after the other over both at once, the median of the rounds' ratios with its quartiles."""
    alone = [{name: took[(name,), None][name] for name in BOTH} for took in found]
    rows = []
    for case in found[0]:
        if case[0] != BOTH:
            continue
        gains = [sum(own.values()) / max(took[case].values()) for own, took in zip(alone, found, strict=True)]
        low, gain, high = spread(gains)
        times = {f"{name}_ms": median(took[case][name] for took in found) for name in BOTH}
        times |= {f"{name}_alone_ms": median(own[name] for own in alone) for name in BOTH}
        where: dict[str, Any] = {"pair": "linears", "units": case[1], "cores": cores, "n": len(found)}
        rows.append({**where, **times, "gain": gain, "gain_low": low, "gain_high": high})
    return rows


def linear_summary(rows: Sequence[Row], sizes: LinearSizes) -> dict[str, float]:
    """gain_units_least, most: of the parts for decode with which both at once are done sooner."""
    (shared,) = (row for row in rows if row["units"] is None)
    decode_ms, vision_ms = shared["decode_alone_ms"], shared["vision_alone_ms"]
    found = {
        "linear_decode_ms": decode_ms,
        "linear_vision_ms": vision_ms,
        "linear_decode_each_ms": decode_ms / sizes.decodes,
        "linear_vision_each_ms": vision_ms / sizes.visions,
        "linear_sequential_ms": decode_ms + vision_ms,
        "linear_shared_decode_ms": shared["decode_ms"],
        "linear_shared_vision_ms": shared["vision_ms"],
    }
    if gaining := [row["units"] for row in rows if row["units"] is not None and row["gain"] > 1]:
        found |= {"linear_gain_units_least": min(gaining), "linear_gain_units_most": max(gaining)}
    return found
