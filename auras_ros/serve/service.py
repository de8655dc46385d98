"""One request after another becomes the engine's, or is refused; the event loop never waits for work.

Reading JSON, decoding images and tokenising run in a few threads; grammars, which take longer, in one of their own. A
request takes its place when its body is there, so that a slow client keeps nobody out. While the engine is full, one
more is refused before its body is read, whatever it would have asked. The work for a client that is gone, or after the
server was told to end, is given up between two of its parts.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

from auras_ros.checkpoints.vlm.open import VlmCheckpoint
from auras_ros.engine.reply import Listener, PendingReply
from auras_ros.engine.request import GRAMMARS, EngineClosedError, EngineFullError, Grammar, VlmRequest
from auras_ros.engine.stats import EngineSnapshot
from auras_ros.serve.adapters import AdapterEngine, ServedAdapters
from auras_ros.serve.answer_form import grammar_field
from auras_ros.serve.bodies import BodyMemory
from auras_ros.serve.errors import ApiError, refusal
from auras_ros.serve.fields import (
    AdapterFields,
    ChatFields,
    CommonFields,
    LoadAdapterFields,
)
from auras_ros.serve.forms import AnswerForm, AnswerShape, AnswerWriter, ChatForm, CompletionForm
from auras_ros.serve.metrics import ServerMetrics
from auras_ros.serve.options import ServeOptions
from auras_ros.serve.pieces import Pieces, WaitingClient
from auras_ros.serve.request_fields import RequestFields, read_fields
from auras_ros.serve.response_fields import ResponseFields, in_response_names
from auras_ros.serve.responses import ResponseWriter
from auras_ros.serve.token_fields import DetokenizeFields, TokenizeFields, text_of, tokens_of
from auras_ros.serve.token_text import TokenTexts
from auras_ros.serve.translate import TranslatedRequest, Translator

OUR_NAMES = {
    "adapter": "model",
    "head": "task_head",
    "stop_ids": "stop_token_ids",
}  # fields of a request, by what the engine calls them


@dataclass(frozen=True)
class Asked:
    """A request that the engine has taken: a reply for each answer."""

    fields: CommonFields
    # That holds the answers to their form.
    grammar: Grammar | None
    replies: Sequence[PendingReply]
    pieces: Pieces
    writer: AnswerWriter | ResponseWriter


class ServedEngine(AdapterEngine, Protocol):
    """What answers: an `Engine` of this process, or `Replicas` in others."""

    @property
    def checkpoint(self) -> VlmCheckpoint: ...

    @property
    def length(self) -> int: ...

    @property
    def capacity(self) -> int: ...

    @property
    def open(self) -> int: ...

    @property
    def failure(self) -> str: ...

    def snapshot(self) -> EngineSnapshot: ...

    def submit(
        self, request: VlmRequest, listener: Listener, admission: AbstractContextManager[None] | None = None
    ) -> PendingReply: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class PreparedRequest:
    """A request that the engine can be asked."""

    fields: CommonFields
    adapter: str
    translated: TranslatedRequest
    # As the Responses API names the same.
    response: ResponseFields | None = None


@dataclass
class Place:
    """Of a request that is prepared. held: answers of it that are neither the engine's nor refused."""

    held: int = 1


