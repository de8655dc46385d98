"""Reads what is left of a body before its answer is sent, and closes the connection where more is left.

A request may be refused before its body has come. If the connection were closed then, the client would see it broken
in place of the reason.
"""

from __future__ import annotations

import asyncio
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

DRAIN_BYTES, DRAIN_S = 64 << 20, 5.0
SLOW = 408  # the status of a body that came too slowly; no more is waited for


class BodyDrain:
    """Around an application. What is read so is forgotten; beyond the bounds the client may see what it sees."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # A client that waits for 100-continue has not sent its body.
        waits = any(name == b"expect" for name, _ in scope["headers"])
        coming = True

        async def noted() -> Message:
            nonlocal coming
            message = await receive()
            coming = message["type"] == "http.request" and message.get("more_body", False)
            return message

        async def sent(message: Message) -> None:
            if coming and message["type"] == "http.response.start":
                if not waits and message["status"] != SLOW:
                    await drain()
                if coming:
                    message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        async def drain() -> None:
            left, deadline = DRAIN_BYTES, time.monotonic() + DRAIN_S
            while coming and left > 0 and (rest_s := deadline - time.monotonic()) > 0:
                try:
                    left -= len((await asyncio.wait_for(noted(), rest_s)).get("body", b""))
                except asyncio.TimeoutError:  # its own class until Python 3.11
                    break

        await self._app(scope, noted, sent)
