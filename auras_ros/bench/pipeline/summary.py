"""From rates to results: rows, and ratios within rounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import Any

from auras_ros.bench.pipeline.sizes import Comparison
from auras_ros.measure.compare import ratio
from auras_ros.measure.forms import Variant, control_of
from auras_ros.report.statistics import spread

Rates = Mapping[Variant, Sequence[float]]


def rate_rows(
    base: Mapping[str, Any],
    rates: Rates,
    seq: Variant | None,
    staleness_ms: Mapping[Variant, Sequence[float]],
    marked: Collection[Variant],
) -> list[dict[str, Any]]:
    """chunks_per_s is the median; low and high are quartiles; n counts windows. over_seq: the median of the ratios to
    seq's rates, within each round of the variant; None without any. staleness_ms: see `Bench`. marked: see
    `disturbed`."""
    rows = []
    for variant, values in rates.items():
        low, middle, high = spread(values)
        # a slow variant was only in the first round
        over = [rate / other for rate, other in zip(values, rates.get(seq, ()) if seq else (), strict=False)]
        ages_ms = staleness_ms.get(variant)
        rows.append(
            {
                **base,
                "variant": str(variant),
                **variant.fields(),
                "chunks_per_s": middle,
                "low": low,
                "high": high,
                "n": len(values),
                "over_seq": median(over) if over else None,
                "staleness_ms": median(ages_ms) if ages_ms else None,
                "disturbed": variant in marked,
            }
        )
    return rows


def summary(rates: Rates, best: Mapping[str, Variant], sizes: Comparison, endings: Sequence[str]) -> dict[str, float]:
    """The ratios of one policy, with each of these endings of their names. Variants that failed have none."""
    auras = best.get("auras")
    seq = best.get("seq")
    pairs: dict[str, tuple[Variant | None, Variant | None]] = {
        f"auras_over_{kind}": (auras, best.get(kind)) for kind in ("seq", "dec", "par", "batched")
    }
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
            if over and under and over in rates and under in rates:
                low, middle, high = ratio(rates, over, under)
                found |= {f"{name}{ending}": middle, f"{name}{ending}_low": low, f"{name}{ending}_high": high}
        found[f"pp_generation{ending}"] = sizes.headline
        if "par" in best:
            found[f"par_concurrency{ending}"] = best["par"].plan.concurrency
    return found
