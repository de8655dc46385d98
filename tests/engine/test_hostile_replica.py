"""A replica that sends nonsense over its link is lost, and says why; whoever waits for it is told.

Guards: a message that ends the thread which reads it: every request of that replica would wait for ever, and the
server would go on counting on it. An order that cannot be sent ended the thread that writes.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from auras_ros.engine.options import EngineOptions
from auras_ros.engine.replica_link import AddAdapter, Piece, Ready, ReplicaOptions, Taken
from auras_ros.engine.replicas import Replica, ReplicaError
from auras_ros.engine.request import EngineClosedError

PATIENCE_S = 30.0


class Linked:
    """A replica without a process: this holds the other end of its link."""

    def __init__(self, replica: Replica, link: Connection) -> None:
        self.replica, self.link = replica, link
        self.change: Future[Exception | None] = replica.change(AddAdapter("a", Path("/nowhere")))

    def send(self, payload: object) -> None:
        if isinstance(payload, bytes):
            self.link.send_bytes(payload)
        else:
            self.link.send(payload)


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Linked]:
    ours: list[Connection] = []

    class NoProcess:
        """In place of multiprocessing.Process."""

        def __init__(self, target: Any, args: tuple[Connection, ReplicaOptions], **_: Any) -> None:
            ours.append(args[0])

        def start(self) -> None:
            ours[0] = pickle_free_copy(ours[0])

        def kill(self) -> None:
            with suppress(OSError):  # the test closes it at the same moment
                ours[0].close()

    class Context:
        Pipe = staticmethod(multiprocessing.Pipe)
        Process = NoProcess

    ended: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", ended.append)
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: Context)
    made = Linked(Replica("replica 0", ReplicaOptions(Path("/nowhere"), "auto", EngineOptions(), (0,))), ours[0])
    yield made
    made.replica.close()
    assert not ended, "a thread has ended with an error"


def pickle_free_copy(link: Connection) -> Connection:
    """The parent closes its copy of the other end."""

    return Connection(os.dup(link.fileno()))


class Unreadable:
    """Its pickle names what is not there."""

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, ("", "no_such_name")


class Raising:
    def __reduce__(self) -> tuple[Any, ...]:
        return divmod, (1, 0)


class Endless:
    def __reduce__(self) -> tuple[Any, ...]:
        return range(1).index, (9,)


NONSENSE: dict[str, object] = {
    "no-bytes": b"",
    "one-byte": b"\0",
    "text": b"hello",
    "ones": b"\xff" * 100,
    "a-megabyte-of-nothing": b"\0" * 1_000_000,
    "half-a-pickle": pickle.dumps([Ready("float32", 100)])[:-5],
    "a-pickle-with-a-tail-cut-in-two": pickle.dumps([Taken(1, None)])[:12],
    "a-global-that-is-missing": b"cno_such_module\nname\n.",
    "a-name-that-is-missing": b"cos\nno_such_name\n.",
    "a-pickle-of-another-protocol": b"\x80\xff.",
    "an-opcode-that-is-none": b"\x80\x04\xfe.",
    "a-long-that-is-too-long": b"\x80\x04\x8b\xff\xff\xff\x7f.",
    "a-text-that-is-too-long": b"\x80\x04\x8d" + b"\xff" * 8 + b".",
    "a-memo-that-is-empty": b"h\x05.",
    "an-empty-stack": b".",
    "json": b'{"number": 1}',
    "no-list": 3,
    "nothing": None,
    "a-text": "ready",
    "a-list-of-nothing": [None],
    "a-list-of-numbers": [1, 2, 3],
    "a-dictionary": {"number": 1},
    "a-list-of-texts": ["Ready"],
    "a-list-of-lists": [[[]]],
    "an-order-in-place-of-an-event": [AddAdapter("a", Path("/x"))],
    "a-class-in-place-of-an-object": [Ready],
    "ready-twice": [Ready("float32", 1), Ready("float32", 1)],
    "ready-and-then-an-error": [Ready("float32", 1), ValueError("late")],
    "taken-by-a-list": [Taken([], None)],  # type: ignore[arg-type]
    "a-piece-of-a-dictionary": [Piece({}, "", (), None, "", None)],  # type: ignore[arg-type]
    "what-cannot-be-read": [Unreadable()],
    "what-raises": [Raising()],
    "what-raises-another-error": [Endless()],
    "a-message-that-forges-a-line": [type("a\n[FATAL] gone", (), {"__reduce__": lambda self: (int, ("a\nb",))})()],
}


@pytest.mark.parametrize("name", NONSENSE)
def test_a_replica_that_sends_nonsense_is_lost_and_says_so(name: str, linked: Linked) -> None:
    linked.send(NONSENSE[name])
    assert isinstance(linked.change.result(PATIENCE_S), EngineClosedError)
    assert linked.replica.failure.startswith("replica 0: ")
    assert linked.replica.failure.isprintable()
    with pytest.raises(EngineClosedError):
        linked.replica.submit(object(), lambda delta: None)  # type: ignore[arg-type]
    assert linked.replica.snapshot().failure == linked.replica.failure


STRANGE: dict[str, object] = {
    "nothing": [],
    "taken-that-nobody-asked": [Taken(10**30, None)],
    "a-piece-that-nobody-asked": [Piece(-1, "x" * 1_000_000, (), None, "", None)],
    "a-refusal-that-nobody-asked": [Taken(-5, ValueError("x"))],
    "a-tuple": (Taken(99, None),),
}


@pytest.mark.parametrize("name", STRANGE)
def test_what_is_only_strange_loses_nothing(name: str, linked: Linked) -> None:
    linked.send(STRANGE[name])
    linked.send([Ready("float32", 7)])
    assert linked.replica._ready.result(PATIENCE_S).length == 7
    assert linked.replica.failure == ""


def test_an_order_that_cannot_be_sent_is_refused_alone(linked: Linked) -> None:
    cannot = linked.replica.change(AddAdapter("b", lambda: None))  # type: ignore[arg-type]
    assert isinstance(cannot.result(PATIENCE_S), ReplicaError)
    assert linked.replica.failure == ""
    linked.send([Taken(0, None)])
    assert linked.change.result(PATIENCE_S) is None


def test_a_link_that_is_closed_within_a_message_is_the_end_of_the_process(linked: Linked) -> None:

    os.write(linked.link.fileno(), b"\0\0\1\0half")
    linked.link.close()
    assert isinstance(linked.change.result(PATIENCE_S), EngineClosedError)
    assert linked.replica.failure in ("replica 0: its process has ended", "replica 0: [Errno 32] Broken pipe")
