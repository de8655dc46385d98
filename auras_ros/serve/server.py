"""Runs the application on a socket until it is told to stop; then requests in flight end as cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial

import uvicorn
from fastapi import FastAPI

from auras_ros.serve.connections import BoundedProtocol, OpenConnections, connection_limits
from auras_ros.serve.metrics import ServerMetrics
from auras_ros.serve.service import ModelService

CLOSE_S = 6.0  # for the engine's running step
SENT_S = 3  # after that, for what is being sent
POLL_S = 0.02


class QuietServer(uvicorn.Server):
    """Leaves signals to whoever runs it: uvicorn would raise them again when it has ended."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """Raises OSError, naming the address."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        with contextlib.ExitStack() as failing:
            failing.enter_context(bound)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            failing.pop_all()
    except OSError as error:
        raise OSError(f"{host}:{port}: {error.strerror or error}") from error
    return bound


def make_server(app: FastAPI, metrics: ServerMetrics) -> QuietServer:
    limit, accepted_at_once = connection_limits()
    connections = OpenConnections(limit, metrics)
    config = uvicorn.Config(
        app, http=partial(BoundedProtocol, connections),  # type: ignore[arg-type]  # whatever makes one
        log_config=None, access_log=False, lifespan="off", ws="none", server_header=False, proxy_headers=False,
        backlog=accepted_at_once, timeout_graceful_shutdown=SENT_S,
    )  # fmt: skip
    return QuietServer(config)


async def serve(app: FastAPI, service: ModelService, bound: socket.socket, ready: Callable[[], None]) -> bool:
    """Until SIGINT or SIGTERM. ready: called when requests are answered. Returns whether the engine ended in time."""
    server = make_server(app, service.metrics)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    running = asyncio.create_task(server.serve(sockets=[bound]))
    while not server.started and not running.done():
        await asyncio.sleep(POLL_S)
    ready()
    told = asyncio.create_task(stopping.wait())
    await asyncio.wait({running, told}, return_when=asyncio.FIRST_COMPLETED)
    closed = await _closed(service)
    server.should_exit = True
    told.cancel()
    await running
    return closed


async def _closed(service: ModelService) -> bool:
    """Closes it in a thread that the process does not wait for. Returns whether that was in time."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def close() -> None:
        service.close()
        with contextlib.suppress(RuntimeError):  # nobody waits any more
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=close, name="close", daemon=True).start()
    try:
        await asyncio.wait_for(ended.wait(), CLOSE_S)
    except asyncio.TimeoutError:  # its own class until Python 3.11
        return False
    return True
