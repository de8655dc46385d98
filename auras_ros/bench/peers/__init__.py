"""`auras bench peers`: other libraries compared with ours, on the same random weights and in one run."""

from auras_ros.bench.peers.command import run
from auras_ros.bench.peers.show import draw, table

__all__ = ["draw", "run", "table"]
