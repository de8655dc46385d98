"""Answers in OpenAI's forms: a conversation's, and a plain completion's; whole, and in chunks.

Chunks are made for every token of every answer, so they are plain dicts that json writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import Any, Literal, Protocol

from auras_ros.engine.request import Answer, AnswerToken, Delta
from auras_ros.serve.errors import ApiError
from auras_ros.serve.token_text import TokenTexts
from auras_ros.serve.tool_calls import Said, ToolCall, ToolCallReader
from auras_ros.serve.tool_use import ToolUse

LEAST_LOGPROB = -9999.0  # JSON has no infinity
FINISH = {"stop": "stop", "length": "length", "deadline": "length"}
"""An answer that its deadline cut off ends as a cut one does; `detail` says why."""
Json = dict[str, Any]
COMPACT = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True)
class AnswerShape:
    """What a request wants to see of its answers."""

    # Tokens of the prompt of each answer.
    prompt_lengths: Sequence[int]
    # So many answers have the same prompt.
    per_prompt: int = 1
    logprobs: bool = False
    prompt_logprobs: bool = False
    # In a stream: never, in a chunk of its own at the end, or in every chunk too.
    usage: Literal["never", "end", "always"] = "never"
    # The text that each answer begins with.
    echoes: Sequence[str] = ()
    # What the model adds to the prompt is not wanted.
    is_prompt_only: bool = False
    tools: ToolUse | None = None

    @property
    def count(self) -> int:
        return len(self.prompt_lengths)

    def echo(self, index: int) -> str:
        return self.echoes[index] if self.echoes else ""

    def reader(self) -> ToolCallReader | None:
        """For one answer."""
        tools = self.tools
        return None if tools is None else ToolCallReader(tools.form, tools.names, tools.single)


class AnswerForm(Protocol):
    """One kind of answer."""

    texts: TokenTexts
    prefix: str  # of an answer's id
    whole: str  # the object's name
    chunk: str

    def choice(self, text: str, calls: Sequence[ToolCall]) -> Json: ...

    def opening(self) -> Json | None: ...

    def delta(self, text: str, calls: Sequence[Json]) -> Json: ...

    def logprobs(self, tokens: Sequence[AnswerToken], offset: int) -> Json: ...


class ChatForm:
    prefix, whole, chunk = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, texts: TokenTexts) -> None:
        self.texts = texts

    def choice(self, text: str, calls: Sequence[ToolCall]) -> Json:
        message: Json = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message |= {"content": text or None, "tool_calls": [call_object(call) for call in calls]}
        return {"message": message}

    def opening(self) -> Json | None:
        return {"delta": {"role": "assistant", "content": ""}}

    def delta(self, text: str, calls: Sequence[Json]) -> Json:
        made: Json = {"content": text} if text else {}
        return {"delta": made | ({"tool_calls": list(calls)} if calls else {})}

    def logprobs(self, tokens: Sequence[AnswerToken], offset: int) -> Json:
        content = [
            {**self._entry(token.id, token.logprob), "top_logprobs": [self._entry(*pair) for pair in token.top]}
            for token in tokens
        ]
        return {"content": content, "refusal": None}

    def _entry(self, token: int, logprob: float | None) -> Json:
        text = self.texts(token)
        return {"token": text.label, "logprob": _finite(logprob), "bytes": text.bytes}


class CompletionForm:
    prefix, whole, chunk = "cmpl", "text_completion", "text_completion"

    def __init__(self, texts: TokenTexts) -> None:
        self.texts = texts

    def choice(self, text: str, calls: Sequence[ToolCall]) -> Json:
        return {"text": text}

    def opening(self) -> Json | None:
        return None

    def delta(self, text: str, calls: Sequence[Json]) -> Json:
        return {"text": text}

    def logprobs(self, tokens: Sequence[AnswerToken], offset: int) -> Json:
        texts = [self.texts(token.id) for token in tokens]
        offsets = list(accumulate((len(text.text) for text in texts), initial=offset))[:-1]
        own = [_finite(token.logprob) for token in tokens]
        names = [text.label for text in texts]
        top = [self._top(token) for token in tokens]
        return {"tokens": names, "token_logprobs": own, "top_logprobs": top, "text_offset": offsets}

    def _top(self, token: AnswerToken) -> Json | None:
        if token.logprob is None:  # nothing comes before the first token of a prompt
            return None
        pairs = ((token.id, token.logprob), *token.top)
        return {self.texts(each).label: _finite(logprob) for each, logprob in pairs}


class AnswerWriter:
    """Writes the answers to one request."""

    def __init__(self, form: AnswerForm, head: Mapping[str, Any], shape: AnswerShape) -> None:
        """head: `id`, `created` and `model` of every object."""
        self._form, self._shape = form, shape
        self._head = dict(head)
        self._begin = COMPACT.encode({**self._head, "object": form.chunk})[:-1]  # every chunk begins with it
        self._choices = [_ChoiceStream(form, shape, index) for index in range(shape.count)]

    def whole(self, answers: Sequence[Answer]) -> bytes:
        made = [self._choice(index, answer) for index, answer in enumerate(answers)]
        response = {**self._head, "object": self._form.whole, "choices": made, "usage": self._usage(answers)}
        if self._shape.prompt_logprobs and self._form.whole == ChatForm.whole:  # where vLLM has them
            response["prompt_logprobs"] = made[0].pop("prompt_logprobs")
        return json.dumps(response).encode()

    def piece(self, index: int, delta: Delta) -> bytes:
        """Nothing where there is nothing to say yet."""
        if delta.answer is not None and delta.answer.result is not None:  # a task head's, which `closing` writes
            return b""
        return self._events(index, self._choices[index].piece(delta))

    def closing(self, index: int, answer: Answer) -> bytes:
        """Why the answer ended, and what was held back until then."""
        return self._events(index, self._choices[index].closing(answer))

    def end(self, answers: Sequence[Answer]) -> bytes:
        """What they took if that was asked for, and that nothing follows."""
        shown = self._shape.usage != "never"
        return (self._event([], self._usage(answers)) if shown else b"") + b"data: [DONE]\n\n"

    def error(self, error: ApiError) -> bytes:
        """In a stream that has begun."""
        return b"data: " + error.content + b"\n\n"

    def _choice(self, index: int, answer: Answer) -> Json:
        shape, texts = self._shape, self._form.texts
        answer = shape_answer(answer, shape)
        text, calls = answer.text, list[ToolCall]()
        if (reader := shape.reader()) is not None and answer.result is None:
            said = [*reader.push(answer.text), *reader.end()]
            text = "".join(part for part in said if isinstance(part, str))
            calls = [part for part in said if isinstance(part, ToolCall)]
        logprobs = None
        if shape.logprobs:
            before = answer.prompt_tokens if shape.echoes else ()
            logprobs = self._form.logprobs([*before, *answer.tokens], 0)
        made = {"index": index, **self._form.choice(shape.echo(index) + text, calls), "logprobs": logprobs}
        made |= ending(answer, shape.tools if calls else None) | task_result(answer)
        if shape.prompt_logprobs:
            made["prompt_logprobs"] = prompt_logprobs(answer.prompt_tokens, texts)
        return made

    def _usage(self, answers: Sequence[Answer]) -> Json:
        own = 0 if self._shape.is_prompt_only else sum(len(answer.tokens) for answer in answers)
        return usage(answers[:: self._shape.per_prompt], own)

    def _events(self, index: int, choices: Sequence[Json]) -> bytes:
        always = self._shape.usage == "always"
        used = self._choices[index].usage if always else None
        return b"".join(self._event([choice], used) for choice in choices)

    def _event(self, choices: list[Json], used: Json | None = None) -> bytes:
        rest: Json = {"choices": choices} | ({"usage": used} if self._shape.usage != "never" else {})
        return f"data: {self._begin},{COMPACT.encode(rest)[1:]}\n\n".encode()


class _ChoiceStream:
    """One answer in chunks."""

    def __init__(self, form: AnswerForm, shape: AnswerShape, index: int) -> None:
        self._form, self._shape, self._index = form, shape, index
        self._reader = shape.reader()
        self._is_open = False
        self._offset = len(shape.echo(index))
        self._calls = 0
        self._tokens = 0

    @property
    def usage(self) -> Json:
        """So far."""
        prompt = self._shape.prompt_lengths[self._index]
        return {"prompt_tokens": prompt, "completion_tokens": self._tokens, "total_tokens": prompt + self._tokens}

    def piece(self, delta: Delta) -> list[Json]:
        made = self._opened()
        if self._shape.is_prompt_only:
            return made
        self._tokens += len(delta.tokens)
        said: Sequence[Said] = [delta.text] if delta.text else []
        if self._reader is not None:
            said = self._reader.push(delta.text)
        logprobs = None
        if self._shape.logprobs and delta.tokens:
            logprobs = self._form.logprobs(delta.tokens, self._offset)
            self._offset += sum(len(self._form.texts(token.id).text) for token in delta.tokens)
        deltas = self._deltas(said)
        if logprobs is not None:
            deltas = deltas or [self._chunk("", ())]
            deltas[0]["logprobs"] = logprobs
        return made + deltas

    def closing(self, answer: Answer) -> list[Json]:
        answer = shape_answer(answer, self._shape)
        if answer.result is not None:
            opening, last = self._form.opening() or {}, self._chunk(answer.text, ())
            if "delta" in opening:
                last["delta"] = opening["delta"] | last["delta"]
            return [last | ending(answer, None) | task_result(answer)]
        made = self._opened()
        if self._reader is not None:
            made += self._deltas(self._reader.end())
        return [*made, self._chunk("", ()) | ending(answer, self._shape.tools if self._calls else None)]

    def _opened(self) -> list[Json]:
        """The role, and the text that the answer begins with, once."""
        if self._is_open:
            return []
        self._is_open = True
        opening, echo = self._form.opening(), self._shape.echo(self._index)
        made = [] if opening is None else [self._framed(opening)]
        return made + ([self._chunk(echo, ())] if echo else [])

    def _deltas(self, said: Sequence[Said]) -> list[Json]:
        made = list[Json]()
        for part in said:
            if isinstance(part, str):
                made.append(self._chunk(part, ()))
            else:
                made.append(self._chunk("", [{"index": self._calls, **call_object(part)}]))
                self._calls += 1
        return made

    def _chunk(self, text: str, calls: Sequence[Json]) -> Json:
        return self._framed(self._form.delta(text, calls))

    def _framed(self, made: Json) -> Json:
        return {"index": self._index, **made, "logprobs": None, "finish_reason": None}


def shape_answer(answer: Answer, shape: AnswerShape) -> Answer:
    """The answer as the request wants it: of the prompt alone there is none."""
    if not shape.is_prompt_only or answer.finish not in FINISH:
        return answer
    return replace(answer, text="", tokens=(), finish="length", stop_reason=None)


def ending(answer: Answer, tools: ToolUse | None) -> Json:
    """Why a choice ended. tools: of an answer that has called some."""
    finish = FINISH[answer.finish]
    if tools is not None and finish == "stop" and tools.choice != "named":  # the named one was no decision
        finish = "tool_calls"
    made: Json = {"finish_reason": finish, "stop_reason": answer.stop_reason}
    return made if answer.finish != "deadline" else made | {"finish_detail": answer.detail or answer.finish}


def task_result(answer: Answer) -> Json:
    """The part of a choice that a task head has made; empty for tokens."""
    return {} if answer.result is None else {"task_result": asdict(answer.result)}


def call_object(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def prompt_logprobs(tokens: Sequence[AnswerToken], texts: TokenTexts) -> list[Json | None]:
    """In vLLM's form: for each token of the prompt, by id, its own log probability and the likeliest ones'. The rank is
    known for these."""
    made = list[Json | None]()
    for token in tokens:
        if token.logprob is None:  # nothing comes before the first one
            made.append(None)
            continue
        entries = {token.id: (token.logprob, None)} | {
            each: (logprob, place + 1) for place, (each, logprob) in enumerate(token.top)
        }
        made.append({
            str(each): {"logprob": _finite(logprob), "rank": rank, "decoded_token": texts(each).text}
            for each, (logprob, rank) in entries.items()
        })  # fmt: skip
    return made


def usage(prompts: Sequence[Answer], own: int) -> Json:
    """prompts: an answer to each prompt. own: tokens of all answers."""
    prompt = sum(answer.usage.prompt_tokens for answer in prompts)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": own,
        "total_tokens": prompt + own,
        "prompt_tokens_details": {"cached_tokens": sum(answer.usage.cached_tokens for answer in prompts)},
    }


def _finite(logprob: float | None) -> float | None:
    return None if logprob is None else max(logprob, LEAST_LOGPROB)
