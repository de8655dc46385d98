"""`auras bench lora-modes`: a forward of one batch in each mode (VaLoRA 4.4.2, figures 6, 20 and 21).

A decoder of the given sizes with random weights, attention included, and random adapters of all its linear layers. In a
decode each request has one row after a stored context, in a prefill so many tokens. Modes of one batch are measured in
interleaved rounds: the base model; merged, where all rows have the adapter in the weights; and, for each number of
requests that starve, mixture, where these have other adapters and get rid of the merged one, beside unmerged with the
very same rows. `saved` is the share of unmerged's extra time, over the base model, that mixture does not take.

Figure 21: two adapters in turn, so many forwards of each: merged with a change between them, beside unmerged, and
beside merged with dLoRA's change (an `addmm` and a new packing for every layer).
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor

from auras_ros.bench.figures.paper import PaperFigure, beside_ours
from auras_ros.bench.lora.decoders import BLOCK, SIZES, RandomDecoder
from auras_ros.bench.lora.switch import packing_ms, timed_ms
from auras_ros.bench.options import add_minutes, add_seed, bench_parser, check_least, listed
from auras_ros.kernels import NUMBA
from auras_ros.kernels.lora_table import RULE, FixedWay
from auras_ros.kernels.lora_ways import TILINGS, WAYS, way_named
from auras_ros.lora.adaptation import Adaptation, row_groups, site_bounds
from auras_ros.lora.merge import MergedWeights
from auras_ros.measure.cores import available, on_cores
from auras_ros.measure.minutes import Ends, run_parts
from auras_ros.models.paged_attention import GatheredAttention
from auras_ros.models.paged_kv import PagedKVCache, PrefillSpan
from auras_ros.report.result import Report, Say, key
from auras_ros.report.statistics import spread
from auras_ros.report.table import Column, in_columns

PHASES = ("decode", "prefill")
PAPER = (
    PaperFigure("unmerged over base, extra", "40-61", "%", "3.2, figure 6"),
    PaperFigure("of that, saved by mixture (at most half starve)", 0.62, "", "6.3.3, figure 20", "mixture_saved"),
    PaperFigure("two adapters in turn: unmerged over ours", 1.4, "times", "6.3.3, figure 21", "unmerged_over_ours"),
    PaperFigure("the same: dLoRA's change over ours", 1.2, "times", "6.3.3, figure 21", "packing_over_ours"),
)
COLUMNS: tuple[Column, ...] = (
    ("decoder", "{decoder}"),
    ("way", "{way}"),
    ("phase", "{phase}"),
    ("mode", "{mode}"),
    ("starving", "{starving}"),
    ("ms", "{ms:.2f}"),
    ("quartiles", "{ms_low:.2f} to {ms_high:.2f}"),
    ("over base", "{over_base:.3f}"),
    ("cores", "{cores}"),
    ("n", "{n}"),
)
Mode = tuple[str, int]
"""Its name, and how many requests starve."""


def run(argv: list[str], progress: Say) -> Report:
    parser = bench_parser("lora-modes", __doc__)
    parser.add_argument("--decoders", type=listed(str, SIZES), default=["0.5b"], help=f"of {','.join(SIZES)} (0.5b)")
    parser.add_argument("--phases", type=listed(str, PHASES), default=list(PHASES), help="(decode,prefill)")
    parser.add_argument("--batch", type=int, default=8, help="requests (8)")
    parser.add_argument("--adapters", type=int, default=4, help="the merged one and those of others (4)")
    parser.add_argument("--rank", type=int, default=16, help="of all of them (16)")
    parser.add_argument("--context", type=int, default=128, help="stored tokens of a request that decodes (128)")
    parser.add_argument("--tokens", type=int, default=32, help="of each request's prefill (32)")
    known = f"to multiply, of {','.join(WAYS)}; by the rule if left out"
    parser.add_argument("--way", choices=list(WAYS), default="", metavar="WAY", help=known)
    parser.add_argument("--forwards", type=int, default=10, help="of each of two adapters in turn (10)")
    parser.add_argument("--rounds", type=int, default=9, help="interleaved, after one that warms up (9)")
    parser.add_argument("--cores", type=int, default=available(), help="(all)")
    add_minutes(parser, 15.0)
    add_seed(parser)
    options = parser.parse_args(argv)
    check_least(
        parser, options,
        batch=2, adapters=2, rank=1, context=1, tokens=1, forwards=1, rounds=2, cores=1, seed=0,
    )  # fmt: skip
    if options.cores > available():
        parser.error(f"--cores: {options.cores} of the {available()} of this process")
    report = Report("lora-modes")
    with on_cores(options.cores):
        parts = {name: partial(_measure, report, options, name, progress) for name in options.decoders}
        run_parts(report, options.minutes, parts)
    report.summary |= summarised(report.rows)
    return report


class ModeForwards:
    """Forwards of a decoder with its adapters. Whoever changes `weights` does so between two of them."""

    def __init__(self, options: argparse.Namespace, name: str) -> None:
        halves = NUMBA and options.way in ("", *TILINGS)
        self.decoder = RandomDecoder(SIZES[name], options.rank, options.adapters, options.seed, halves)
        self._chooser = FixedWay(way_named(options.way)) if options.way else RULE
        self.weights = MergedWeights(self.decoder.llama, self.decoder.sites, None)
        self._bounds = site_bounds(self.decoder.sites)
        config, batch = SIZES[name], options.batch
        width = -(-max(options.context + 1, options.tokens) // BLOCK)
        cache = PagedKVCache(config.layers, batch * width + 1, BLOCK, config.kv_heads, config.size_of_head)
        self._attention, self._context, self._tokens = GatheredAttention(cache), options.context, options.tokens
        self._tables = torch.arange(1, batch * width + 1).view(batch, width)
        self._x = torch.randn(batch * options.tokens, config.width, generator=torch.Generator().manual_seed(0))

    @torch.no_grad()
    def __call__(self, phase: str, owners: Sequence[int | None]) -> Tensor:
        """owners: the slot of each request's adapter. Returns the hidden states."""
        rows, merged = len(owners), self.weights.merged
        count = 1 if phase == "decode" else self._tokens
        groups = row_groups(owners, [count] * rows, None if merged is None else merged.slot)
        adapt = None if groups is None else Adaptation(groups, self.decoder.slots.table, self._bounds, self._chooser)
        if phase == "decode":
            places = torch.full((rows,), self._context)
            attend = self._attention.decode(self._tables[:rows], places)
        else:
            places = torch.arange(count).repeat(rows)
            attend = self._attention.prefill([PrefillSpan(0, count, table) for table in self._tables[:rows]])
        return self.decoder.llama(self._x[: rows * count], places, attend, None, adapt)


