"""One streamed answer of an OpenAI-compatible server, from its bytes and the times at which they arrived.

Bytes are only collected while a server is measured and read afterwards, so that the client, which shares the servers'
cores, costs little, and the same for every server.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

END = b"data: [DONE]"


class AnswerError(RuntimeError):
    """An answer that is not what was asked for; the text says what came."""


@dataclass(frozen=True)
class StreamedAnswer:
    """One request's times in seconds. sent_s: when it was due, on the client's monotonic clock; ttft_s: from then to
    the first token; between_s: between each token and the one before it, 0 for tokens that came together; e2e_s: from
    `sent_s` to the last token. tokens, prompt_tokens: as the server counts them."""

    sent_s: float
    ttft_s: float
    between_s: tuple[float, ...]
    e2e_s: float
    tokens: int
    prompt_tokens: int
    text: str


def read_answer(sent_s: float, parts: Sequence[tuple[float, bytes]]) -> StreamedAnswer:
    """parts: bytes with the time of their arrival. Every token must have a text of its own (as those of our models do),
    or a token would not be seen when it arrives. Raises AnswerError."""
    body, times, texts = EventReader(), list[float](), list[str]()
    usage: dict[str, Any] = {}
    for at_s, data in parts:
        for event in body.feed(data):
            if "error" in event:
                raise AnswerError(f"error in the stream: {json.dumps(event['error'])[:300]}")
            usage = event.get("usage") or usage
            for choice in event.get("choices", ()):
                text = _text(choice)
                if text:
                    times.append(at_s)
                    texts.append(text)
    if body.status != 200:
        raise AnswerError(f"HTTP status {body.status}: {body.rest()[:300]!r}")
    if not times or not usage:
        raise AnswerError("no tokens" if not times else "no usage at the end of the stream")
    tokens = int(usage["completion_tokens"])
    if tokens < len(times):
        raise AnswerError(f"{len(times)} texts of {tokens} tokens: a token came in pieces")
    together = (0.0,) * (tokens - len(times))
    return StreamedAnswer(
        sent_s=sent_s,
        ttft_s=times[0] - sent_s,
        between_s=tuple(later - earlier for earlier, later in pairwise(times)) + together,
        e2e_s=times[-1] - sent_s,
        tokens=tokens,
        prompt_tokens=int(usage["prompt_tokens"]),
        text="".join(texts),
    )


def _text(choice: dict[str, Any]) -> str:
    """Of a chat's choice, or of a completion's."""
    delta = choice.get("delta")
    text = delta.get("content") if delta is not None else choice.get("text")
    return text or ""


class EventReader:
    """Server-sent events out of an HTTP/1.x response, chunked or ended by the connection's end."""

    def __init__(self) -> None:
        self.status = 0
        self._raw, self._body = b"", b""
        self._headers_read = self._chunked = False

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The events that these bytes complete."""
        self._raw += data
        if not self._headers_read and not self._read_headers():
            return []
        if self._chunked:
            self._dechunk()
        else:
            self._body, self._raw = self._body + self._raw, b""
        *whole, self._body = self._body.replace(b"\r\n", b"\n").split(b"\n\n")
        lines = [line for event in whole for line in event.split(b"\n") if line.startswith(b"data:")]
        return [json.loads(line[5:]) for line in lines if line[5:].strip() != b"[DONE]"]

    def rest(self) -> bytes:
        return self._body

    def _read_headers(self) -> bool:
        head, found, rest = self._raw.partition(b"\r\n\r\n")
        if not found:
            return False
        first, *lines = head.split(b"\r\n")
        self.status = int(first.split()[1])
        self._chunked = any(line.lower().replace(b" ", b"") == b"transfer-encoding:chunked" for line in lines)
        self._headers_read, self._raw = True, rest
        return True

    def _dechunk(self) -> None:
        while True:
            size, found, rest = self._raw.partition(b"\r\n")
            if not found:
                return
            length = int(size.split(b";")[0], 16)
            if len(rest) < length + 2:
                return
            self._body += rest[:length]
            self._raw = rest[length + 2 :]
            if not length:
                return
