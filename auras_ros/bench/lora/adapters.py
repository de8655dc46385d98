"""`auras bench lora-adapters`: many adapters at once, by how many there are, of which eight are in memory, and by their
rank (VaLoRA figure 23): `lora-load` for several of both."""

from __future__ import annotations

from auras_ros.bench.lora.load import RATED, SYSTEMS, contests, draw, table
from auras_ros.report.result import Report, Say

__all__ = ["draw", "run", "table"]


def run(argv: list[str], progress: Say) -> Report:
    return contests(
        "lora-adapters", __doc__, argv, progress,
        adapters=[4, 16, 64], ranks=[8, 32], slots=8, sides=[*SYSTEMS, RATED],
    )  # fmt: skip
