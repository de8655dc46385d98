"""What a search found, as a table and as a picture. Draws what was measured, chooses nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from auras_ros.evaluate.tuner.search import Result, pareto
from auras_ros.evaluate.tuner.trials import Candidate

COLUMNS = ("plan", "chunks/s", "x seq", "oldest ms", "episodes", "success", "95 %", "- seq", "95 %", "stale ms", "")
GREY, BLUE, ORANGE = "#9aa0aa", "#1f77b4", "#d9822b"


def table(result: Result) -> str:
    """One line a plan, the best first; a star marks those that no other beats in rate and success."""
    front = pareto(result.candidates)
    lines = [COLUMNS, *(_cells(one, one in front, _is(one, result.chosen)) for one in result.candidates)]
    if result.confirmed is not None:
        wanting = f": {result.unconfirmed}" if result.unconfirmed else ""
        lines.append((*_cells(result.confirmed, False, False)[:-1], f"the chosen one on fresh seeds{wanting}"))
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" if i in (0, 10) else f"{cell:>{width}}" for i, (cell, width) in enumerate(padded))
        for padded in (list(zip(line, widths, strict=True)) for line in lines)
    ).rstrip()


def _is(one: Candidate, chosen: Candidate | None) -> bool:
    return chosen is not None and one.plan == chosen.plan


def _cells(one: Candidate, front: bool, chosen: bool) -> tuple[str, ...]:
    played = one.success is not None
    note = one.refused or ("CHOSEN" if chosen else "*" if front else "")
    return (
        str(one.plan),
        f"{one.rate_hz:.2f}",
        f"{one.speedup:.2f}",
        f"{one.oldest_ms:.0f}",
        str(one.episodes) if played else "-",
        f"{one.success:.1%}" if played else "-",
        f"{one.low:.0%} to {one.high:.0%}" if played else "-",
        f"{100 * (one.above_seq or 0.0):+.1f}" if played else "-",
        f"{100 * (one.above_low or 0.0):+.1f} to {100 * (one.above_high or 0.0):+.1f}" if played else "-",
        f"{one.staleness_ms:.0f}" if one.staleness_ms is not None else "-",
        note,
    )


def draw(result: Result, title: str, path: Path) -> None:
    """Success over rate of what was played, with 95 % intervals; the front, the chosen one, and seq's rate."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    played = [one for one in result.candidates if one.success is not None]
    for one in played:
        colour = ORANGE if _is(one, result.chosen) else GREY if one.refused else BLUE
        _point(axes, one, colour)
    front = pareto(result.candidates)
    axes.plot([one.rate_hz for one in front], [one.success or 0.0 for one in front], color=BLUE, linewidth=1, zorder=1)
    for one in result.candidates[:1] if result.candidates else ():
        axes.axvline(one.rate_hz / one.speedup, color="black", linestyle=":", linewidth=1)
        axes.annotate("seq", (one.rate_hz / one.speedup, 0.02), fontsize=8, rotation=90, va="bottom", ha="right")
    axes.set(title=title, ylabel="success, 95 % Wilson", ylim=(-0.02, 1.02))
    axes.set_xlabel("chunks per second; beside each plan pp_perception/pp_generation, alpha; grey: left behind")
    axes.set_xlim(left=0)
    figure.savefig(path, dpi=110)


def _point(axes: Any, one: Candidate, colour: str) -> None:
    success = one.success or 0.0
    span = [[max(0.0, success - (one.low or 0.0))], [max(0.0, (one.high or 0.0) - success)]]
    axes.errorbar([one.rate_hz], [success], yerr=span, fmt="o", color=colour, capsize=3, markersize=5, linewidth=1)
    if not one.refused:
        text = f"{one.plan.pp_perception}/{one.plan.pp_generation}" + (
            f", {one.plan.alpha:g}" if one.plan.alpha else ""
        )
        axes.annotate(text, (one.rate_hz, success), fontsize=7, xytext=(5, 4), textcoords="offset points")


def rows(result: Result) -> Sequence[dict[str, Any]]:
    """Flat rows for the report: every candidate, then the confirmation."""
    front = pareto(result.candidates)
    made = [{**one.row(), "pareto": one in front, "chosen": _is(one, result.chosen)} for one in result.candidates]
    if result.confirmed is not None:
        made.append({**result.confirmed.row(), "pareto": False, "chosen": False, "fresh_seeds": True})
    return made
