"""`auras bench pipeline`: the four modes side by side."""

from auras_ros.bench.pipeline.command import run
from auras_ros.bench.pipeline.show import draw, table

__all__ = ["draw", "run", "table"]
