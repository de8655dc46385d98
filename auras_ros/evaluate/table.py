"""The rows of an evaluation as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = (
    "clock",
    "mode",
    "success",
    "95 %",
    "- seq",
    "95 %",
    "frame ms",
    "chunks/s",
    "context ms",
    "stale ms",
    "p99",
    "steps",
    "frames",
    "holds",
)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """One aligned line for each row; a dash marks missing values.

    context ms: mean age of the context at the first and the last generation stage. steps: median to success. frames:
    mean number of the executor's frames until success, beside seq's, over the seeds that both solve (Auras 4.2.4).
    """
    lines = [COLUMNS, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    return "\n".join("  ".join(_padded(line, widths)) for line in lines)


def _padded(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    """The first two cells aligned left, figures right."""
    padded = zip(line, widths, strict=True)
    return [f"{cell:<{width}}" if i < 2 else f"{cell:>{width}}" for i, (cell, width) in enumerate(padded)]


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    compared = row["diff"] is not None and row["mode"] != "seq"
    return (
        row["clock"],
        row["mode"],
        f"{row['success']:.1%}",
        f"{row['low']:.1%} to {row['high']:.1%}",
        f"{100 * row['diff']:+.1f}" if compared else "-",
        f"{100 * row['diff_low']:+.1f} to {100 * row['diff_high']:+.1f}" if compared else "-",
        f"{row['frame_ms']:.0f}",
        f"{row['chunks_per_s']:.2f}",
        _ages(row),
        _number(row["staleness_ms_mean"]),
        _number(row["staleness_ms_p99"]),
        _number(row["steps_to_success"]),
        "-" if row["frames_both"] is None else f"{row['frames_both']:.0f} / {row['frames_both_seq']:.0f}",
        f"{row['hold_share']:.1%}",
    )


def _ages(row: Mapping[str, Any]) -> str:
    ages = [value for key, value in row.items() if key.startswith("context_age_ms_")]
    return " to ".join(f"{age:.0f}" for age in dict.fromkeys([ages[0], ages[-1]])) if ages else "-"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
