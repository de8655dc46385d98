"""The results of a search as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from auras_ros.evaluate.show import success_columns
from auras_ros.evaluate.tuner.search import SearchResult, pareto
from auras_ros.evaluate.tuner.trials import Candidate
from auras_ros.report.picture import BLUE, ORANGE, canvas, whiskers
from auras_ros.report.table import Column, Row, in_columns

DROPPED = "#9aa0aa"


def _note(row: Row) -> str:
    return str(row["refused"] or ("CHOSEN" if row["chosen"] else "*" if row["pareto"] else ""))


COLUMNS: tuple[Column, ...] = (
    ("plan", "{plan}"),
    ("chunks/s", "{rate_hz:.2f}"),
    ("x seq", "{speedup:.2f}"),
    ("oldest ms", "{oldest_ms:.0f}"),
    ("episodes", lambda row: "-" if row["success"] is None else str(row["episodes"])),
    *success_columns("seq", "above_seq", "above_low", "above_high"),
    ("stale ms", "{staleness_ms:.0f}"),
    ("", _note),
)


def table(result: SearchResult) -> str:
    """One line for each plan, the best first; a star marks the Pareto front of rate and success."""
    shown = list(rows(result))
    if result.confirmed is not None:
        wanting = f": {result.unconfirmed}" if result.unconfirmed else ""
        shown[-1]["refused"] = f"the chosen plan on new seeds{wanting}"
    return "\n".join(in_columns(shown, COLUMNS, left=(0, len(COLUMNS) - 1)))


def draw(result: SearchResult, title: str, path: Path) -> None:
    """Success over rate of all played plans and of seq, with 95 % intervals, the Pareto front, and the chosen plan."""
    with canvas(path, (10, 5.5)) as figure:
        axes = figure.subplots()
        for one in result.candidates:
            if one.success is not None:
                _point(axes, one, DROPPED if one.refused else BLUE, "dropped" if one.refused else "played to the end")
        if result.seq is not None:
            axes.axvline(result.seq.rate_hz, color="black", linestyle=":", linewidth=1)
            if result.seq.success is not None:
                _point(axes, result.seq, "black", "seq", "D")
        if result.chosen is not None:
            at = ([result.chosen.rate_hz], [result.chosen.success or 0.0])
            axes.plot(*at, "o", ms=15, mfc="none", mec=ORANGE, mew=2, label=f"chosen: {result.chosen.plan}")
        front = pareto(result.candidates)
        if front:
            rates, shares = [one.rate_hz for one in front], [one.success or 0.0 for one in front]
            axes.plot(rates, shares, color=BLUE, lw=1, zorder=1, label="Pareto front of rate and success")
        axes.set(title=title, ylabel="success, 95 % Wilson", ylim=(-0.02, 1.02))
        axes.set_xlabel("chunks per second; beside each plan pp_perception/pp_generation, alpha; dotted: seq's rate")
        axes.set_xlim(left=0)
        axes.margins(x=0.08)
        known = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))  # one of each
        if known:
            figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=3, fontsize=8, frameon=False)


def _point(axes: Any, one: Candidate, colour: str, label: str, marker: str = "o") -> None:
    style = {"color": colour, "capsize": 3, "markersize": 5, "linewidth": 1}
    axes.errorbar([one.rate_hz], [one.success], yerr=whiskers([vars(one)], "success"), fmt=marker, label=label, **style)
    if not one.refused:
        plan = one.plan
        stages = f"{plan.pp_perception}/{plan.pp_generation}" + (f", {plan.alpha:g}" if plan.alpha else "")
        text = "seq" if plan.mode == "seq" else stages
        axes.annotate(text, (one.rate_hz, one.success), fontsize=7, xytext=(7, 5), textcoords="offset points")


def rows(result: SearchResult) -> Sequence[dict[str, Any]]:
    """Flat rows for the report: every candidate, then the confirmation."""
    front = pareto(result.candidates)
    chosen = None if result.chosen is None else result.chosen.plan
    made = [{**one.row(), "pareto": one in front, "chosen": one.plan == chosen} for one in result.candidates]
    if result.confirmed is not None:
        made.append({**result.confirmed.row(), "pareto": False, "chosen": False, "fresh_seeds": True})
    return made
