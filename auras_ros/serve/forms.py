"""Answers in OpenAI's forms: a conversation's, and a plain completion's; whole, and in chunks.

Chunks are made for every token of every answer, so they are plain dicts that json writes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import Any, Protocol

from auras_ros.engine.request import Answer, AnswerToken, FinishReason
from auras_ros.serve.token_text import TokenTexts

LEAST_LOGPROB = -9999.0  # JSON has no infinity
FINISH = {"stop": "stop", "length": "length", "deadline": "length"}
"""An answer that its deadline cut off ends as a cut one does; `detail` says why."""
Json = dict[str, Any]
COMPACT = json.JSONEncoder(separators=(",", ":"))


class AnswerForm(Protocol):
    """One kind of answer."""

    texts: TokenTexts
    prefix: str  # of an answer's id
    whole: str  # the object's name
    chunk: str

    def choice(self, text: str, logprobs: Json | None) -> Json: ...

    def opening(self) -> Json | None: ...

    def delta(self, text: str, logprobs: Json | None) -> Json: ...

    def logprobs(self, tokens: Sequence[AnswerToken], offset: int) -> Json: ...


class ChatForm:
    prefix, whole, chunk = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, texts: TokenTexts) -> None:
        self.texts = texts

    def choice(self, text: str, logprobs: Json | None) -> Json:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": 0, "message": message, "logprobs": logprobs}

    def opening(self) -> Json | None:
        return {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}

    def delta(self, text: str, logprobs: Json | None) -> Json:
        return {"index": 0, "delta": {"content": text} if text else {}, "logprobs": logprobs, "finish_reason": None}

    def logprobs(self, tokens: Sequence[AnswerToken], offset: int) -> Json:
        content = [
            {**self._entry(each.id, each.logprob), "top_logprobs": [self._entry(*pair) for pair in each.top]}
            for each in tokens
        ]
        return {"content": content, "refusal": None}

    def _entry(self, token: int, logprob: float | None) -> Json:
        text = self.texts(token)
        return {"token": text.label, "logprob": _finite(logprob), "bytes": text.bytes}


class CompletionForm:
    prefix, whole, chunk = "cmpl", "text_completion", "text_completion"

    def __init__(self, texts: TokenTexts) -> None:
        self.texts = texts

    def choice(self, text: str, logprobs: Json | None) -> Json:
        return {"index": 0, "text": text, "logprobs": logprobs}

    def opening(self) -> Json | None:
        return None

    def delta(self, text: str, logprobs: Json | None) -> Json:
        return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": None}

    def logprobs(self, tokens: Sequence[AnswerToken], offset: int) -> Json:
        texts = [self.texts(each.id) for each in tokens]
        offsets = list(accumulate((len(text.text) for text in texts), initial=offset))[:-1]
        top = [
            {self.texts(token).label: _finite(logprob) for token, logprob in ((each.id, each.logprob), *each.top)}
            for each in tokens
        ]
        own = [_finite(each.logprob) for each in tokens]
        names = [text.label for text in texts]
        return {"tokens": names, "token_logprobs": own, "top_logprobs": top, "text_offset": offsets}


class AnswerWriter:
    """Writes one answer. logprobs: whether they were asked for; usage: whether every chunk has a place for it."""

    def __init__(self, form: AnswerForm, number: str, created: int, model: str, logprobs: bool, usage: bool) -> None:
        self._form, self._logprobs, self._usage = form, logprobs, usage
        self._head = {"id": f"{form.prefix}-{number}", "created": created, "model": model}
        self._begin = COMPACT.encode({**self._head, "object": form.chunk})[:-1]  # every chunk begins with it
        self._offset = 0

    def whole(self, answer: Answer) -> bytes:
        logprobs = self._form.logprobs(answer.tokens, 0) if self._logprobs else None
        choice = self._form.choice(answer.text, logprobs) | self._ending(answer.finish, answer.detail)
        choice |= task_result(answer)
        return json.dumps(
            {**self._head, "object": self._form.whole, "choices": [choice], "usage": usage(answer)}
        ).encode()

    def at_once(self, answer: Answer) -> bytes:
        """The whole stream of an answer of one piece; a task head's is one chunk."""
        if answer.result is None:
            return self.opening() + self.piece(answer.text, ()) + self.closing(answer)
        opening, choice = self._form.opening() or {}, self._form.delta(answer.text, None)
        if "delta" in opening:
            choice["delta"] = opening["delta"] | choice["delta"]
        choice |= self._ending(answer.finish, answer.detail) | task_result(answer)
        return self._event([choice]) + self._end(answer)

    def opening(self) -> bytes:
        choice = self._form.opening()
        return b"" if choice is None else self._event([choice])

    def piece(self, text: str, tokens: Sequence[AnswerToken]) -> bytes:
        """Nothing where there is nothing to say yet."""
        if not self._logprobs or not tokens:
            return self._event([self._form.delta(text, None)]) if text else b""
        logprobs = self._form.logprobs(tokens, self._offset)
        self._offset += sum(len(self._form.texts(each.id).text) for each in tokens)
        return self._event([self._form.delta(text, logprobs)])

    def closing(self, answer: Answer) -> bytes:
        """Why it ended, what it took if that was asked for, and that nothing follows."""
        made = self._event([self._form.delta("", None) | self._ending(answer.finish, answer.detail)])
        return made + self._end(answer)

    def _end(self, answer: Answer) -> bytes:
        return (self._event([], usage(answer)) if self._usage else b"") + b"data: [DONE]\n\n"

    def _ending(self, finish: FinishReason, detail: str) -> Json:
        ending: Json = {"finish_reason": FINISH[finish]}
        return ending if finish != "deadline" else ending | {"finish_detail": detail or finish}

    def _event(self, choices: list[Json], used: Json | None = None) -> bytes:
        rest: Json = {"choices": choices} | ({"usage": used} if self._usage else {})
        return f"data: {self._begin},{COMPACT.encode(rest)[1:]}\n\n".encode()


def task_result(answer: Answer) -> Json:
    """The part of a choice that a task head has made; empty for tokens."""
    return {} if answer.result is None else {"task_result": asdict(answer.result)}


def usage(answer: Answer) -> Json:
    prompt, own = answer.usage.prompt_tokens, len(answer.tokens)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": own,
        "total_tokens": prompt + own,
        "prompt_tokens_details": {"cached_tokens": answer.usage.cached_tokens},
    }


def _finite(logprob: float | None) -> float | None:
    return None if logprob is None else max(logprob, LEAST_LOGPROB)
