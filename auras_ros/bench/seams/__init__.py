"""`auras bench seams`: what becomes of the commands where one chunk follows another."""

from auras_ros.bench.seams.command import draw, run, table

__all__ = ["draw", "run", "table"]
