"""What is made of the rates: rows, ratios round by round, and the table that a person reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from auras_ros.bench.pipeline_variants import Variant
from auras_ros.evaluate.report import Report

Row = Mapping[str, Any]
Rates = Mapping[Variant, Sequence[float]]


def rate_row(base: Mapping[str, Any], measure: str, variant: Variant, rates: Sequence[float]) -> dict[str, Any]:
    """chunks_per_s is the median; low and high are quartiles; n counts windows."""
    low, middle, high = np.percentile(rates, [25, 50, 75])
    figures = {"chunks_per_s": float(middle), "low": float(low), "high": float(high), "n": len(rates)}
    return {**base, "measure": measure, "variant": variant.label, **variant.fields(), **figures}


def ratio(rates: Rates, over: Variant, under: Variant) -> tuple[float, float, float]:
    """Median and quartiles (low, median, high) of the ratio within each round: what slows a round slows both."""
    low, middle, high = np.percentile(np.divide(rates[over], rates[under]), [25, 50, 75])
    return float(low), float(middle), float(high)


def summary(policy: str, rates: Rates, headline: int, first: bool) -> dict[str, float]:
    """The ratios of one policy, with its name behind; of the first policy also without."""
    by_mode = {v.plan.mode: v for v in rates if v.plan.mode != "auras"}
    auras = [v for v in rates if v.plan.mode == "auras"]
    straight = [v for v in auras if v.plan.fetch_offset == 0]
    main = next(v for v in straight if v.plan.pp_generation == headline)
    pairs = {f"auras_over_{mode}": (main, by_mode[mode]) for mode in ("seq", "dec", "par")}
    pairs |= {f"{mode}_over_seq": (by_mode[mode], by_mode["seq"]) for mode in ("dec", "par")}
    for variant in straight:
        if variant.plan.alpha == main.plan.alpha:
            pairs[f"auras_{variant.plan.pp_generation}_over_seq"] = variant, by_mode["seq"]
    beside = next(v for v in auras if v.plan.fetch_offset == -1)
    pairs["auras_beside_over_seq"] = beside, by_mode["seq"]
    for variant in straight:
        if variant.plan.alpha and variant.plan.alpha != main.plan.alpha:
            pairs[f"auras_alpha_{variant.plan.alpha:g}_over_seq".replace(".", "_")] = variant, by_mode["seq"]
    found: dict[str, float] = {}
    for suffix in ["", f"_{policy.replace('-', '_')}"] if first else [f"_{policy.replace('-', '_')}"]:
        for name, (over, under) in pairs.items():
            low, middle, high = ratio(rates, over, under)
            found |= {f"{name}{suffix}": middle, f"{name}{suffix}_low": low, f"{name}{suffix}_high": high}
        found[f"pp_generation{suffix}"] = headline
        found[f"par_workers{suffix}"] = by_mode["par"].plan.workers
    return found


def table(report: Report) -> str:
    """For each policy the check, the forms that were tried, the rounds and the memory; then the main ratios."""
    lines: list[str] = []
    for policy in dict.fromkeys(row["policy"] for row in report.rows):
        rows = [row for row in report.rows if row["policy"] == policy]
        for measure, section in _SECTIONS.items():
            chosen = [row for row in rows if row["measure"] == measure]
            lines += section(chosen) if chosen else []
    interrupted = [f"interrupted {report.more['interrupted']}"] if "interrupted" in report.more else []
    return "\n".join([*lines, *_ratios(report), *interrupted])


def _check(rows: Sequence[Row]) -> list[str]:
    row = rows[0]
    return [
        f"{row['policy']}: {row['million']:.1f} M parameters, {row['steps']} steps, {row['device']}",
        "  checked: seq and auras in one stage, unbatched, give the same chunks bit for bit;",
        f"  batched over {row['pp_generation']} stages within {row['batched_difference']:.2g} of the action range",
    ]


def _rates(title: str) -> Callable[[Sequence[Row]], list[str]]:
    def section(rows: Sequence[Row]) -> list[str]:
        seq = max(row["chunks_per_s"] for row in rows if row["mode"] == "seq")
        lines = [f"  {title:40}{'chunks/s':>10}{'quartiles':>20}{'/ seq':>8}{'n':>5}"]
        for row in rows:
            quartiles = f"{row['low']:.2f} to {row['high']:.2f}"
            over = row["chunks_per_s"] / seq
            lines.append(f"    {row['variant']:38}{row['chunks_per_s']:10.2f}{quartiles:>20}{over:8.2f}{row['n']:5}")
        return lines

    return section


def _memory(rows: Sequence[Row]) -> list[str]:
    lines = [f"  {'memory, bytes a chunk':40}{'tracemalloc':>12}{'resident':>10}{'chunks':>8}"]
    for row in rows:
        grows = f"{row['python_bytes_per_chunk']:12.1f}{row['resident_bytes_per_chunk']:10.0f}"
        lines.append(f"    {row['mode']:38}{grows}{row['chunks']:8}")
    return lines


_SECTIONS: dict[str, Callable[[Sequence[Row]], list[str]]] = {
    "check": _check,
    "trial": _rates("tried"),
    "rounds": _rates("in interleaved rounds"),
    "memory": _memory,
}


def _ratios(report: Report) -> list[str]:
    """Ratios within each round, with their quartiles."""
    lines = []
    for key, value in report.summary.items():
        low, high = report.summary.get(f"{key}_low"), report.summary.get(f"{key}_high")
        if low is not None and high is not None:
            lines.append(f"{key:40}{value:8.2f}  ({low:.2f} to {high:.2f})")
    return lines
