"""The prompt's way from the topic to a policy that is told in words what to do.

A text that is wanted stops the chunks at once: going on with the old task would be wrong. Its token ids are made in a
thread of its own, so that no frame waits for a tokenizer, and set at a frame boundary together with the next epoch.
What cannot be used is said, and chunks stay away until a prompt that can be is wanted. Policies without language know
nothing of this: their prompt stands in the provenance alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence


class Tokenising:
    """Makes `ids(text)` of the newest text that is wanted and hands them to `use(text, ids)`; where either raises
    ValueError, `refuse(text, reason)` is called instead. All three are called from a thread of its own.
    """

    def __init__(
        self,
        ids: Callable[[str], Sequence[int]],
        use: Callable[[str, Sequence[int]], None],
        refuse: Callable[[str, str], None],
    ) -> None:
        self._ids, self._use, self._refuse = ids, use, refuse
        self._news = threading.Condition()
        self._wanted: str | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="prompt", daemon=True)
        self._thread.start()

    def want(self, text: str) -> None:
        """The newest text; one that is not begun yet is forgotten."""
        with self._news:
            self._wanted = text
            self._news.notify()

    def close(self) -> None:
        """End the thread after what it is at."""
        with self._news:
            self._closed = True
            self._news.notify()
        self._thread.join()

    def _run(self) -> None:
        while (text := self._next()) is not None:
            try:
                self._use(text, self._ids(text))
            except ValueError as error:
                self._refuse(text, str(error))

    def _next(self) -> str | None:
        with self._news:
            while self._wanted is None and not self._closed:
                self._news.wait()
            text, self._wanted = self._wanted, None
            return None if self._closed else text
