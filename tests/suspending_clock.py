"""Virtual time of a machine that is suspended now and then."""

from __future__ import annotations

from auras_ros.clock import VirtualClock


class SuspendingClock(VirtualClock):
    """`suspend` lets time pass that `boot_ns` alone has seen."""

    def __init__(self, start_ns: int = 0) -> None:
        super().__init__(start_ns)
        self._suspended_ns = 0

    def boot_ns(self) -> int:
        return super().boot_ns() + self._suspended_ns

    def suspend(self, duration_ns: int) -> None:
        self._suspended_ns += duration_ns