def modes(batch: int) -> list[Mode]:
    return [("base", 0), ("merged", 0), *((name, count) for count in range(1, batch // 2 + 1)
            for name in ("mixture", "unmerged"))]  # fmt: skip


def owners(mode: Mode, batch: int, adapters: int) -> list[int | None]:
    """Of the batch's requests: those that starve have the other adapters in turn, all others the first one."""
    name, starving = mode
    if name == "base":
        return [None] * batch
    return [*([0] * (batch - starving)), *(1 + number % (adapters - 1) for number in range(starving))]


def _measure(report: Report, options: argparse.Namespace, name: str, say: Say, ends: Ends) -> None:
    say(f"{name}: making the decoder")
    forwards = ModeForwards(options, name)
    where = {"decoder": name, "rank": options.rank, "batch": options.batch, "way": options.way or "rule"}
    where |= {"cores": options.cores, "dtype": "float32"}
    first = forwards.decoder.residents[0]
    for phase in options.phases:
        found: dict[Mode, list[float]] = {}
        rounds = _rounds(options, ends, say, f"{name}, {phase}")
        for number, chance in rounds:
            contenders = modes(options.batch)
            for mode in chance.sample(contenders, len(contenders)):
                forwards.weights.switch(first if mode[0] in ("merged", "mixture") else None)
                one = partial(forwards, phase, owners(mode, options.batch, options.adapters))
                one()
                ms = timed_ms(one)
                if number:
                    found.setdefault(mode, []).append(ms)
        tokens = 1 if phase == "decode" else options.tokens
        report.rows += mode_rows(found, where | {"phase": phase, "tokens": tokens})
    report.rows += _in_turn(options, forwards, name, where, ends, say)
    forwards.weights.switch(None)


def _rounds(options: argparse.Namespace, ends: Ends, say: Say, what: str) -> Any:
    chance = random.Random(options.seed)
    for number in range(options.rounds + 1):
        if number > 2 and time.monotonic() > ends.soft_s:
            return
        say(f"{what}: round {number} of {options.rounds}")
        yield number, chance


def _in_turn(
    options: argparse.Namespace, forwards: ModeForwards, name: str, where: Mapping[str, Any], ends: Ends, say: Say
) -> list[dict[str, Any]]:
    """Decodes of two adapters in turn."""
    residents, weights = forwards.decoder.residents[:2], forwards.weights

    def merged(change: Callable[[], float]) -> float:
        """The change between two adapters takes what `change` says: ms."""
        ms = 0.0
        for resident in residents:
            weights.switch(resident)
            ms += decodes(resident.slot)
        return ms + change()

    def exchange() -> float:
        weights.switch(residents[0])
        return timed_ms(partial(weights.switch, residents[1]))

    def unmerged() -> float:
        weights.switch(None)
        return sum(decodes(each.slot) for each in residents)

    def decodes(slot: int) -> float:
        own = [slot] * options.batch
        return timed_ms(lambda: [forwards("decode", own) for _ in range(options.forwards)])

    sides: dict[str, Callable[[], float]] = {
        "ours": lambda: merged(exchange),
        "packing": lambda: merged(lambda: packing_ms(forwards.decoder, residents[0])),
        "unmerged": unmerged,
    }
    found: dict[Mode, list[float]] = {}
    for number, chance in _rounds(options, ends, say, f"{name}, two adapters in turn"):
        for side in chance.sample(list(sides), len(sides)):
            ms = sides[side]()
            if number:
                found.setdefault((side, 0), []).append(ms)
    return mode_rows(found, {**where, "phase": "in turn", "forwards": options.forwards}, base="ours")


def mode_rows(
    found: Mapping[Mode, Sequence[float]], where: Mapping[str, Any], base: str = "base"
) -> list[dict[str, Any]]:
    """over_base: the median of the rounds' ratios. saved: of mixture, see this module."""
    rows = []
    for (mode, starving), times in found.items():
        low, middle, high = spread(list(times))
        plain = found[base, 0]
        row = {
            **where, "mode": mode, "starving": starving, "ms": middle, "ms_low": low, "ms_high": high, "n": len(times),
            "over_base": median(one / other for one, other in zip(times, plain, strict=True)),
        }  # fmt: skip
        if mode == "mixture":
            other = found["unmerged", starving]
            row["saved"] = 1 - median(x - y for x, y in zip(times, plain, strict=True)) / median(
                x - y for x, y in zip(other, plain, strict=True)
            )
        rows.append(row)
    return sorted(rows, key=lambda row: (row["mode"], row["starving"]))


def summarised(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """unmerged_extra: of the mean over all numbers of starving requests, by phase. mixture_saved: the mean of decodes
    with at most half starving. unmerged_over_ours, packing_over_ours: of two adapters in turn. The worst decoder's."""
    found = dict[str, float]()
    for decoder in dict.fromkeys(row["decoder"] for row in rows):
        own, name = [row for row in rows if row["decoder"] == decoder], key(decoder)
        for phase in PHASES:
            of = [row for row in own if row["phase"] == phase]
            if extra := [row["over_base"] - 1 for row in of if row["mode"] == "unmerged"]:
                found[f"unmerged_extra_{phase}_{name}"] = fmean(extra)
                found[f"mixture_saved_{phase}_{name}"] = fmean(row["saved"] for row in of if "saved" in row)
        for row in own:
            if row["phase"] == "in turn" and row["mode"] != "ours":
                found[f"{row['mode']}_over_ours_{name}"] = row["over_base"]
    for what, prefix in (
        ("mixture_saved", "mixture_saved_decode_"),
        ("unmerged_over_ours", "unmerged_over_ours_"),
        ("packing_over_ours", "packing_over_ours_"),
    ):
        if values := [value for each, value in found.items() if each.startswith(prefix)]:
            found[what] = min(values)
    return found


def table(report: Report) -> str:
    ours = beside_ours([each.row(report.summary) for each in PAPER], "VaLoRA")
    numbers = [f"{name:40} {value:8.3f}" for name, value in report.summary.items()]
    return "\n\n".join("\n".join(part) for part in (in_columns(report.rows, COLUMNS, left=(0, 1, 2, 3)), ours, numbers))
