"""A folder's chat template, compiled and rendered in a process of its own, which has limits of memory and time.

A template is a program of somebody else's. Jinja's sandbox keeps it from files and from Python's objects, but nearly
every filter and operator of Jinja can take gigabytes or minutes, also while it is compiled. The kernel limits the
process's memory (`template_service`); a process that takes too long is killed. The next rendering starts another one.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auras_ros.checkpoints.vlm.template_service import MOST_MEMORY, OUT_OF_MEMORY
from auras_ros.child.process import ChildProcess, ChildStart, ProcessLostError

COMPILE_S, RENDER_S = 10.0, 5.0  # a published template takes milliseconds; the machine may be busy
# All that the process imports beside this package: it looks nowhere else, so not into a user's own site-packages.
PACKAGES = ("jinja2", "markupsafe", "numpy")


class ChatTemplateError(ValueError):
    """A template that cannot be compiled or rendered, or not within its limits; the text says why."""


class TemplateProcess:
    """Safe in several threads: one rendering runs at a time."""

    def __init__(self, source: str) -> None:
        """Compiles it. Raises ChatTemplateError, and ImportError without Jinja."""
        self._source = source
        self._child: ChildProcess | None = None
        self._lock = threading.Lock()
        with self._lock:
            self._start()

    def render(self, values: Mapping[str, Any]) -> str:
        """values: what the template may name, as JSON has it. Raises ChatTemplateError."""
        with self._lock:
            if self._child is None:
                self._start()
            text: str = self._ask("render", {"values": dict(values)}, RENDER_S)["text"]
        return text

    def close(self) -> None:
        """Ends the process; the next rendering starts another one."""
        with self._lock:
            self._end()

    def _start(self) -> None:
        for package in PACKAGES:  # the child is told where they are
            importlib.import_module(package)
        start = ChildStart("auras_ros.checkpoints.vlm.template_service", {}, packages=PACKAGES)
        try:
            self._child = ChildProcess("chat template", "renderer", Path(sys.executable), start)
        except (OSError, RuntimeError) as error:
            raise ChatTemplateError(f"its process cannot be started: {error}") from error
        self._ask("compile", {"source": self._source}, COMPILE_S)

    def _ask(self, method: str, order: dict[str, Any], within_s: float) -> dict[str, Any]:
        """Raises ChatTemplateError; the process is ended if it ran into a limit."""
        assert self._child is not None
        try:
            answer, _ = self._child.ask(method, order, within_s=within_s)
        except ProcessLostError as error:
            self._end()
            raise ChatTemplateError(f"it may take {_limits(within_s)}: {error}") from error
        except (ValueError, RuntimeError) as error:  # of the template itself
            raise ChatTemplateError(str(error)) from error
        if OUT_OF_MEMORY in answer:
            self._end()
            raise ChatTemplateError(f"it takes more memory than it may, {_limits(within_s)}")
        return answer

    def _end(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def _limits(within_s: float) -> str:
    return f"{within_s:g} s and {MOST_MEMORY >> 20} MiB"
