"""From rates to results: rows, ratios within rounds, and the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from auras_ros.bench.pipeline.sizes import Comparison
from auras_ros.measure.compare import ratio
from auras_ros.measure.forms import Variant, control_of
from auras_ros.measure.same import equal_words
from auras_ros.report.result import Report

ROUNDS = "in interleaved rounds"
STALE = "  stale: mean age of the observation behind the newest chunk"
Row = Mapping[str, Any]
Rates = Mapping[Variant, Sequence[float]]


def rate_row(
    base: Mapping[str, Any],
    measure: str,
    variant: Variant,
    rates: Sequence[float],
    staleness_ms: Mapping[Variant, Sequence[float]],
    marked: bool,
    seq: Sequence[float],
) -> dict[str, Any]:
    """chunks_per_s is the median; low and high are quartiles; n counts windows. over_seq: the median of the ratios to
    seq's rates, within each round of the variant; None without any. staleness_ms: see `Bench`. disturbed: see
    `disturbed`."""
    low, middle, high = np.percentile(rates, [25, 50, 75])
    figures = {"chunks_per_s": float(middle), "low": float(low), "high": float(high), "n": len(rates)}
    stale_ms = median(staleness_ms[variant]) if staleness_ms.get(variant) else None
    named = {**base, "measure": measure, "variant": variant.label, **variant.fields()}
    over = [rate / base for rate, base in zip(rates, seq, strict=False)]  # a slow variant was only in the first round
    return {
        **named,
        **figures,
        "over_seq": median(over) if over else None,
        "staleness_ms": stale_ms,
        "disturbed": marked,
    }


def summary(rates: Rates, best: Mapping[str, Variant], sizes: Comparison, endings: Sequence[str]) -> dict[str, float]:
    """The ratios of one policy, with each of these endings of their names. Variants that failed have none."""
    auras = best.get("auras")
    pairs: dict[str, tuple[Variant | None, Variant | None]] = {}
    seq = best.get("seq")
    pairs |= {f"auras_over_{kind}": (auras, best.get(kind)) for kind in ("seq", "dec", "par", "batched")}
    pairs |= {f"{kind}_over_seq": (best.get(kind), seq) for kind in ("dec", "par", "batched")}
    pairs["auras_beside_over_seq"] = best.get("beside"), seq
    if seq is not None:
        pairs["control_over_seq"] = control_of(seq), seq
    for variant in rates:
        plan = variant.plan
        if plan.mode == "auras" and plan.fetch_offset == 0:
            stages, skew = f"auras_{plan.pp_generation}_over_seq", f"auras_alpha_{plan.alpha:g}_over_seq"
            name = stages if plan.alpha == sizes.alpha else skew.replace(".", "_")
            pairs[name] = variant, seq
    found: dict[str, float] = {}
    for ending in endings:
        for name, (over, under) in pairs.items():
            if over in rates and under in rates:
                assert over is not None
                assert under is not None
                low, middle, high = ratio(rates, over, under)
                found |= {f"{name}{ending}": middle, f"{name}{ending}_low": low, f"{name}{ending}_high": high}
        found[f"pp_generation{ending}"] = sizes.headline
        if "par" in best:
            found[f"par_concurrency{ending}"] = best["par"].plan.concurrency
    return found


def table(report: Report) -> str:
    """For each policy and number of cores the check, the trials and the rounds; then the main ratios."""
    lines: list[str] = []
    for policy, cores in dict.fromkeys((row["policy"], row["cores"]) for row in report.rows):
        rows = [row for row in report.rows if (row["policy"], row["cores"]) == (policy, cores)]
        for measure, section in _SECTIONS.items():
            chosen = [row for row in rows if row["measure"] == measure]
            lines += section(chosen) if chosen else []
    interrupted = [str(report.more["interrupted"])] if "interrupted" in report.more else []
    return "\n".join([*lines, *_ratios(report), *interrupted])


def _check(rows: Sequence[Row]) -> list[str]:
    row = rows[0]
    return [
        f"{row['policy']}: {row['million']:.1f} M parameters, {row['steps']} steps, {row['device']}, {_cores(row)}",
        f"  checked: seq and auras in one stage, unbatched, give the same chunks {equal_words(row)};",
        f"  batched in {row['pp_generation']} stages: difference at most {row['batched_difference']:.2g} of the range",
    ]


def _cores(row: Row) -> str:
    return f"{row['cores']} core{'s' * (row['cores'] > 1)} for each"


def _rates(title: str) -> Callable[[Sequence[Row]], list[str]]:
    def section(rows: Sequence[Row]) -> list[str]:
        heads = f"{'chunks/s':>10}{'quartiles':>20}{'/ seq':>8}{'stale ms':>10}{'n':>5}"
        lines = [f"  {f'{title}, {_cores(rows[0])}':44}{heads}"]
        for row in rows:
            quartiles = f"{row['low']:.2f} to {row['high']:.2f}"
            over = "-" if row.get("over_seq") is None else f"{row['over_seq']:.2f}"  # missing in older reports
            stale = "-" if row["staleness_ms"] is None else f"{row['staleness_ms']:.0f}"
            figures = f"{row['chunks_per_s']:10.2f}{quartiles:>20}{over:>8}{stale:>10}{row['n']:5}"
            lines.append(f"    {row['variant']:42}{figures}{'  disturbed' if row['disturbed'] else ''}")
        return [*lines, STALE] if title == ROUNDS else lines

    return section


def _memory(rows: Sequence[Row]) -> list[str]:
    lines = [f"  {'memory, bytes per chunk':44}{'tracemalloc':>12}{'resident':>10}{'chunks':>8}"]
    for row in rows:
        grows = f"{row['python_bytes_per_chunk']:12.1f}{row['resident_bytes_per_chunk']:10.0f}"
        lines.append(f"    {row['mode']:42}{grows}{row['chunks']:8}")
    return lines


_SECTIONS: dict[str, Callable[[Sequence[Row]], list[str]]] = {
    "check": _check,
    "trial": _rates("tried"),
    "rounds": _rates(ROUNDS),
    "memory": _memory,
}


def _ratios(report: Report) -> list[str]:
    """Ratios within each round, with their quartiles."""
    lines = []
    for key, value in report.summary.items():
        low, high = report.summary.get(f"{key}_low"), report.summary.get(f"{key}_high")
        if low is not None and high is not None:
            lines.append(f"{key:44}{value:8.2f}  ({low:.2f} to {high:.2f})")
    return lines
