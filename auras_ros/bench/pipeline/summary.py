"""From rates to results: rows, and ratios within rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from auras_ros.bench.pipeline.sizes import Comparison
from auras_ros.measure.compare import ratio
from auras_ros.measure.forms import Variant, control_of

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
