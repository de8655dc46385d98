"""`auras bench nova-load`: Nova and its baselines under Poisson arrivals (Nova figures 10, 11 and 12, table V)."""

from __future__ import annotations

from pathlib import Path

from auras_ros.bench.nova import load_real, load_show, load_virtual
from auras_ros.report.result import Report, Say


def run(argv: list[str], progress: Say) -> Report:
    return load_real.run(argv, progress) if load_real.is_real(argv) else load_virtual.run(argv, progress)


def table(report: Report) -> str:
    return load_real.table(report) if "device" in report.more else load_show.table(report)


def draw(report: Report, path: Path) -> None:
    """Raises ValueError if nothing can be drawn."""
    if "device" in report.more:
        raise ValueError("nova-load: no picture of a real device")
    load_show.draw(report, path)
