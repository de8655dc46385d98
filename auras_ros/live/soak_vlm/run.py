"""The whole soak: a server is started, asked everything at once, offered ten times what it can answer, and ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from auras_ros.live.soak_vlm.mix import BODY_MIB, Say, VlmSoak, VlmSoakResult, VlmSoakSettings
from auras_ros.live.soak_vlm.overload import overloaded
from auras_ros.live.soak_vlm.process import VlmServerError, vlm_server


def soak_vlm(
    model: Path, kv_mib: int, replicas: int, settings: VlmSoakSettings, log: Path, say: Say, stopped: Callable[[], bool]
) -> VlmSoakResult:
    """kv_mib: each replica's memory for keys and values. Raises VlmServerError if the server does not start."""
    each = {"running": settings.running // replicas, "waiting": settings.waiting // replicas}
    options = {**each, "kv-mib": kv_mib, "body-mib": BODY_MIB, "replicas": replicas}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    soak: VlmSoak | None = None
    try:
        with vlm_server(model, [*words, "--dtype", "float32", "--chunked"], log) as server:
            soak = VlmSoak(server.port, server.pid, settings, say, stopped)
            asyncio.run(soak_server(soak))
    except VlmServerError as error:
        if soak is None:
            raise
        soak.broken.add("process ended", str(error))
    return soak.result


async def soak_server(soak: VlmSoak) -> None:
    """A server that is gone, or does not answer one request alone, is a broken promise."""
    try:
        await soak.mixed()
        if not soak.stopped():
            await overloaded(soak)
    except TimeoutError as error:
        soak.broken.add("never ended", str(error))
    except OSError as error:
        soak.broken.add("process ended", f"nothing answers any more: {error}")
