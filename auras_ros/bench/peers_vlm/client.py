"""The one client of all servers: a closed loop, or arrivals at given times; every answer is streamed.

One thread and no library: a client that shares the servers' cores must be light. A connection a request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from auras_ros.bench.peers_vlm.stream import END, AnswerError, StreamedAnswer, read_answer

HOST = "127.0.0.1"
PATH = "/v1/chat/completions"
Parts = list[tuple[float, bytes]]


@dataclass(frozen=True)
class Load:
    """What one window brought. answers: in the order of the requests. span_s: from the first request to the last token.
    client_cpu_s: of this process."""

    answers: tuple[StreamedAnswer, ...]
    span_s: float
    client_cpu_s: float

    @property
    def rate_hz(self) -> float:
        """Requests per second."""
        return len(self.answers) / self.span_s


class _Collecting(asyncio.Protocol):
    """Keeps what arrives, with its time, until the stream or the connection ends."""

    def __init__(self, request: bytes, ended: asyncio.Future[None]) -> None:
        self.parts: Parts = []
        self._request, self._ended, self._tail = request, ended, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.parts.append((time.monotonic(), data))
        self._tail = self._tail[-len(END) :] + data
        if END in self._tail:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


def request_bytes(body: bytes, path: str = PATH) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class _Exchanges:
    """One request after another to whichever port has the fewest."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._open = dict.fromkeys(ports, 0)

    async def __call__(self, request: bytes) -> Parts:
        port = min(self._open, key=self._open.__getitem__)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        self._open[port] += 1
        try:
            transport, protocol = await loop.create_connection(lambda: _Collecting(request, ended), HOST, port)
            try:
                await ended
            finally:
                transport.abort()  # if the window is over before the answer is
        finally:
            self._open[port] -= 1
        return protocol.parts


def closed_loop(ports: Sequence[int], bodies: Sequence[bytes], at_once: int, limit_s: float) -> Load:
    """All requests in order, `at_once` of them at any time. ports: of a side's servers. Raises AnswerError, also after
    limit_s, or OSError."""

    exchange = _Exchanges(ports)

    async def run() -> list[tuple[float, Parts]]:
        queue = iter(list(enumerate(map(request_bytes, bodies))))
        done: dict[int, tuple[float, Parts]] = {}

        async def one() -> None:
            for number, request in queue:
                sent_s = time.monotonic()
                done[number] = (sent_s, await exchange(request))

        await asyncio.gather(*(one() for _ in range(at_once)))
        return [done[number] for number in range(len(bodies))]

    return _timed(run, limit_s)


def at_times(ports: Sequence[int], bodies: Sequence[bytes], times_s: Sequence[float], limit_s: float) -> Load:
    """Each request at its time, whatever has become of those before. Latencies count from the time at which a request
    was due, so that a client that is late hides nothing. Raises as `closed_loop`."""

    exchange = _Exchanges(ports)

    async def run() -> list[tuple[float, Parts]]:
        begin_s = time.monotonic()

        async def one(request: bytes, after_s: float) -> tuple[float, Parts]:
            due_s = begin_s + after_s
            await asyncio.sleep(due_s - time.monotonic())
            return due_s, await exchange(request)

        requests = [request_bytes(body) for body in bodies]
        return list(await asyncio.gather(*map(one, requests, times_s)))

    return _timed(run, limit_s)


def _timed(run: Callable[[], object], limit_s: float) -> Load:
    async def limited() -> list[tuple[float, Parts]]:
        return await asyncio.wait_for(run(), limit_s)  # type: ignore[arg-type]

    cpu_s = time.process_time()
    try:
        found = asyncio.run(limited())
    except asyncio.TimeoutError:
        raise AnswerError(f"not all answered within {limit_s:g} s") from None
    cpu_s = time.process_time() - cpu_s
    answers = tuple(read_answer(*each) for each in found)
    first_s, last_s = min(each.sent_s for each in answers), max(each.sent_s + each.e2e_s for each in answers)
    return Load(answers, last_s - first_s, cpu_s)
