"""A server of a tiny model on a free port, in a thread; and what its tests ask it."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from auras_ros.checkpoints.vlm.open import VlmCheckpoint, open_vlm
from auras_ros.engine.build import make_engine
from auras_ros.engine.engine import Engine
from auras_ros.engine.options import EngineOptions
from auras_ros.serve.app import make_app
from auras_ros.serve.options import ServeOptions
from auras_ros.serve.server import listen, make_server
from auras_ros.serve.service import ModelService

LONG_S = 30.0


@dataclass(frozen=True)
class Served:
    """reference: the same weights once more, as an engine packs its own."""

    url: str
    port: int
    engine: Engine
    service: ModelService
    reference: VlmCheckpoint
    # Ends the web server, and waits for it.
    shut_down: Callable[[], None]
    # By what they were made with; closed at the end, or they would warn when they are collected.
    clients: dict[str, Any] = field(default_factory=dict)

    def client(self, **others: Any) -> Any:
        import openai

        key = repr(sorted(others.items()))
        if key not in self.clients:
            options = {"api_key": "none", "max_retries": 0} | others
            self.clients[key] = openai.OpenAI(base_url=f"{self.url}/v1", **options)
        return self.clients[key]

    def post(self, path: str, body: object, **headers: str) -> tuple[int, dict[str, Any]]:
        """Status and answer; `body` is JSON unless it is bytes."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | {key.replace("_", "-"): headers[key] for key in headers}
        request = urllib.request.Request(f"{self.url}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=LONG_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        try:
            request = urllib.request.Request(f"{self.url}{path}", headers=headers)
            with urllib.request.urlopen(request, timeout=LONG_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, name: str) -> float:
        lines = self.get("/metrics")[1].splitlines()
        return float(next(line for line in lines if line.startswith(name + " ")).rpartition(" ")[2])


@contextmanager
def serving(
    folder: Path, engine: EngineOptions | None = None, token: str = "", started: bool = True, **options: Any
) -> Iterator[Served]:
    """started: whether the engine runs; otherwise it takes requests, which wait."""
    made = make_engine(open_vlm(folder), engine or EngineOptions(kv_mib=16, block=4))
    if started:
        made.start()
    service = ModelService(made, ServeOptions(model=str(folder), **options), "float32")
    server = make_server(make_app(service, token), service.metrics)
    with listen("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[bound])))
        thread.start()
        until(lambda: server.started)

        def shut_down() -> None:
            service.close()
            server.should_exit = True
            thread.join(LONG_S)

        served = Served(f"http://127.0.0.1:{port}", port, made, service, open_vlm(folder), shut_down)
        try:
            yield served
        finally:
            for client in served.clients.values():
                client.close()
            shut_down()
    assert not thread.is_alive()


def until(condition: Callable[[], bool]) -> None:
    """Waits for what another thread does."""
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


def picture(pixels: Any, form: str = "PNG", **options: Any) -> str:
    """A data URL."""
    made = pixels if isinstance(pixels, Image.Image) else Image.fromarray(np.asarray(pixels))
    file = io.BytesIO()
    made.save(file, form, **options)
    return f"data:image/{form.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


def asking(text: str, *urls: str) -> list[dict[str, Any]]:
    """Messages of one user, images first."""
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [{"role": "user", "content": [*images, {"type": "text", "text": text}]}]
