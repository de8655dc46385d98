"""`auras bench lora-switch`: what it takes to change the adapter in a decoder's weights (VaLoRA 4.4.1, figures 7 and
21).

A decoder of the given sizes with random weights, in the form in which the engine multiplies, and random adapters of all
its linear layers. Measured in interleaved rounds on the same cores: the base model to an adapter, one adapter to
another, and back; and what VaLoRA ascribes to dLoRA, an `addmm` and a new packing for every layer. The floor is the
larger of two times in the same round: all weights copied once (they have to be read and written), and the products'
operations at the rate of a large matrix product. Not timed: how far one weight drifts without a second copy, where
adapters are added and taken away.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from auras_ros.bench.figures.paper import PaperFigure, beside_ours
from auras_ros.bench.lora.decoders import SIZES, RandomDecoder
from auras_ros.bench.options import add_minutes, add_seed, bench_parser, check_least, listed
from auras_ros.lora.merge import MergedWeights, drift
from auras_ros.lora.slots import Resident
from auras_ros.measure.cores import available, on_cores
from auras_ros.measure.minutes import Ends, run_parts
from auras_ros.models.huge_pages import move_to_huge_pages
from auras_ros.models.linear import fastest, weight_blocks
from auras_ros.report.result import Report, Say
from auras_ros.report.statistics import spread
from auras_ros.report.table import Column, in_columns

SQUARE = 1536  # of the product whose rate counts
DRIFTED = 1000  # changes after which the drift is taken
PAPER = (
    PaperFigure("a change of all layers", "less than 10", "ms", "4.4.1"),
    PaperFigure("dLoRA's", 53.0, "ms", "3.2"),
    PaperFigure("faster than dLoRA's, more than", 5.0, "times", "4.4.1", "packing_over_exchange"),
)
COLUMNS: tuple[Column, ...] = (
    ("decoder", "{decoder}"),
    ("rank", "{rank}"),
    ("change", "{change}"),
    ("ms", "{ms:.2f}"),
    ("quartiles", "{ms_low:.2f} to {ms_high:.2f}"),
    ("over the floor", "{over_floor:.2f}"),
    ("floor ms", "{floor_ms:.2f}"),
    ("by", "{bound}"),
    ("cores", "{cores}"),
    ("n", "{n}"),
)


def run(argv: list[str], progress: Say) -> Report:
    parser = bench_parser("lora-switch", __doc__)
    parser.add_argument("--decoders", type=listed(str, SIZES), default=["0.5b"], help=f"of {','.join(SIZES)} (0.5b)")
    parser.add_argument("--ranks", type=listed(int), default=[16, 64], help="of the adapters (16,64)")
    parser.add_argument("--rounds", type=int, default=15, help="interleaved, after one that warms up (15)")
    parser.add_argument("--cores", type=int, default=available(), help="(all)")
    add_minutes(parser, 10.0)
    add_seed(parser)
    options = parser.parse_args(argv)
    check_least(parser, options, rounds=1, cores=1, seed=0)
    if not 1 <= min(options.ranks) <= max(options.ranks) <= 256:
        parser.error(f"--ranks: from 1 to 256, got {options.ranks}")
    if options.cores > available():
        parser.error(f"--cores: {options.cores} of the {available()} of this process")
    report = Report("lora-switch")
    cases = [(name, rank) for name in options.decoders for rank in options.ranks]

    def part(name: str, rank: int) -> Callable[[Ends], None]:
        return lambda ends: _measure(report, options, name, rank, ends, progress)

    with on_cores(options.cores):
        run_parts(report, options.minutes, {f"{name}, rank {rank}": part(name, rank) for name, rank in cases})
    report.summary |= summarised(report.rows)
    return report


def _measure(report: Report, options: argparse.Namespace, name: str, rank: int, ends: Ends, say: Say) -> None:
    say(f"{name}, rank {rank}: making the decoder")
    decoder = RandomDecoder(SIZES[name], rank, slots=2, seed=options.seed)
    first, second = decoder.residents
    exact = MergedWeights(decoder.llama, decoder.sites, None)
    linears = [each for layer in decoder.llama.layers for each in layer.linears().values()]
    forms = [form.data for each in linears for form in weight_blocks(each)]
    golden = [each.clone() for each in forms]
    for kept in golden:  # as the weights are: the floor is copied as quickly as can be
        move_to_huge_pages(kept)
    square = torch.randn(SQUARE, SQUARE)
    exact.switch(first)  # makes its own second copy
    operations = 2 * rank * sum(each.numel() for each in forms)

    def copied() -> None:
        for live, kept in zip(forms, golden, strict=True):
            live.copy_(kept)

    changes = {"merge": (second, None, first), "exchange": (second, first), "restore": (first, None)}
    found: dict[str, list[float]] = {}
    chance = random.Random(options.seed)
    for number in range(options.rounds + 1):
        if number > 1 and time.monotonic() > ends.soft_s:
            break
        say(f"{name}, rank {rank}: round {number} of {options.rounds}")
        took = dict[str, float]()
        for change in chance.sample(list(changes), len(changes)):
            *before, after = changes[change]
            for each in before:
                exact.switch(each)
            took[change] = timed_ms(partial(exact.switch, after))
        exact.switch(None)
        took["copy"] = timed_ms(copied)
        took["square"] = timed_ms(lambda: torch.mm(square, square))
        took["packing"] = packing_ms(decoder, first)
        if number:
            for change, ms in took.items():
                found.setdefault(change, []).append(ms)
    where = {"decoder": name, "rank": rank, "cores": options.cores, "dtype": "float32"}
    report.rows += switch_rows(found, operations, where)
    report.summary[f"drift_{name}_{rank}"] = _drift(decoder, forms[0], golden[0])


def timed_ms(run: Callable[[], object]) -> float:
    """ms."""
    began_ns = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - began_ns) / 1e6


def packing_ms(decoder: RandomDecoder, resident: Resident) -> float:
    """An `addmm` of every joined layer's plain weight, which is packed again: ms, without making the plain weights."""
    spent = 0.0
    for site in decoder.sites:
        own = resident.decoder[0, site.name]
        rank, weight = own.b.shape[1], torch.randn(site.out, site.width)
        pairs = zip(site.bounds, site.bounds[1:], strict=False)
        all_a, all_b = own.a.float(), own.b.float()
        parts = [(low, high, all_a[part * rank : (part + 1) * rank]) for part, (low, high) in enumerate(pairs)]

        def change(weight: Tensor = weight, parts: Any = parts, b: Tensor = all_b) -> None:
            for low, high, a in parts:
                weight[low:high] = torch.addmm(weight[low:high], b[low:high], a)
            fastest(weight)

        spent += timed_ms(change) * decoder.layers
    return spent


