"""Several engines with the same weights, each in a process of its own on its share of the cores, as one.

A small model's forward takes hardly longer than the interpreter's work for it, and one interpreter does one thing at a
time: two processes on a core each answer more than one process on both (docs/engine.md). Each has weights, blocks and
caches of its own. A request goes to the replica that has the fewest. One that ends, or says nothing for ten seconds, is
lost with its requests, which fail; the others go on. Each reads every adapter: what one refuses, none has.
"""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path

from auras_ros.checkpoints.vlm.open import VlmCheckpoint, open_vlm
from auras_ros.engine.grammar import Grammars
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.replica_link import (
    AdapterChange,
    AddAdapter,
    Event,
    Order,
    Piece,
    Ready,
    RemoveAdapter,
    ReplicaOptions,
    Taken,
    send,
)
from auras_ros.engine.replica_process import run_replica
from auras_ros.engine.reply import Listener
from auras_ros.engine.request import Answer, Delta, EngineClosedError, FinishReason, RequestUsage, Timings, VlmRequest
from auras_ros.engine.stats import EngineSnapshot, EngineStats, joined

LOGGER = logging.getLogger(__name__)
CLOSED = "the engine is closed"
LOOK_S = 1.0
SHOWN_CHARS = 200  # of an error of the link
SILENT = 10  # looks; a process that was stopped together with this one is silent for one


class ReplicaError(RuntimeError):
    """A replica's process has ended, or does not answer."""


class Replicas:
    """What serves requests like an `Engine`."""

    def __init__(self, checkpoint: VlmCheckpoint, options: EngineOptions, replicas: Sequence[Replica]) -> None:
        self.checkpoint, self.options, self._replicas = checkpoint, options, replicas
        ready = replicas[0].ready()
        self.dtype, self.length = ready.dtype, ready.length
        self._adapters, self._changing = frozenset[str](), threading.Lock()
        vocabulary = checkpoint.model.language.vocabulary
        self._grammars = Grammars(checkpoint.prompts.tokenizer, vocabulary, checkpoint.stop_ids)

    @classmethod
    def start(cls, folder: Path, dtype: str, options: EngineOptions, shares: Sequence[tuple[int, ...]]) -> Replicas:
        """shares: each replica's cores. Raises what `open_vlm` and `make_engine` raise, or ReplicaError."""
        checkpoint = open_vlm(folder, dtype, weights=False)
        with ExitStack() as failing:
            replicas = list[Replica]()
            for number, cores in enumerate(shares):
                replicas.append(Replica(f"replica {number}", ReplicaOptions(folder, dtype, options, cores)))
                failing.callback(replicas[-1].close)
            for each in replicas:
                each.ready()
            failing.pop_all()
        return cls(checkpoint, options, replicas)

    @property
    def capacity(self) -> int:
        return len(self._replicas) * (self.options.running + self.options.waiting)

    @property
    def open(self) -> int:
        return sum(each.open for each in self._replicas)

    @property
    def failure(self) -> str:
        """Why there is no replica left; empty while there is one."""
        return "" if any(not each.failure for each in self._replicas) else self._replicas[0].failure

    def snapshot(self) -> EngineSnapshot:
        return joined([each.snapshot() for each in self._replicas])

    def submit(
        self, request: VlmRequest, listener: Listener, admission: AbstractContextManager[None] | None = None
    ) -> ReplicaReply:
        """As `Engine.submit`; the listener is called in a thread of the replica's.

        A grammar is tried here: a replica reads its requests one after another.
        """
        if request.grammar is not None:
            self._grammars.check(request.grammar)
            request = replace(request, grammar=replace(request.grammar, is_checked=True))
        return min(self._living(), key=lambda each: each.open).submit(request, listener, admission)

    def add_adapter(self, name: str, folder: Path) -> None:
        """As `Engine.add_adapter`, to every replica. What one of them refuses is taken from the others again."""
        with self._changing:
            answers = self._change(AddAdapter(name, folder))
            refused = next((error for _, error in answers if error is not None), None)
            if refused is None:
                self._adapters |= {name}
                return
            for each, error in answers:
                if error is None:
                    each.change(RemoveAdapter(name)).result()
            raise refused

    def remove_adapter(self, name: str) -> None:
        """As `Engine.remove_adapter`, from every replica."""
        with self._changing:
            answers = self._change(RemoveAdapter(name))
            self._adapters -= {name}
            for _, error in answers:
                if error is not None:
                    raise error

    def adapter_names(self) -> list[str]:
        return sorted(self._adapters)  # without the lock: a change may take seconds

    def close(self) -> None:
        """Every request ends as cancelled."""
        self._grammars.close()
        for each in self._replicas:
            each.close()

    def _living(self) -> list[Replica]:
        """Raises EngineClosedError if there is none."""
        living = [each for each in self._replicas if not each.failure]
        if not living:
            raise EngineClosedError(f"the engine failed: {self.failure}")
        return living

    def _change(self, change: AdapterChange) -> list[tuple[Replica, Exception | None]]:
        """What each living replica said to it, all at once; one that was lost meanwhile counts no more."""
        asked = [(each, each.change(change)) for each in self._living()]
        answers = [(each, answer.result()) for each, answer in asked]
        there = [(each, error) for each, error in answers if not each.failure]
        self._living()
        return there


