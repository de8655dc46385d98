"""How a prompt gets from the topic to a policy with a language model.

A new text stops the chunks at once: continuing the old task would be wrong. Its token ids are made in a thread of its
own, so that no frame waits for a tokenizer, and set at a frame boundary together with the next epoch. A prompt that
cannot be used is reported, and no chunk is published until another one comes. Policies without language do not use
this: their prompt is only written to the provenance.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence


class Tokenising:
    """Computes `ids(text)` of the newest wanted text and calls `use(text, ids)`. If either raises ValueError,
    `refuse(text, reason)` is called instead. All three are called in a thread of its own.
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
        """Set the wanted text. An earlier one that is not begun yet is forgotten."""
        with self._news:
            self._wanted = text
            self._news.notify()

    def close(self) -> None:
        """End the thread after its current text."""
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
