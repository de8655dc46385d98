"""Table V of the paper beside the same figures of simulated runs of Nova: processing, utilisation, queueing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from auras_ros.bench.nova import a6000
from auras_ros.bench.nova.runs import Figures
from auras_ros.engine.planner import queueing_delay_s
from auras_ros.report.statistics import student
from auras_ros.report.table import Column, Row, in_columns

MOST_ERROR = 0.10  # of a mean processing time: beyond, the profile is not the paper's device
COLUMNS: tuple[Column, ...] = (
    ("Table V: rate", "{rate_hz:.1f}"),
    ("vision + prefill s", "{processing_s:.3f}"),
    ("paper", "{paper_processing_s:.2f}"),
    ("utilisation", "{utilisation:.2f}"),
    ("paper", "{paper_utilisation:.2f}"),
    ("delay s", "{delay_s:.2f}"),
    ("of each trace", "{delay_s_least:.2f} to {delay_s_most:.2f}"),
    ("paper", "{paper_delay_s:.2f}"),
    ("traces below it", "{below_paper} of {n}"),
    ("equation 6", "{theory_s:.2f}"),
    ("paper", "{paper_theory_s:.2f}"),
)


def row(rate_hz: float, runs: Sequence[Figures]) -> dict[str, Any]:
    """theory: equation 6, of the simulated times; None beyond saturation. below_paper: traces whose delay is smaller
    than that of the paper's one trace."""
    at = a6000.RATES_HZ.index(rate_hz)
    processing_s, low, high = student([each["processing_s"] for each in runs])
    square_s2 = float(np.mean([each["processing_square_s2"] for each in runs]))
    delays_s = [each["delay_s"] for each in runs]
    delay_s, delay_low, delay_high = student(delays_s)
    paper_s = a6000.PROCESSING_S[at]
    return {
        "measure": "table5",
        "rate": rate_hz,
        "rate_hz": rate_hz,
        "processing_s": processing_s,
        "processing_s_low": low,
        "processing_s_high": high,
        "paper_processing_s": paper_s,
        "error": abs(processing_s / paper_s - 1),
        "utilisation": rate_hz * processing_s,
        "paper_utilisation": rate_hz * paper_s,
        "delay_s": delay_s,
        "delay_s_low": delay_low,
        "delay_s_high": delay_high,
        "delay_s_least": min(delays_s),
        "delay_s_most": max(delays_s),
        "paper_delay_s": a6000.DELAY_S[at],
        "below_paper": sum(each < a6000.DELAY_S[at] for each in delays_s),
        "theory_s": queueing_delay_s(rate_hz, processing_s, square_s2),
        "paper_theory_s": a6000.THEORY_S[at],
        "n": len(runs),
    }


def worst_error(rows: Sequence[Row]) -> float:
    return max(float(each["error"]) for each in rows)


def lines(rows: Sequence[Row]) -> list[str]:
    return in_columns([each for each in rows if each["measure"] == "table5"], COLUMNS)
