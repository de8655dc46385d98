"""The results of a search as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from auras_ros.evaluate.pace import Generation
from auras_ros.evaluate.show import success_columns
from auras_ros.evaluate.tuner.candidate import Candidate, pareto
from auras_ros.evaluate.tuner.search import SearchResult
from auras_ros.report.picture import BLUE, GREEN, ORANGE, canvas, whiskers
from auras_ros.report.table import Column, Row, in_columns

DROPPED = "#9aa0aa"
OF_GENERATIONS = (BLUE, GREEN, "#8c6bb1", "#b5483a", "#2a9d9d")  # again from the first if there are more


def _note(row: Row) -> str:
    marks = ["CHOSEN" if row["chosen"] else "*" if row["pareto"] else "", "best seq" if row["best_seq"] else ""]
    return ", ".join(filter(None, [*marks, row["refused"]]))


COLUMNS: tuple[Column, ...] = (
    ("checkpoint", "{checkpoint}"),
    ("plan", lambda row: f"{row['plan']}{' (seq)' if row['mode'] == 'seq' else ''}"),
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
    return "\n".join(in_columns(shown, COLUMNS, left=(0, 1, len(COLUMNS) - 1)))


def draw(result: SearchResult, title: str, path: Path) -> None:
    """Success over rate of all played plans and of every seq, with 95 % intervals, a colour for each checkpoint and
    generation plan; the Pareto front, and the chosen plan."""
    names = _names(result.candidates)
    colours = dict(zip(names, OF_GENERATIONS * len(names), strict=False))
    with canvas(path, (10, 5.5)) as figure:
        axes = figure.subplots()
        for one in result.candidates:
            if one.success is None:
                continue
            colour, name = colours[one.generation], names[one.generation]
            if one.plan.mode == "seq":
                _point(axes, one, colour, f"seq {name}", "D")
            else:
                _point(axes, one, *((DROPPED, "dropped") if one.refused else (colour, name)))
        if result.seq is not None:
            axes.axvline(result.seq.rate_hz, color="black", linestyle=":", linewidth=1)
        if result.chosen is not None:
            at = ([result.chosen.rate_hz], [result.chosen.success or 0.0])
            axes.plot(*at, "o", ms=15, mfc="none", mec=ORANGE, mew=2, label=f"chosen: {_title(result.chosen, names)}")
        front = pareto(result.candidates)
        if front:
            rates, shares = [one.rate_hz for one in front], [one.success or 0.0 for one in front]
            axes.plot(rates, shares, color="black", lw=0.7, zorder=1, label="Pareto front of rate and success")
        axes.set(title=title, ylabel="success, 95 % Wilson", ylim=(-0.02, 1.08))
        axes.set_xlabel(
            "chunks per second; beside each plan pp_perception/pp_generation, alpha; dotted: best seq's rate"
        )
        axes.set_xlim(left=0)
        axes.margins(x=0.08)
        known = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))  # one of each
        if known:
            figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=3, fontsize=8, frameon=False)


def _names(candidates: Sequence[Candidate]) -> dict[Generation, str]:
    """What each generation plan is called here, in a fixed order; with the checkpoint if there are several."""
    every = sorted({one.generation for one in candidates})
    several = len({checkpoint for checkpoint, _ in every}) > 1
    return {(checkpoint, plan): f"{checkpoint} {plan}" if several else plan for checkpoint, plan in every}


def _title(one: Candidate, names: dict[Generation, str]) -> str:
    return f"{names[one.generation]}{str(one.plan).removeprefix(one.plan.generation)}"


def _point(axes: Any, one: Candidate, colour: str, label: str, marker: str = "o") -> None:
    style = {"color": colour, "capsize": 3, "markersize": 5, "linewidth": 1}
    axes.errorbar([one.rate_hz], [one.success], yerr=whiskers([vars(one)], "success"), fmt=marker, label=label, **style)
    if not one.refused:
        plan = one.plan
        stages = f"{plan.pp_perception}/{plan.pp_generation}" + (f", {plan.alpha:g}" if plan.alpha else "")
        text = "seq" if plan.mode == "seq" else stages
        axes.annotate(text, (one.rate_hz, one.success), fontsize=7, xytext=(7, 5), textcoords="offset points")


def rows(result: SearchResult) -> Sequence[dict[str, Any]]:
    """Flat rows for the report: every candidate, then the confirmation. best_seq: what `seq` is in the requirements."""
    front = pareto(result.candidates)
    chosen, best = (None if one is None else (one.checkpoint, one.plan) for one in (result.chosen, result.seq))
    made = []
    for one in result.candidates:
        its = (one.checkpoint, one.plan)
        made.append({**_row(one), "pareto": one in front, "chosen": its == chosen, "best_seq": its == best})
    if result.confirmed is not None:
        made.append(
            {**_row(result.confirmed), "pareto": False, "chosen": False, "best_seq": False, "fresh_seeds": True}
        )
    return made


def _row(one: Candidate) -> dict[str, Any]:
    return {"checkpoint": one.checkpoint, "generation": one.plan.generation, "mode": one.plan.mode, **one.row()}
