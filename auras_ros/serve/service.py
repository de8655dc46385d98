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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from auras_ros.checkpoints.vlm.open import VlmCheckpoint
from auras_ros.engine.reply import Listener, PendingReply
from auras_ros.engine.request import GRAMMARS, EngineClosedError, EngineFullError, VlmRequest
from auras_ros.engine.stats import EngineSnapshot
from auras_ros.serve.adapters import AdapterEngine, ServedAdapters
from auras_ros.serve.bodies import BodyMemory
from auras_ros.serve.errors import ApiError, refusal
from auras_ros.serve.fields import (
    AdapterFields,
    ChatFields,
    CommonFields,
    LoadAdapterFields,
    read_fields,
)
from auras_ros.serve.forms import AnswerForm, AnswerWriter, ChatForm, CompletionForm
from auras_ros.serve.metrics import ServerMetrics
from auras_ros.serve.options import ServeOptions
from auras_ros.serve.pieces import Pieces, WaitingClient
from auras_ros.serve.token_text import TokenTexts
from auras_ros.serve.translate import Translator, grammar_field

OUR_NAMES = {"adapter": "model", "head": "task_head"}  # fields of a request, by what the engine calls them


@dataclass(frozen=True)
class Asked:
    """A request that the engine has taken."""

    fields: CommonFields
    reply: PendingReply
    pieces: Pieces
    writer: AnswerWriter


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
    request: VlmRequest


@dataclass
class Place:
    """Of a request that is prepared. left: it is the engine's, or was refused."""

    left: bool = False


class ModelService:
    """One engine under one name, and its adapters under theirs."""

    def __init__(self, engine: ServedEngine, options: ServeOptions, dtype: str) -> None:
        """dtype: of the weights, as whoever asks is told."""
        checkpoint = engine.checkpoint
        self.engine, self.options, self.name = engine, options, options.name or checkpoint.name
        self.metrics, self.created, self.dtype = ServerMetrics(), int(time.time()), dtype
        self.adapters = ServedAdapters(engine, self.name, options.lora_folder)
        self._changing = ThreadPoolExecutor(1, thread_name_prefix="adapters")  # one change at a time
        self._translator = Translator(checkpoint, engine.length, options.image_limits)
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
                self._leave(place)

    @contextmanager
    def _admission(self, place: Place) -> Iterator[None]:
        """While the engine counts the request among its own: it is counted here or there, never in both."""
        with self._counting:
            yield
            self._leave(place)

    def check_free(self) -> None:
        """Raises ApiError if there is no place now; it takes none."""
        with self._counting:
            self._check_free()

    def _check_free(self) -> None:
        if why := self.closed:
            raise refusal(EngineClosedError(why))
        limit = self.engine.capacity
        busy = self.engine.open + self.preparing
        if busy >= limit:
            raise refusal(EngineFullError(f"the engine is full: {busy} requests run or wait, {limit} at most"))

    def _leave(self, place: Place) -> None:
        if not place.left:
            place.left = True
            self.preparing -= 1

    async def take(self, place: Place, body: bytes, kind: type[CommonFields], client: WaitingClient) -> Asked:
        """Raises ApiError."""
        self._check_wanted(client)
        loop = asyncio.get_running_loop()
        outcome = await loop.run_in_executor(self._threads, self._prepare, place, body, kind, client, loop)
        if isinstance(outcome, PreparedRequest):
            self._check_wanted(client)
            outcome = await loop.run_in_executor(self._grammar_thread, self._submit, place, outcome, client, loop)
        client.waits_for(outcome.reply)
        return outcome

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

    def _change(self, body: bytes, kind: type[AdapterFields]) -> str:
        fields = read_fields(body, kind)
        if isinstance(fields, LoadAdapterFields):
            return self.adapters.load(fields.lora_name, fields.lora_path)
        return self.adapters.unload(fields.lora_name)

    def _prepare(
        self,
        place: Place,
        body: bytes,
        kind: type[CommonFields],
        client: WaitingClient,
        loop: asyncio.AbstractEventLoop,
    ) -> Asked | PreparedRequest:
        """Submits it too, unless it has a grammar. Raises ApiError."""
        check = partial(self._check_wanted, client)
        check()
        fields = read_fields(body, kind)
        adapter = self.adapters.named(fields.model)
        try:
            request = self._translator.request(fields, adapter, check)
        except ValueError as error:
            raise named_refusal(error, fields) from error
        fields.forget_prompt()
        prepared = PreparedRequest(fields, adapter, request)
        return prepared if request.grammar is not None else self._submit(place, prepared, client, loop)

    def _submit(
        self, place: Place, prepared: PreparedRequest, client: WaitingClient, loop: asyncio.AbstractEventLoop
    ) -> Asked:
        """Raises ApiError."""
        self._check_wanted(client)
        fields = prepared.fields
        pieces = Pieces(loop, every=fields.stream)
        try:
            reply = self.engine.submit(prepared.request, pieces, self._admission(place))
        except (ValueError, EngineFullError, EngineClosedError) as error:
            raise named_refusal(error, fields) from error
        form: AnswerForm = self._chat if isinstance(fields, ChatFields) else self._completion
        writer = AnswerWriter(
            form, secrets.token_hex(12), int(time.time()), prepared.adapter or self.name,
            fields.alternatives is not None, fields.stream and fields.usage_streamed,
        )  # fmt: skip
        return Asked(fields, reply, pieces, writer)

    def _check_wanted(self, client: WaitingClient) -> None:
        """Raises ApiError if nobody waits for the answer any more, or the server ends."""
        if client.gone:
            raise ApiError(499, "the client has gone")
        if self._closed:
            raise refusal(EngineClosedError(self.closed))


def named_refusal(error: ValueError | EngineFullError | EngineClosedError, fields: CommonFields) -> ApiError:
    """By the request's own name for what the engine calls otherwise."""
    made = refusal(error)
    if made.field in GRAMMARS:
        made.field = grammar_field(fields)
    elif made.field in OUR_NAMES:
        own = OUR_NAMES[made.field]
        made.message = f"{own}{made.message.removeprefix(made.field)}"
        made.field = own
    return made
