"""`auras bench seams`: what becomes of the commands where one chunk follows another."""

from auras_ros.bench.seams.command import run
from auras_ros.bench.seams.show import draw, table

__all__ = ["draw", "run", "table"]