class ModelService:
    """One engine under one name, and its adapters under theirs."""

    def __init__(self, engine: ServedEngine, options: ServeOptions, dtype: str) -> None:
        """dtype: of the weights, as whoever asks is told."""
        checkpoint = engine.checkpoint
        self.engine, self.options, self.name = engine, options, options.name or checkpoint.name
        self.metrics, self.created, self.dtype = ServerMetrics(), int(time.time()), dtype
        self.adapters = ServedAdapters(engine, self.name, options.lora_folder)
        self._changing = ThreadPoolExecutor(1, thread_name_prefix="adapters")  # one change at a time
        self._translator = Translator(checkpoint, engine.length, options.image_limits, engine.capacity)
        self._threads = ThreadPoolExecutor(options.preparing, thread_name_prefix="prepare")
        self._grammar_thread = ThreadPoolExecutor(1, thread_name_prefix="grammars")
        texts = TokenTexts(checkpoint.prompts.tokenizer)
        self._chat, self._completion = ChatForm(texts), CompletionForm(texts)
        self.bodies = BodyMemory(options.body_mib << 20)
        self.preparing, self._counting = 0, threading.Lock()
        self._closed = False

    @contextmanager
    def place(self) -> Iterator[Place]:
        """A place among the engine's requests, until it has taken this one itself. Raises ApiError."""
        place = Place()
        with self._counting:
            self._check_free()
            self.preparing += 1
        try:
            yield place
        finally:
            with self._counting:
                self._leave(place, place.held)

    @contextmanager
    def _admission(self, place: Place) -> Iterator[None]:
        """While the engine counts an answer among its own: it is counted here or there, never in both."""
        with self._counting:
            yield
            self._leave(place, 1)

    def _widen(self, place: Place, answers: int) -> None:
        """Holds a place for each of so many answers. Raises ApiError."""
        more = answers - place.held
        with self._counting:
            if more > 0:
                self._check_free(more)
            place.held += more
            self.preparing += more

    def check_free(self) -> None:
        """Raises ApiError if there is no place now; it takes none."""
        with self._counting:
            self._check_free()

    def _check_free(self, answers: int = 1) -> None:
        if why := self.closed:
            raise refusal(EngineClosedError(why))
        limit = self.engine.capacity
        busy = self.engine.open + self.preparing
        if busy + answers > limit:
            raise refusal(EngineFullError(f"the engine is full: {busy} requests run or wait, {limit} at most"))

    def _leave(self, place: Place, answers: int) -> None:
        place.held -= answers
        self.preparing -= answers

    async def take(self, place: Place, body: bytes, kind: type[RequestFields], client: WaitingClient) -> Asked:
        """Raises ApiError."""
        self._check_wanted(client)
        loop = asyncio.get_running_loop()
        outcome = await loop.run_in_executor(self._threads, self._prepare, place, body, kind, client, loop)
        if isinstance(outcome, PreparedRequest):
            self._check_wanted(client)
            outcome = await loop.run_in_executor(self._grammar_thread, self._submit, place, outcome, client, loop)
        client.waits_for(outcome.replies)
        return outcome

    async def count_tokens(self, body: bytes, kind: type[TokenizeFields] | type[DetokenizeFields]) -> dict[str, object]:
        """The answer of /tokenize or /detokenize. Raises ApiError."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._count_tokens, body, kind)

    async def change_adapters(self, body: bytes, kind: type[AdapterFields]) -> str:
        """Raises ApiError."""
        if why := self.closed:
            raise refusal(EngineClosedError(why))
        return await asyncio.get_running_loop().run_in_executor(self._changing, self._change, body, kind)

    @property
    def closed(self) -> str:
        """Why no request is taken any more; empty while they are."""
        if self.engine.failure:
            return f"the engine failed: {self.engine.failure}"
        return "the server is closing" if self._closed else ""

    def close(self) -> None:
        """Every request ends as cancelled; returns when the engine has ended them."""
        self._closed = True
        self.engine.close()
        for threads in (self._threads, self._grammar_thread):  # what waits there is refused when its turn comes
            threads.shutdown(wait=False)
        self._changing.shutdown(wait=False, cancel_futures=True)

    def _count_tokens(self, body: bytes, kind: type[TokenizeFields] | type[DetokenizeFields]) -> dict[str, object]:
        fields = read_fields(body, kind)
        self.adapters.named(fields.model)
        prompts = self.engine.checkpoint.prompts
        try:
            if isinstance(fields, DetokenizeFields):
                return {"prompt": text_of(prompts, fields)}
            made = tokens_of(prompts, fields, self.options.image_limits)
        except ValueError as error:
            raise refusal(error) from error
        return made | {"max_model_len": self.engine.length}

    def _change(self, body: bytes, kind: type[AdapterFields]) -> str:
        fields = read_fields(body, kind)
        if isinstance(fields, LoadAdapterFields):
            return self.adapters.load(fields.lora_name, fields.lora_path)
        return self.adapters.unload(fields.lora_name)

    def _prepare(
        self,
        place: Place,
        body: bytes,
        kind: type[RequestFields],
        client: WaitingClient,
        loop: asyncio.AbstractEventLoop,
    ) -> Asked | PreparedRequest:
        """Submits it too, unless it has a grammar. Raises ApiError."""
        check = partial(self._check_wanted, client)
        check()
        given = read_fields(body, kind)
        response = given if isinstance(given, ResponseFields) else None
        fields = given if response is None else response.as_chat()
        assert isinstance(fields, CommonFields)
        adapter = self.adapters.named(fields.model)
        try:
            translated = self._translator.requests(fields, adapter, check)
        except ValueError as error:
            refused = named_refusal(error, fields)
            raise (refused if response is None else in_response_names(refused)) from error
        fields.forget_prompt()
        if response is not None:
            response.forget_prompt()
        self._widen(place, len(translated.requests))
        prepared = PreparedRequest(fields, adapter, translated, response)
        has_grammar = translated.requests[0].grammar is not None
        return prepared if has_grammar else self._submit(place, prepared, client, loop)

    def _submit(
        self, place: Place, prepared: PreparedRequest, client: WaitingClient, loop: asyncio.AbstractEventLoop
    ) -> Asked:
        """Raises ApiError."""
        fields, requests = prepared.fields, prepared.translated.requests
        pieces = Pieces(loop, every=fields.stream)
        replies = list[PendingReply]()
        try:
            for index, request in enumerate(requests):
                self._check_wanted(client)
                replies.append(self.engine.submit(request, pieces.listener(index), self._admission(place)))
        except (ValueError, EngineFullError, EngineClosedError) as error:
            for reply in replies:
                reply.cancel()
            raise _refusal_of(prepared, error) from error
        except ApiError:
            for reply in replies:
                reply.cancel()
            raise
        return Asked(fields, requests[0].grammar, replies, pieces, self._writer(prepared))

    def _writer(self, prepared: PreparedRequest) -> AnswerWriter | ResponseWriter:
        fields, translated = prepared.fields, prepared.translated
        model, now = prepared.adapter or self.name, int(time.time())
        usage: Literal["never", "end", "always"] = "end" if fields.shows_usage_at_end else "never"
        if fields.shows_usage_always:
            usage = "always"
        shape = AnswerShape(
            translated.prompt_lengths, translated.per_prompt, fields.alternatives is not None,
            fields.prompt_logprobs is not None, usage if fields.stream else "never", translated.echoes,
            translated.is_prompt_only, translated.tools,
        )  # fmt: skip
        if prepared.response is not None:
            return ResponseWriter(prepared.response, model, now, shape)
        form: AnswerForm = self._chat if isinstance(fields, ChatFields) else self._completion
        head = {"id": f"{form.prefix}-{secrets.token_hex(12)}", "created": now, "model": model}
        return AnswerWriter(form, head, shape)

    def _check_wanted(self, client: WaitingClient) -> None:
        """Raises ApiError if nobody waits for the answer any more, or the server ends."""
        if client.gone:
            raise ApiError(499, "the client has gone")
        if self._closed:
            raise refusal(EngineClosedError(self.closed))


def _refusal_of(prepared: PreparedRequest, error: ValueError | EngineFullError | EngineClosedError) -> ApiError:
    refused = named_refusal(error, prepared.fields)
    return refused if prepared.response is None else in_response_names(refused)


def named_refusal(error: ValueError | EngineFullError | EngineClosedError, fields: CommonFields) -> ApiError:
    """By the request's own name for what the engine calls otherwise."""
    made = refusal(error)
    if made.field == "tools":
        inner = refusal(ValueError(made.message.removeprefix("tools: ")))  # tools: tools[0].function.parameters: …
        if inner.field is not None and inner.field.startswith("tools["):
            made.message, made.field = inner.message, inner.field
    elif made.field in GRAMMARS:
        made.field = grammar_field(fields)
    elif made.field in OUR_NAMES:
        own = OUR_NAMES[made.field]
        made.message = f"{own}{made.message.removeprefix(made.field)}"
        made.field = own
    elif made.field == "prompt" and isinstance(fields, ChatFields):
        made.message = f"messages{made.message.removeprefix('prompt')}"
        made.field = "messages"
    return made
