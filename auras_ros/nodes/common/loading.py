"""The slow part of configure, in a thread of its own. Meanwhile the executor's thread waits and reports progress."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from auras_ros.panics import raising_panics

T = TypeVar("T")


class BackgroundLoad(Generic[T]):
    """Starts at once. `progress`: the current step, as `load(say)` says it. `result`: what it returns when loading is
    over, or its error."""

    def __init__(self, load: Callable[[Callable[[str], None]], T]) -> None:
        self._load, self.progress = load, "loading"
        self.result: Future[T] = Future()
        threading.Thread(target=self._run, name="configure", daemon=True).start()

    def _run(self) -> None:
        try:
            with raising_panics():
                loaded = self._load(self._say)
            gc.collect()
            gc.freeze()  # the garbage collector does not scan the loaded objects again
            self.result.set_result(loaded)
        except BaseException as error:  # noqa: BLE001  (raised in the thread that waits)
            self.result.set_exception(error)

    def _say(self, step: str) -> None:
        self.progress = step
