"""What decode and another stage gain and lose beside each other, from the rounds of a profile (Nova figures 8, 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from auras_ros.engine.probing import PhaseTimes, ProbePhase, Round
from auras_ros.engine.profile import StageProfile
from auras_ros.engine.profiling import PREFILL, VISION, beside, decode
from auras_ros.report.statistics import spread
from auras_ros.report.table import Row


def corun_rows(found: Sequence[Round], rows: int) -> list[dict[str, Any]]:
    """Of each pair and split. alone: the quickest form of a stage; its units are None on the whole device. latency:
    percent that a forward takes longer than that."""
    made = []
    decoding = quickest(found, decode(rows))
    for stage in (VISION, PREFILL):
        alone = quickest(found, stage)
        for phase in (each for each in found[0] if each == beside(stage, each.split)):
            times = [each[phase] for each in found]
            low, gain, high = spread([
                (each[phase].forwards * _period(each[alone]) + each[phase].decodes * _period(each[decoding]))
                / each[phase].span_ms
                for each in found
            ])  # fmt: skip
            row: dict[str, Any] = {"pair": stage.stage, "units": phase.split, "rows": rows, "n": len(found)}
            row |= {"gain": gain, "gain_low": low, "gain_high": high}
            row |= _latencies("", [each[alone].own_ms for each in found], [each.own_ms for each in times])
            row |= _latencies("decode_", [each[decoding].own_ms for each in found], [each.decode_ms for each in times])
            made.append({**row, "alone_units": alone.split, "decode_alone_units": decoding.split})
    return sorted(made, key=lambda row: (row["pair"] != "vision", row["units"] or 0))


def quickest(found: Sequence[Round], phase: ProbePhase) -> ProbePhase:
    """A stage alone, on the whole device or on its part of a split, wherever its median over the rounds is least."""
    forms = [each for each in found[0] if each == replace(phase, split=each.split)]
    return min(forms, key=lambda form: median(_period(each[form]) for each in found))


def _period(times: PhaseTimes) -> float:
    return times.span_ms / times.forwards


def _latencies(name: str, alone: Sequence[Sequence[float]], together: Sequence[Sequence[float]]) -> dict[str, float]:
    """Medians of the rounds' medians and of their ratios."""
    pairs = [(median(one), median(other)) for one, other in zip(alone, together, strict=True)]
    return {
        f"{name}alone_ms": median(own for own, _ in pairs),
        f"{name}beside_ms": median(its for _, its in pairs),
        f"{name}latency_percent": 100 * (median(its / own for own, its in pairs) - 1),
    }


def corun_summary(rows: Sequence[Row]) -> dict[str, float]:
    """Of each pair the gain without a partition, and with the best split its gain, units and latencies."""
    found: dict[str, float] = {}
    for pair in ("vision", "prefill"):
        own = [row for row in rows if row["pair"] == pair]
        found |= {f"shared_{pair}_decode_gain": row["gain"] for row in own if row["units"] is None}
        best = max((row for row in own if row["units"] is not None), key=lambda row: row["gain"], default=None)
        if best is None:
            continue
        latencies = {"decode_latency_percent": "decode_latency_percent", "latency_percent": f"{pair}_latency_percent"}
        for name, its in {"gain": "gain", "units": "units", **latencies}.items():
            found[f"{pair}_decode_{its}"] = best[name]
    if {"vision_decode_gain", "prefill_decode_gain"} <= set(found):
        found["vision_gain_over_prefill_gain"] = found["vision_decode_gain"] / found["prefill_decode_gain"]
    return found


def stage_summary(profile: StageProfile) -> dict[str, float]:
    """The stages alone on the whole device."""
    return {"vision_ms": profile.vision, "prefill_ms": profile.prefill[profile.prompt], "decode_ms": profile.decode}