def _drift(decoder: RandomDecoder, live: Tensor, golden: Tensor) -> float:
    """Of the first layer's first weight, without a second copy, after DRIFTED changes."""
    weights, place = MergedWeights(decoder.llama, decoder.sites, None, copies=0), (0, decoder.sites[0].name)
    small = [replace(each, decoder={place: each.decoder[place]}) for each in decoder.residents]
    for number in range(DRIFTED):
        weights.switch(small[number % len(small)])
    weights.switch(None)
    return drift(live, golden)


def switch_rows(found: dict[str, list[float]], operations: int, where: dict[str, Any]) -> list[dict[str, Any]]:
    """found: ms of every round. over_floor: the median of the rounds' ratios."""
    rate = [2 * SQUARE**3 / ms for ms in found["square"]]
    products_ms = [operations / each for each in rate]
    floors = [max(copy, products) for copy, products in zip(found["copy"], products_ms, strict=True)]
    bound = "memory" if median(found["copy"]) > median(products_ms) else "products"
    rows = []
    for change in ("merge", "exchange", "restore", "packing"):
        low, middle, high = spread(found[change])
        own = found["copy"] if change == "restore" else floors
        rows.append({
            **where, "change": change, "ms": middle, "ms_low": low, "ms_high": high, "n": len(floors),
            "over_floor": median(ms / floor for ms, floor in zip(found[change], own, strict=True)),
            "floor_ms": median(own), "bound": "memory" if change == "restore" else bound,
            "operations": operations, "copy_ms": median(found["copy"]), "gflops": median(rate) / 1e6,
        })  # fmt: skip
    return rows


def summarised(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """ms_over_floor: the worst of merging, exchanging and restoring."""
    own = [row for row in rows if row["change"] != "packing"]
    found = {"ms_over_floor": max(row["over_floor"] for row in own)} if own else {}
    of = {(row["decoder"], row["rank"], row["change"]): row["ms"] for row in rows}
    ratios = [
        of[name, rank, "packing"] / of[name, rank, "exchange"] for name, rank, change in of if change == "packing"
    ]
    return found | ({"packing_over_exchange": min(ratios)} if ratios else {})


def table(report: Report) -> str:
    ours = beside_ours([each.row(report.summary) for each in PAPER], "VaLoRA")
    numbers = [f"{name:36} {value:10.4g}" for name, value in report.summary.items()]
    return "\n\n".join("\n".join(part) for part in (in_columns(report.rows, COLUMNS, left=(0, 2)), ours, numbers))
