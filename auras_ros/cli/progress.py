"""One line with the progress of a long command: rewritten on a terminal, otherwise printed now and then."""

from __future__ import annotations

import sys
import time


class Progress:
    """`say(text)` may be called often. quiet_s: least time between two lines if the output is not a terminal."""

    def __init__(self, quiet_s: float = 10.0) -> None:
        self._terminal = sys.stdout.isatty()
        self._every_s = 0.1 if self._terminal else quiet_s
        self._last_s, self._width, self._pending = 0.0, 0, ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self.done()

    def say(self, text: str) -> None:
        self._pending = text
        if time.monotonic() - self._last_s >= self._every_s:
            self._show()

    def done(self) -> None:
        """Finish the line with the last text."""
        if self._pending:
            self._show()
        if self._terminal:
            print(flush=True)

    def _show(self) -> None:
        if self._terminal:
            print(f"\r{self._pending:<{self._width}}", end="", flush=True)
            self._width = len(self._pending)
        else:
            print(self._pending, flush=True)
        self._last_s, self._pending = time.monotonic(), ""
