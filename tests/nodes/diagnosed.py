"""What nodes say on /diagnostics, written down by task."""

from __future__ import annotations

from typing import Any

from auras_ros.ros.msg import DiagnosticArray
from tests.nodes.wire import RELIABLE, Watch

LEVELS = ("OK", "WARN", "ERROR", "STALE")


class Diagnosed:
    """The newest status of each task; `until` waits for one."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.newest: dict[str, Any] = {}
        self.count = 0
        watch.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_array, RELIABLE)

    def _on_array(self, array: DiagnosticArray) -> None:
        self.count += 1
        self.newest |= {status.name: status for status in array.status}

    def level(self, task: str) -> str:
        raw = self.newest[task].level
        return LEVELS[raw[0] if isinstance(raw, bytes) else int(raw)]

    def values(self, task: str) -> dict[str, str]:
        return {pair.key: pair.value for pair in self.newest[task].values}

    def until(self, task: str, level: str, words: str) -> Any:
        """The status of a task once it has this level (any: "") and these words."""

        def said() -> bool:
            status = self.newest.get(task)
            return status is not None and level in ("", self.level(task)) and words in status.message

        self._watch.until(said, f"{task}: {level}: {words}; now {self.newest.get(task)}")
        return self.newest[task]
