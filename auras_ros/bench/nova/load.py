"""`auras bench nova-load`: Nova and its baselines under Poisson arrivals (Nova figures 10, 11 and 12, table V)."""

from __future__ import annotations

from auras_ros.bench.nova import load_virtual

run, table, draw = load_virtual.run, load_virtual.table, load_virtual.draw
