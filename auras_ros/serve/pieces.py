"""From the engine's thread to the event loop: pieces of an answer; and back: that the client has gone."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import partial
from typing import Any

from auras_ros.engine.reply import Listener, PendingReply
from auras_ros.engine.request import Delta

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Pieces:
    """Listens to the replies of one request. every: all pieces are wanted, otherwise the last one of each alone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, every: bool) -> None:
        self._loop, self._every = loop, every
        self._come: deque[tuple[int, Delta]] = deque()
        self._there = asyncio.Event()

    def listener(self, index: int) -> Listener:
        """Of the reply with this number."""
        return partial(self, index)

    def __call__(self, index: int, piece: Delta) -> None:
        """In the engine's thread. The loop is woken once for all that has come."""
        if self._every or piece.finish is not None:
            self._come.append((index, piece))
            if len(self._come) == 1:
                self._loop.call_soon_threadsafe(self._there.set)

    async def take(self) -> list[tuple[int, Delta]]:
        """What has come since the last call, at least one, each with its reply's number."""
        while not self._come:
            self._there.clear()
            if not self._come:
                await self._there.wait()
        taken = list[tuple[int, Delta]]()
        while self._come:
            taken.append(self._come.popleft())
        return taken


class WaitingClient:
    """Whoever asked: when it goes, its replies are cancelled; so they are when what answers it fails."""

    def __init__(self, receive: Receive) -> None:
        self.gone = False
        self._receive = receive
        self._replies: Sequence[PendingReply] = ()
        self._watching = asyncio.create_task(self._watch())

    def __enter__(self) -> WaitingClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._watching.cancel()
        if kind is not None:
            self._cancel()

    def waits_for(self, replies: Sequence[PendingReply]) -> None:
        self._replies = replies
        if self.gone:
            self._cancel()

    def _cancel(self) -> None:
        for reply in self._replies:
            reply.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self._cancel()
