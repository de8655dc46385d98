"""The numbers in the text of the Auras paper about each figure. Nothing is read off a picture.

The paper measured on an RTX 4090 and an RTX 3090; other hardware gives other numbers. So each number is only shown
beside ours, with what it measures; nothing here passes or fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from auras_ros.report.result import Report
from auras_ros.report.table import Row, in_columns

FIGURE_ONLY = "figure only"  # no number in the text
Value = float | tuple[float, float] | str


@dataclass(frozen=True)
class PaperFigure:
    """value: a number, a (lowest, highest) pair, or words if the text has no number. ours: the key of the comparable
    value in our summary; empty if there is none."""

    what: str
    value: Value
    unit: str = ""
    where: str = ""
    ours: str = ""

    def row(self, summary: Mapping[str, float]) -> dict[str, Any]:
        """Of a report: ours is None if it was not measured."""
        named = {"what": self.what, "paper": self.value, "unit": self.unit, "where": self.where}
        return {**named, "ours": summary.get(self.ours), "ours_is": self.ours}


_TEXT: Mapping[str, tuple[tuple[Any, ...], ...]] = {  # the fields of each `PaperFigure`
    "fig3": (
        ("DP, a whole request, warp occupancy", 34.9, "%", "3.2", "utilisation_dp_request"),
        ("OpenVLA, a whole request, warp occupancy", 79.2, "%", "3.2", "utilisation_openvla_7b_request"),
        ("OpenVLA, decoding, warp occupancy, less than", 75.0, "%", "3.2", "utilisation_openvla_7b_generation"),
        ("TinyVLA, perception, warp occupancy", 74.3, "%", "3.2", "utilisation_tinyvla_1_3b_perception"),
        ("TinyVLA, generation, warp occupancy", 36.3, "%", "3.2", "utilisation_tinyvla_1_3b_generation"),
    ),
    "fig5": (
        ("accuracy over the pipeline degree, chunks from stale observations", "drops drastically", "", "3.3"),
        ("each degree's accuracy", FIGURE_ONLY, "", "figure 5"),
        ("parallel mode, loss of success on average", 80.22, "%", "6.2", "loss_par_percent"),
        ("all generations on the newest context", "comparable with sequential", "", "3.3"),
    ),
    "fig10": (
        ("auras over seq, mean of models and GPUs", 2.29, "x", "6.2", "mean_auras_over_seq"),
        ("auras over dec, mean of models and GPUs", 3.01, "x", "6.2", "mean_auras_over_dec"),
        ("auras over par, mean of models and GPUs", 1.49, "x", "6.2", "mean_auras_over_par"),
        ("auras over seq, RTX 4090", (1.32, 3.48), "x", "6.2"),
        ("auras over seq, RTX 3090", (1.18, 3.08), "x", "6.2"),
        ("dec over seq, mean (22.5 % less)", 0.775, "x", "6.2", "mean_dec_over_seq"),
        ("par over seq, all models", (1.06, 2.93), "x", "6.2", "mean_par_over_seq"),
        ("par over seq, autoregressive models", (1.06, 1.29), "x", "6.2"),
        ("OpenVLA, seq, then auras", (6.0, 17.0), "Hz", "6.2"),
        ("success of auras, of seq's, mean of six models", 102.7, "%", "6.2", "auras_success_of_seq_percent"),
        ("success of par, less than seq's, mean", 80.22, "%", "6.2", "par_success_loss_percent"),
        ("success at 40, 100 and 160 steps", FIGURE_ONLY, "", "figure 10a"),
    ),
    "fig11": (
        ("par over seq, OpenVLA and RT2", 1.11, "x", "6.3"),
        ("auras over seq, OpenVLA and RT2", (2.20, 3.29), "x", "6.3"),
        ("auras over the best par, diffusion", (1.07, 1.19), "x", "6.3", "auras_over_best_par"),
        ("uncontrolled parallelism over seq, at most", 2.93, "x", "3.3", "best_par_over_seq"),
        ("pipeline parallelism over seq, at most", 3.47, "x", "3.3", "auras_over_seq"),
        ("completion time, OpenVLA, seq", 153.0, "ms", "6.3", "jct_ms_seq_openvla_7b"),
        ("completion time, OpenVLA, par of 2, just fit", 303.0, "ms", "6.3", "jct_ms_par_just_fit_openvla_7b"),
        ("that over seq's (our division)", 1.98, "x", "6.3", "jct_par_just_fit_over_seq"),
        ("completion time, par, aligned input", "increases drastically", "", "6.3", "jct_ms_par_aligned"),
        ("output interval, fluctuation of uncontrolled parallelism", 89.8, "%", "1", "spread_percent_par"),
        ("workers that 24 GiB hold, OpenVLA and RT2", 3.0, "", "6.3"),
    ),
    "fig12": (
        ("diffusion, over pp_generation", "throughput rises, accuracy falls", "", "6.4"),
        ("diffusion, over pp_perception", "accuracy falls severely", "", "6.4"),
        ("autoregressive", "throughput stays; accuracy depends on L, better at L = 3", "", "6.4"),
        ("each point", FIGURE_ONLY, "", "figure 12"),
    ),
    "fig13": (
        ("throughput, alpha 0", 11.84, "chunks/s", "6.4", "rate_alpha_0"),
        ("throughput, alpha 1", 10.25, "chunks/s", "6.4", "rate_alpha_1"),
        ("that over alpha 0 (our division)", 0.866, "x", "6.4", "rate_alpha_1_over_0"),
        ("accuracy gained by alpha 1", 23.98, "%", "6.4", "gain_percent_alpha_1"),
        ("steps of 100 on the newest context, alpha 0", 20.0, "", "6.4", "last_steps_percent_alpha_0"),
        ("steps of 100 on the newest context, alpha 1", 64.0, "", "6.4", "last_steps_percent_alpha_1"),
        ("each other point", FIGURE_ONLY, "", "figure 13"),
    ),
    "fig14": (
        ("OpenVLA, speedup, least", 1.53, "x", "6.5", "least_openvla_7b"),
        ("OpenVLA, speedup, most", 2.63, "x", "6.5", "most_openvla_7b"),
        ("DP-plus, speedup, least", 1.93, "x", "6.5", "least_dp_plus"),
        ("DP-plus, speedup, most", 3.93, "x", "6.5", "most_dp_plus"),
        ("with a larger generation module", "rises", "", "6.5"),
        ("with a larger perception module", "falls", "", "6.5"),
        ("each size", FIGURE_ONLY, "", "figure 14"),
    ),
    "startup": (
        ("OpenVLA, the first whole request", 154.0, "ms", "6.7", "first_chunk_ms_openvla_7b"),
        ("RT2, the first whole request", 218.0, "ms", "6.7", "first_chunk_ms_llava_1_5_7b"),
        ("DP, filling the pipeline", 40.0, "ms", "6.7", "first_chunk_ms_dp"),
        ("DP-plus, filling the pipeline", 67.0, "ms", "6.7", "first_chunk_ms_dp_plus"),
    ),
}
PAPER = {figure: tuple(PaperFigure(*row) for row in rows) for figure, rows in _TEXT.items()}


def paper_rows(report: Report) -> list[dict[str, Any]]:
    """The paper's numbers of a figure, each beside ours."""
    return [each.row(report.summary) for each in PAPER[report.name]]


def finish(report: Report) -> Report:
    """Adds the paper's numbers, beside ours, to a figure's report."""
    report.more["paper"] = paper_rows(report)
    return report


def with_paper(report: Report, lines: Sequence[str]) -> str:
    """The figure's own lines, its note, and a table of the paper's numbers beside ours."""
    notes = [str(report.more["note"])] if "note" in report.more else []
    return "\n".join([*lines, *notes, "", *beside_ours(paper_rows(report), "Auras")])


def beside_ours(rows: Sequence[Row], paper: str) -> list[str]:
    """A table of `PaperFigure.row`s."""
    return in_columns(rows, ((f"the paper ({paper} section)", _what), ("paper", _value), ("ours", "{ours:.4g}")))


def _what(row: Row) -> str:
    where = row["where"] if row["where"].startswith("figure") else f"section {row['where']}"
    return f"{row['what']} ({where})"


def _value(row: Row) -> str:
    values = row["paper"] if isinstance(row["paper"], tuple) else [row["paper"]]
    text = " to ".join(each if isinstance(each, str) else f"{each:g}" for each in values)
    return f"{text} {row['unit']}".strip()
