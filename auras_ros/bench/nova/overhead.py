"""`auras bench nova-overhead`: what it costs to change the partition before a forward (Nova V-G, figure 16).

Forwards of one small stage, which is captured for every part of every prepared split, are handed one by one to a part's
executor: in random order to the part of the forward before, or to another one. The overhead is the time from handing a
forward over to having its result, less the time of the forward itself. Both kinds are in one run, so what slows the
machine slows both. A forward's own time is there too: after a change its caches are those of other units. On a CPU the
thread that hands over shares the cores with the parts. On a GPU a forward ends when the host knows of it.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from auras_ros.bench.options import add_device, add_minutes, add_seed, bench_parser, check_least, listed, refusing
from auras_ros.device import Device, DeviceError, make_device
from auras_ros.device.make import kind_of
from auras_ros.device.partition import Partition
from auras_ros.engine.build import make_partitions
from auras_ros.measure.cores import available
from auras_ros.report.picture import BLUE, GREY, legend_below, picture
from auras_ros.report.result import Report, Say
from auras_ros.report.table import Column, in_columns

KINDS = {False: "same", True: "another"}  # has the partition changed? -> how rows and summary call it
WORDS = {"same": "the same part", "another": "another part"}
WARM_UP_RUNS, LEAST = 20, 100
PERCENTS = (50, 90, 99)
SIZES = {"cpu": None, "cuda": (16, 32, 64)}  # None: all
PAPER = "the paper (Nova section V-G): figure 16 is a CDF without numbers; small beside the time of a forward"
COLUMNS: tuple[Column, ...] = (
    ("handed to", lambda row: WORDS[row["part"]]),
    ("cores", "{cores}"),
    ("n", "{n}"),
    *((f"p{at} us", f"{{overhead_us_p{at}:.1f}}") for at in PERCENTS),
    ("forward us", "{forward_us_p50:.0f}"),
)


def run(argv: list[str], progress: Say) -> Report:
    parser = bench_parser("nova-overhead", __doc__)
    add_device(parser)
    parser.add_argument("--sizes", type=listed(int), help="units of the first part (CPU: every split; GPU: 16,32,64)")
    parser.add_argument("--forwards", type=int, default=4000, help="forwards that are handed over (4000)")
    parser.add_argument("--width", type=int, default=256, help="width of the stage's eight layers (256)")
    add_minutes(parser, 5.0)
    add_seed(parser)
    options = parser.parse_args(argv)
    check_least(parser, options, forwards=LEAST, width=1, seed=0)
    with refusing(parser, DeviceError):
        options.device = kind_of(options.device)
    if options.device == "cpu" and available() < 2:
        parser.error("--device cpu: two cores are needed for two parts")
    options.sizes = options.sizes or SIZES[options.device]
    report = Report("nova-overhead", more={"paper": PAPER})
    with refusing(parser, DeviceError):
        _measure(options, report, time.monotonic() + 60 * options.minutes, progress)
    return report


class PreparedPart:
    """One part with its own thread, lane and captured stage."""

    def __init__(self, device: Device, partition: Partition, width: int) -> None:
        """Raises DeviceError."""
        x, out = torch.randn(8, width, device=device.tensors), torch.zeros(8, width, device=device.tensors)
        weights = torch.randn(8, width, width, device=device.tensors) / width**0.5

        def body() -> None:
            y = x
            for weight in weights:
                y = torch.tanh(y @ weight)
            out.copy_(y)

        self.executor, self._lane = partition.executor("forward"), partition.lane("forward")
        self._stage = device.capture("forward", body, self._lane)

    def forward(self) -> tuple[int, int]:
        """When it began and ended, ns."""
        began_ns = time.monotonic_ns()
        self._lane.launch(self._stage).wait()
        return began_ns, time.monotonic_ns()

    def hand_over(self) -> tuple[float, float]:
        """(overhead, the forward itself), us."""
        handed_ns = time.monotonic_ns()
        began_ns, ended_ns = self.executor.submit(self.forward).result()
        whole_ns, forward_ns = time.monotonic_ns() - handed_ns, ended_ns - began_ns
        return (whole_ns - forward_ns) / 1e3, forward_ns / 1e3


def _measure(options: argparse.Namespace, report: Report, end_s: float, say: Say) -> None:
    with ExitStack() as kept:
        device = make_device(options.device)
        kept.callback(device.close)
        partitions = make_partitions(device, options.sizes, "auras bench nova-overhead")
        kept.callback(partitions.close)
        torch.manual_seed(options.seed)
        parts = [partitions.whole()]
        for size in partitions.sizes:
            parts += [partitions.first(size), partitions.second(size)]
        say(f"preparing {len(parts)} parts")
        began_s = time.monotonic()
        prepared = [PreparedPart(device, part, options.width) for part in parts]
        report.more["prepare_ms"] = 1e3 * (time.monotonic() - began_s)
        say(f"handing over {options.forwards} forwards")
        took = _hand_over(prepared, options.forwards, random.Random(options.seed), end_s)
    where = {"device": options.device, "cores": available(), "units": partitions.units, "parts": len(parts)}
    report.more["cdf"] = {KINDS[changed]: _quantiles(took[changed]) for changed in KINDS}
    report.rows += [{"part": KINDS[changed], **where, **_row(took[changed])} for changed in KINDS]
    report.summary |= _summary({row["part"]: row for row in report.rows})


def _hand_over(
    prepared: list[PreparedPart], forwards: int, chance: random.Random, end_s: float
) -> dict[bool, list[tuple[float, float]]]:
    """Has the part changed? -> (overhead, forward) of each, us. Ends at end_s, with LEAST forwards at least."""
    took: dict[bool, list[tuple[float, float]]] = {changed: [] for changed in KINDS}
    for each in prepared:
        for _ in range(WARM_UP_RUNS):
            each.hand_over()
    now = prepared[-1]
    gc.collect()
    for number in range(forwards):
        if number >= LEAST and time.monotonic() > end_s:
            break
        changed = chance.random() < 0.5
        if changed:
            now = chance.choice([each for each in prepared if each is not now])
        took[changed].append(now.hand_over())
    return took


def _row(took: list[tuple[float, float]]) -> dict[str, Any]:
    overheads, forwards = zip(*took, strict=True)
    found = {f"overhead_us_p{at}": float(np.percentile(overheads, at)) for at in PERCENTS}
    return {**found, "forward_us_p50": float(np.median(forwards)), "n": len(took)}


def _quantiles(took: list[tuple[float, float]]) -> list[float]:
    """Of the overheads, us: from 0 to 100 percent."""
    return [float(each) for each in np.percentile([overhead for overhead, _ in took], range(101))]


def _summary(rows: dict[str, dict[str, Any]]) -> dict[str, float]:
    found = {f"{part}_us_p{at}": row[f"overhead_us_p{at}"] for part, row in rows.items() for at in PERCENTS}
    found |= {f"forward_{part}_us_p50": row["forward_us_p50"] for part, row in rows.items()}
    found["change_us_p50"] = found["another_us_p50"] - found["same_us_p50"]
    return found


def table(report: Report) -> str:
    return "\n".join([*in_columns(report.rows, COLUMNS), "", str(report.more["paper"])])


def draw(report: Report, path: Path) -> None:
    """The CDF of the overhead, for forwards that stay and for those whose part changes."""
    with picture(path, "overhead of handing over a forward", 1) as (axes,):
        for part, colour in (("same", GREY), ("another", BLUE)):
            axes.plot(report.more["cdf"][part], range(101), color=colour, label=f"to {WORDS[part]}")
        axes.set_xscale("log")
        axes.set_xlabel("us", fontsize=8)
        axes.set_ylabel("% of forwards", fontsize=8)
        legend_below(axes)
