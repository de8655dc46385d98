"""One engine in a process of its own, on its own cores: what `replicas` starts.

The pipe's other end is the parent. Requests, cancellations and changes of adapters come in; pieces of
answers go out, all that there are at a time, and at least every BEAT_S the engine's state. When the parent is gone so
is the pipe, and the process ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection

from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.device.cores import in_own_thread, occupy
from auras_ros.engine.build import make_engine
from auras_ros.engine.engine import Engine
from auras_ros.engine.replica_link import (
    AdapterChange,
    AddAdapter,
    Event,
    Piece,
    Ready,
    RemoveAdapter,
    ReplicaOptions,
    Taken,
    receive,
)
from auras_ros.engine.reply import Reply
from auras_ros.engine.request import EngineClosedError, EngineFullError, VlmRequest
from auras_ros.heap import TENSOR_BLOCK, bound_heap

BEAT_S = 0.25


def run_replica(link: Connection, options: ReplicaOptions) -> None:
    """Serves until the pipe is closed. What goes wrong before that is sent."""
    for number in (signal.SIGINT, signal.SIGTERM):  # both come to all processes of a terminal or a unit
        signal.signal(number, signal.SIG_IGN)
    try:
        bound_heap(TENSOR_BLOCK)
        occupy("replica", frozenset(options.cores), len(options.cores))
        checkpoint = in_own_thread(partial(open_vlm, options.folder, options.dtype))
        checkpoint.prompts.end_template()  # prompts come from the parent, which has a renderer of its own
        engine = make_engine(checkpoint, options.engine)
        dtype = str(next(engine.checkpoint.model.parameters()).dtype).removeprefix("torch.")
    except Exception as error:  # noqa: BLE001  (raised again by the parent)
        link.send([_plain(error)])
        return
    ReplicaProcess(engine, link).run(Ready(dtype, engine.length))


class ReplicaProcess:
    """Reads in the main thread; the engine's thread sends what each step has made. Adapters are read in a thread of
    their own: it takes seconds, and a process that says nothing for ten is lost."""

    def __init__(self, engine: Engine, link: Connection) -> None:
        self._engine, self._link = engine, link
        self._sending = threading.Lock()
        self._made = list[Piece]()
        self._replies: dict[int, Reply] = {}
        self._adapters = ThreadPoolExecutor(1, "adapter changes")

    def run(self, ready: Ready) -> None:
        with contextlib.suppress(EOFError, OSError):
            self._send([ready])
            self._engine.start(self._after_step)
            while True:
                if self._link.poll(BEAT_S):
                    self._read()
                else:
                    self._send([self._engine.snapshot()])
        os._exit(0)  # a forward may take long, and nobody waits for its answer

    def _read(self) -> None:
        number, order = receive(self._link)
        if order is None:
            if (cancelled := self._replies.get(number)) is not None:
                cancelled.cancel()
        elif isinstance(order, AddAdapter | RemoveAdapter):
            self._adapters.submit(self._change, number, order)
        else:
            self._submit(number, order)

    def _submit(self, number: int, request: VlmRequest) -> None:
        try:
            reply = self._engine.submit(request, lambda delta: self._made.append(Piece.of(number, delta)))
        except (ValueError, EngineFullError, EngineClosedError) as error:
            self._send([Taken(number, error)])
            return
        self._replies[number] = reply
        if reply.ended:  # before it stood there
            self._replies.pop(number, None)
        self._send([Taken(number, None)])

    def _change(self, number: int, change: AdapterChange) -> None:
        refused: Exception | None = None
        try:
            if isinstance(change, AddAdapter):
                self._engine.add_adapter(change.name, change.folder)
            else:
                self._engine.remove_adapter(change.name)
        except Exception as error:  # noqa: BLE001  (raised again by the parent)
            refused = _plain(error)
        with contextlib.suppress(OSError):  # the parent is gone: the main thread sees that too
            self._send([Taken(number, refused)])

    def _after_step(self) -> None:
        if not self._made:
            return
        made, self._made = self._made, []
        ended = [each.number for each in made if each.finish is not None]
        for number in ended:
            self._replies.pop(number, None)
        with contextlib.suppress(OSError):  # the parent is gone: the main thread sees that too
            self._send([*made, self._engine.snapshot()] if ended else made)

    def _send(self, events: Sequence[Event]) -> None:
        with self._sending:
            self._link.send(events)


def _plain(error: Exception) -> Exception:
    """The error as one that any process can read."""
    with contextlib.suppress(Exception):
        return pickle.loads(pickle.dumps(error))  # type: ignore[no-any-return]  # noqa: S301  (of its own)
    return RuntimeError(f"{type(error).__name__}: {error}")
