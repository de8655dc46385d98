"""What all figures' tables have in common: the paper's numbers beside ours."""

from __future__ import annotations

from collections.abc import Sequence

from auras_ros.bench.figures import paper
from auras_ros.report.result import Report
from auras_ros.report.table import aligned


def with_paper(figure: str, report: Report, lines: Sequence[str]) -> str:
    """The figure's own lines, notes, and a table of the paper's numbers beside ours."""
    notes = [str(report.more[name]) for name in ("note", "interrupted") if name in report.more]
    return "\n".join([*lines, *notes, "", *aligned(paper.cells(figure, report.summary))])


def finish(figure: str, report: Report) -> Report:
    """Adds the paper's numbers, beside ours, to the report."""
    report.more["paper"] = paper.beside(figure, report.summary)
    return report
