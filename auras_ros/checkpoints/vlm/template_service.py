"""What runs in the process of a chat template (`template_process`): compiles it once, renders it for each conversation.

It imports Jinja and the standard library. Memory is limited by the kernel before the template is read.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from auras_ros.checkpoints.vlm.template import ChatTemplate, compiled

MOST_MEMORY = 256 << 20  # bytes beyond what the process has when it begins
MOST_TEXT = 2 << 20  # characters of a rendered conversation, whose own texts have 1 << 20 at most
OUT_OF_MEMORY = "out of memory"  # the key of an answer that says so


class TemplateService:
    """A `child.program.ChildService`. Its orders: `compile` with `source`; `render` with `values`."""

    declared: dict[str, Any]

    def __init__(self) -> None:
        self.declared = {}
        self._template: ChatTemplate | None = None

    def answer(
        self, order: Mapping[str, Any], array: NDArray[Any] | None
    ) -> tuple[dict[str, Any], NDArray[Any] | None]:
        """Raises what the template raises, and ValueError for a text that is too long."""
        try:
            if order["do"] == "compile":
                self._template = compiled(order["source"])
                return {}, None
            assert self._template is not None
            text = self._template.render(**order["values"])
        except MemoryError:
            return {OUT_OF_MEMORY: True}, None
        if len(text) > MOST_TEXT:
            raise ValueError(f"it gives {len(text)} characters, expected {MOST_TEXT} at most")
        return {"text": text}, None

    def close(self) -> None:
        return None


def make(order: Mapping[str, Any], array: NDArray[Any] | None) -> TemplateService:
    """Called once, by `child.program`."""
    with open("/proc/self/statm", encoding="ascii") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MOST_MEMORY, size + MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return TemplateService()
