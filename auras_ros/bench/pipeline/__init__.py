"""`auras bench pipeline`: the four modes side by side."""

from auras_ros.bench.pipeline.command import draw, run, table

__all__ = ["draw", "run", "table"]
