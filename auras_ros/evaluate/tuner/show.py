"""The results of a search as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from auras_ros.evaluate.tuner.search import SearchResult, pareto
from auras_ros.evaluate.tuner.trials import Candidate

COLUMNS = ("plan", "chunks/s", "x seq", "oldest ms", "episodes", "success", "95 %", "- seq", "95 %", "stale ms", "")
GREY, BLUE, ORANGE = "#9aa0aa", "#1f77b4", "#d9822b"


def table(result: SearchResult) -> str:
    """One line for each plan, the best first; a star marks the Pareto front of rate and success."""
    front = pareto(result.candidates)
    lines = [COLUMNS, *(_cells(one, one in front, _is(one, result.chosen)) for one in result.candidates)]
    if result.confirmed is not None:
        wanting = f": {result.unconfirmed}" if result.unconfirmed else ""
        lines.append((*_cells(result.confirmed, False, False)[:-1], f"the chosen plan on new seeds{wanting}"))
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


def draw(result: SearchResult, title: str, path: Path) -> None:
    """Success over rate of all played plans and of seq, with 95 % intervals, the Pareto front, and the chosen plan."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for one in result.candidates:
        if one.success is not None:
            _point(axes, one, GREY if one.refused else BLUE, "dropped" if one.refused else "played to the end")
    if result.seq is not None:
        axes.axvline(result.seq.rate_hz, color="black", linestyle=":", linewidth=1)
        if result.seq.success is not None:
            _point(axes, result.seq, "black", "seq", "D")
    if result.chosen is not None:
        at = ([result.chosen.rate_hz], [result.chosen.success or 0.0])
        axes.plot(*at, "o", ms=15, mfc="none", mec=ORANGE, mew=2, label=f"chosen: {result.chosen.plan}")
    front = pareto(result.candidates)
    if front:
        shares = [one.success or 0.0 for one in front]
        axes.plot(
            [one.rate_hz for one in front], shares, color=BLUE, lw=1, zorder=1, label="Pareto front of rate and success"
        )
    axes.set(title=title, ylabel="success, 95 % Wilson", ylim=(-0.02, 1.02))
    axes.set_xlabel("chunks per second; beside each plan pp_perception/pp_generation, alpha; dotted: the rate of seq")
    axes.set_xlim(left=0)
    axes.margins(x=0.08)
    known = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))  # one of each
    if known:
        figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)


def _point(axes: Any, one: Candidate, colour: str, label: str, marker: str = "o") -> None:
    success = one.success or 0.0
    span = [[max(0.0, success - (one.low or 0.0))], [max(0.0, (one.high or 0.0) - success)]]
    style = {"color": colour, "capsize": 3, "markersize": 5, "linewidth": 1}
    axes.errorbar([one.rate_hz], [success], yerr=span, fmt=marker, label=label, **style)
    if not one.refused:
        plan = one.plan
        stages = f"{plan.pp_perception}/{plan.pp_generation}" + (f", {plan.alpha:g}" if plan.alpha else "")
        text = "seq" if plan.mode == "seq" else stages
        axes.annotate(text, (one.rate_hz, success), fontsize=7, xytext=(7, 5), textcoords="offset points")


def rows(result: SearchResult) -> Sequence[dict[str, Any]]:
    """Flat rows for the report: every candidate, then the confirmation."""
    front = pareto(result.candidates)
    made = [{**one.row(), "pareto": one in front, "chosen": _is(one, result.chosen)} for one in result.candidates]
    if result.confirmed is not None:
        made.append({**result.confirmed.row(), "pareto": False, "chosen": False, "fresh_seeds": True})
    return made
