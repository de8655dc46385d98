"""What a fault is, and how soon what is promised of it must come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from auras_ros.live.soak.harness import SoakHarness

HOLD_MS = 150.0
SILENT_MS = 300.0  # the agent's, after the actuator's last word
NAMED_MS = 1000.0
Times = tuple[int, int | None]
"""When it broke the loop and when the loop did what it promises, monotonic ns; None where it did not."""


@dataclass(frozen=True)
class InjectedFault:
    """`promise`: what the time is measured to, within limit_ms; None: measured alone. `play` breaks and mends.
    It comes in the first round and in each `every`-th after it."""

    play: Callable[[SoakHarness], Times]
    promise: str
    limit_ms: float | None = None
    every: int = 1
