"""`auras bench lora-skew`: many adapters at once, by how much the most wanted one is (VaLoRA figure 22): `lora-load`
for several skews."""

from __future__ import annotations

from auras_ros.bench.lora.load import RATED, SYSTEMS, contests, draw, table
from auras_ros.report.result import Report, Say

__all__ = ["draw", "run", "table"]
SKEWS = [0.2, 0.4, 0.6, 0.8]


def run(argv: list[str], progress: Say) -> Report:
    return contests("lora-skew", __doc__, argv, progress, skews=SKEWS, sides=[*SYSTEMS, RATED])
