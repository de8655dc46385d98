"""Rows and summary: of windows of one round, each mode against the policy alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from auras_ros.bench.cohost.modes import ALONE, BESIDE, CohostMode

Rows = Sequence[Mapping[str, Any]]
AT = (50, 99, 100)
RATIOS = {"chunk_rate_kept": "chunks_per_s", "frame_p99_over_alone": "frame_ms_p99"}
GRID_RATIOS = RATIOS | {"interval_p99_over_alone": "interval_ms_p99"}


def window_row(interval_ms: Sequence[float], frame_ms: Sequence[float], tokens: int) -> dict[str, float]:
    """interval_ms: between chunks. frame_ms: from a frame's begin to its chunk. tokens: of the model meanwhile."""
    seconds = sum(interval_ms) / 1e3
    found = {"chunks_per_s": len(interval_ms) / seconds, "n": len(interval_ms), "vlm_tokens_per_s": tokens / seconds}
    for name, values in (("interval", interval_ms), ("frame", frame_ms)):
        found |= {f"{name}_ms_p{at}": float(np.percentile(values, at)) for at in AT}
    return found


def summarised(rows: Rows) -> dict[str, float]:
    """Medians over rounds, of each mode (its suffix). chunk_rate_kept: its rate, frames back to back, over the rate
    alone in the same round (`_least`: the smallest). frame_p99_over_alone, interval_p99_over_alone: the same of the
    99th percentile of frames, and of the time between chunks. vlm_tokens_per_s: of the model. grid_...: all this on the
    frame grid. ..._alone: of the policy alone."""
    found: dict[str, float] = {}
    for prefix, ratios in (("", RATIOS), ("grid_", GRID_RATIOS)):
        kind = [row for row in rows if (row["period_ms"] > 0) is bool(prefix)]
        alone = _by_round(kind, ALONE)
        for figure in ("frame_ms_p50", "frame_ms_p99", "interval_ms_p99"):
            if alone:
                found[f"{prefix}{figure}_alone"] = median(row[figure] for row in alone.values())
        for mode in BESIDE:
            beside = _by_round(kind, mode)
            pairs = [(alone[number], row) for number, row in beside.items() if number in alone]
            for name, figure in ratios.items() if pairs else ():
                over = [loaded[figure] / free[figure] for free, loaded in pairs]
                found[f"{prefix}{name}{mode.suffix}"] = median(over)
                if name == "chunk_rate_kept" and not prefix:
                    found[f"{name}_least{mode.suffix}"] = min(over)
                    found["rounds"] = max(found.get("rounds", 0), len(pairs))
            if pairs:
                found[f"{prefix}vlm_tokens_per_s{mode.suffix}"] = median(row["vlm_tokens_per_s"] for _, row in pairs)
    return found


def _by_round(rows: Rows, mode: CohostMode) -> dict[int, Mapping[str, Any]]:
    return {row["round"]: row for row in rows if row["mode"] == mode.name}