class ReplicaReply:
    """The answer to one request, as the replica sends it."""

    def __init__(self, listener: Listener, cancel: Callable[[], None]) -> None:
        self.cancel = cancel
        self.taken: Future[Exception | None] = Future()
        self._answer: Future[Answer] = Future()
        self._listener = listener

    def result(self, timeout_s: float | None = None) -> Answer:
        """The whole answer. Raises TimeoutError."""
        return self._answer.result(timeout_s)

    # In the replica's thread.

    def take(self, refused: Exception | None) -> None:
        """Nothing new if a piece has come already."""
        if not self.taken.done():
            self.taken.set_result(refused)

    def push(self, delta: Delta) -> None:
        """As in `Reply`, a listener that raises cancels its request."""
        self.take(None)
        if delta.answer is not None:
            self._answer.set_result(delta.answer)
        try:
            self._listener(delta)
        except Exception:
            LOGGER.exception("the listener of an answer failed; its request is cancelled")
            self.cancel()

    def lose(self, why: str, finish: FinishReason) -> None:
        """The replica is no more there."""
        if self.taken.done():
            self.push(Delta("", (), finish, why, Answer("", (), finish, why, RequestUsage(0, 0, 0, Timings()))))
        else:
            self.take(EngineClosedError(why))


class Replica:
    """One process, and the two threads that write to it and read from it."""

    def __init__(self, name: str, options: ReplicaOptions) -> None:
        """Starts it; `ready` says when it is."""
        context = multiprocessing.get_context("spawn")  # not fork: torch's threads would be missing in the copy
        self._link, theirs = context.Pipe()
        self._process = context.Process(target=run_replica, args=(theirs, options), name=name, daemon=True)
        self._process.start()
        theirs.close()
        self.name, self.failure = name, ""
        self._replies: dict[int, ReplicaReply] = {}
        self._changes: dict[int, Future[Exception | None]] = {}
        self._numbers, self._lock = itertools.count(), threading.Lock()
        self._out: queue.SimpleQueue[tuple[int, Order] | None] = queue.SimpleQueue()
        self._snapshot = EngineSnapshot(EngineStats())
        self._ready: Future[Ready] = Future()
        for each, verb in ((self._read, "reads"), (self._write, "writes")):
            threading.Thread(target=each, name=f"{name} {verb}", daemon=True).start()

    def ready(self) -> Ready:
        """Waits until its engine runs. Raises what kept it from that."""
        return self._ready.result()

    @property
    def open(self) -> int:
        return len(self._replies)

    def snapshot(self) -> EngineSnapshot:
        """As it said last, and how many requests it has not answered. What it had counted stays when it is lost."""
        if self.failure:
            return EngineSnapshot(self._snapshot.stats, failure=self.failure)
        return replace(self._snapshot, open=self.open)

    def submit(
        self, request: VlmRequest, listener: Listener, admission: AbstractContextManager[None] | None = None
    ) -> ReplicaReply:
        """Returns when it is taken; raises why it is not. admission: as `Engine.submit`."""
        number = next(self._numbers)
        reply = ReplicaReply(listener, lambda: self._out.put((number, None)))
        with admission or nullcontext(), self._lock:
            if self.failure:
                raise EngineClosedError(self.failure)
            self._replies[number] = reply
        self._out.put((number, request))
        refused = reply.taken.result()
        if refused is None:
            return reply
        try:
            raise refused
        finally:  # it knows this frame, which must not know it: a request and its images would stay
            del refused, reply, request

    def change(self, change: AdapterChange) -> Future[Exception | None]:
        """Adds or removes an adapter. What it becomes: None, or why it is refused or the replica lost."""
        number, answer = next(self._numbers), Future[Exception | None]()
        with self._lock:
            if self.failure:
                answer.set_result(EngineClosedError(self.failure))
                return answer
            self._changes[number] = answer
        self._out.put((number, change))
        return answer

    def close(self) -> None:
        """Its requests end as cancelled. A second call does nothing."""
        self._lose(CLOSED, "cancelled")

    def _write(self) -> None:
        try:
            while (item := self._out.get()) is not None:
                self._send(*item)
                del item  # not until the next one comes
        except OSError as error:
            self._lose(f"{self.name}: {error}", "error")

    def _send(self, number: int, order: Order) -> None:
        """Raises OSError if the replica is gone."""
        try:
            send(self._link, number, order)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  (nothing was sent: this order alone is refused)
            self._take(Taken(number, ReplicaError(f"{self.name}: it cannot be sent: {error}")))

    def _read(self) -> None:
        silent = 0
        try:
            while silent < SILENT:
                if not self._link.poll(LOOK_S):
                    silent += self._ready.done()  # to open a model takes as long as it takes
                    continue
                silent = 0
                for event in self._link.recv():
                    self._take(event)
            why = f"it has said nothing for {SILENT * LOOK_S:g} s"
        except (EOFError, OSError):
            why = "its process has ended"
        except Exception as error:  # noqa: BLE001  (this thread must not end without a word: requests would wait for ever)
            why = f"it sent what is no message: {type(error).__name__}: {str(error)[:SHOWN_CHARS]!r}"
        self._lose(f"{self.name}: {why}", "error")

    def _take(self, event: Event) -> None:
        if isinstance(event, EngineSnapshot):
            self._snapshot = event
            if event.failure:
                self._lose(f"{self.name}: {event.failure}", "error")
        elif isinstance(event, Ready):
            self._ready.set_result(event)
        elif isinstance(event, Taken):
            with self._lock:
                change = self._changes.pop(event.number, None)
            if change is not None:
                change.set_result(event.refused)
            elif (reply := self._reply(event.number, last=event.refused is not None)) is not None:
                reply.take(event.refused)
        elif isinstance(event, Piece):
            if (reply := self._reply(event.number, last=event.finish is not None)) is not None:
                reply.push(event.delta)
        elif isinstance(event, Exception):
            self._ready.set_exception(event)
        else:
            raise TypeError(f"an event of type {type(event).__name__}")

    def _reply(self, number: int, last: bool) -> ReplicaReply | None:
        """None: it has ended, and this is late. last: nothing follows for it."""
        with self._lock:
            return self._replies.pop(number, None) if last else self._replies.get(number)

    def _lose(self, why: str, finish: FinishReason) -> None:
        """It is used no more. The first reason counts."""
        with self._lock:
            if self.failure:
                return
            self.failure = why
            replies, self._replies = self._replies, {}
            changes, self._changes = self._changes, {}
        if finish == "error":
            LOGGER.error("%s is lost, with %d requests", why, len(replies))
        self._process.kill()
        self._out.put(None)
        if not self._ready.done():
            self._ready.set_exception(ReplicaError(why))
        for each in replies.values():
            self._snapshot.stats.ended[finish] += each.taken.done()
            each.lose(why, finish)
        for change in changes.values():
            change.set_result(EngineClosedError(why))
