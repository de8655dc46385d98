"""`auras bench peers`: other libraries compared with ours, on the same random weights and in one run."""

from auras_ros.bench.peers.command import draw, run, table

__all__ = ["draw", "run", "table"]
