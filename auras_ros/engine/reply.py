"""An answer as it comes: text from tokens, and the way to whoever asked."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from auras_ros.engine.request import Answer, AnswerToken, Delta, FinishReason, RequestUsage
from auras_ros.lora.heads import HeadResult
from auras_ros.panics import raising_panics

LOGGER = logging.getLogger(__name__)
Listener = Callable[[Delta], None]
INCOMPLETE = "\ufffd"  # what a tokenizer gives for bytes that make no character, or not yet
MOST_HELD = 3  # so many bytes, or tokens, may still become one with those that follow


class AnswerText:
    """Text of an answer, token by token. What could still become a stop text, or part of a character, is held back."""

    def __init__(
        self, tokenizer: Any, stops: Sequence[str], skip_special: bool = True, include_stop: bool = False
    ) -> None:
        """skip_special: special tokens have no text. include_stop: the text ends with the stop text."""
        self._tokenizer, self._stops = tokenizer, stops
        self._skip_special, self._include_stop = skip_special, include_stop
        self._ids: list[int] = []
        self._begin = self._end = 0  # of a few tokens before the next one: they decide how it is spaced
        self._known = 0  # characters of the text since `begin` that are certain
        self._held = ""
        self.stop: str | None = None  # the stop text that was found

    @property
    def stopped(self) -> bool:
        return self.stop is not None

    def push(self, token: int, may_stop: bool = True) -> str:
        """The text that this token makes certain. `stopped` afterwards: a stop text was found. may_stop: whether stop
        texts are looked for; text that has gone by is not looked at again."""
        self._ids.append(token)
        whole = self._decode(self._ids[self._begin :])
        held, new = len(whole) - len(whole.rstrip(INCOMPLETE)), len(self._ids) - self._end
        if new > MOST_HELD:
            held = min(held, MOST_HELD)
        text = whole[self._known : len(whole) - held]
        self._known = max(self._known, len(whole) - held)
        if not held or new >= 2 * MOST_HELD:
            self._begin, self._end = self._end, len(self._ids)
            self._known = len(self._decode(self._ids[self._begin :])) - held
        return self._release(text) if may_stop else text

    def flush(self) -> str:
        """What was held back, when the answer ends without a stop text."""
        text = self._held + self._decode(self._ids[self._begin :])[self._known :]
        self._held, self._begin, self._known = "", len(self._ids), 0
        return text

    def _decode(self, ids: list[int]) -> str:
        with raising_panics():
            text: str = self._tokenizer.decode(ids, skip_special_tokens=self._skip_special)
        return text

    def _release(self, text: str) -> str:
        text = self._held + text
        found = [(place, stop) for stop in self._stops if (place := text.find(stop)) >= 0]
        if found:
            place, self.stop = min(found, key=lambda pair: pair[0])
            self._held = ""
            return text[: place + len(self.stop)] if self._include_stop else text[:place]
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]


class PendingReply(Protocol):
    """An answer on its way, for whoever asked."""

    def cancel(self) -> None: ...

    def result(self, timeout_s: float | None = None) -> Answer: ...


class Reply:
    """Pieces go to the listener, in the engine's thread, or wait to be read. Cancelled and read from any thread."""

    def __init__(self, listener: Listener | None, text: AnswerText, wake: Callable[[], None]) -> None:
        self._pieces: queue.SimpleQueue[Delta] = queue.SimpleQueue()
        self._listener = listener or self._pieces.put
        self._text, self._wake = text, wake
        self._parts: list[str] = []
        self._tokens: list[AnswerToken] = []
        self._ended = threading.Event()
        self._answer: Answer | None = None
        self.cancelled = False

    def cancel(self) -> None:
        """The answer ends with the next step of the engine; nothing happens if it has ended."""
        self.cancelled = True
        self._wake()

    def __iter__(self) -> Iterator[Delta]:
        """The pieces, once, unless there is a listener; the last one has `finish`."""
        while True:
            piece = self._pieces.get()
            yield piece
            if piece.finish is not None:
                return

    def result(self, timeout_s: float | None = None) -> Answer:
        """The whole answer. Raises TimeoutError."""
        if not self._ended.wait(timeout_s) or self._answer is None:
            raise TimeoutError("the answer has not ended")
        return self._answer

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def push(self, token: AnswerToken, visible: bool, may_stop: bool = True) -> str | None:
        """For the engine: one more token. visible: whether its text belongs to the answer. may_stop: whether stop texts
        are looked for. Returns the stop text that was found."""
        self._tokens.append(token)
        self._send(Delta(self._text.push(token.id, may_stop) if visible else "", (token,)))
        return self._text.stop

    def end(
        self,
        finish: FinishReason,
        detail: str,
        usage: RequestUsage,
        result: HeadResult | None = None,
        stop_reason: int | str | None = None,
        prompt_tokens: Sequence[AnswerToken] = (),
    ) -> None:
        """For the engine: the last piece, and the answer, whose fields these are."""
        rest = "" if self._text.stopped else self._text.flush()
        rest = rest if result is None else result.text
        self._answer = Answer(
            "".join([*self._parts, rest]), tuple(self._tokens), finish, detail, usage, result, stop_reason,
            tuple(prompt_tokens),
        )  # fmt: skip
        self._ended.set()  # before the last piece: whoever gets that may ask for the answer
        self._send(Delta(rest, (), finish, detail, self._answer))

    def _send(self, piece: Delta) -> None:
        """A listener that raises cancels its request: one who asks must not stop the others."""
        self._parts.append(piece.text)
        try:
            self._listener(piece)
        except Exception:
            if not self.cancelled:
                LOGGER.exception("the listener of an answer failed; its request is cancelled")
            self.cancelled = True


def _overlap(text: str, stop: str) -> int:
    """The longest end of `text` that is a beginning of `stop`."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
