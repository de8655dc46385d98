"""The server as a whole: clients that go, the token, metrics, health, and its end."""

from __future__ import annotations

import json
import re
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from auras_ros.engine.options import EngineOptions
from auras_ros.serve.server import listen
from tests.serve.serving import LONG_S, Served, asking, serving, until

CHAT = "/v1/chat/completions"
LONG = {"messages": asking("how many"), "max_tokens": 3900, "ignore_eos": True}
SHORT = {"messages": asking("how many"), "max_tokens": 2}
SAMPLE = re.compile(r'auras_[a-z_]+(\{[a-z]+="[^"]*"\})? [0-9.e+-]+')


def send(served: Served, body: Any) -> socket.socket:
    """A request by a client of which nothing is left when its socket is closed."""
    made, data = socket.create_connection(("127.0.0.1", served.port), LONG_S), json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(data)}\r\n\r\n"
    made.sendall(head.encode() + data)
    return made


@pytest.mark.parametrize("stream", [False, True])
def test_who_goes_is_cancelled(served: Served, stream: bool) -> None:
    before = served.engine.stats.ended["cancelled"]
    with send(served, LONG | {"stream": stream}) as client:
        until(lambda: served.engine.running == 1)
        if stream:
            assert client.recv(1)
    until(lambda: served.engine.stats.ended["cancelled"] == before + 1)
    until(lambda: served.engine.running == 0)
    assert served.post(CHAT, SHORT)[0] == 200


def test_who_goes_while_waiting_is_cancelled(folder: Path) -> None:
    with serving(folder, started=False) as still:
        with send(still, SHORT):
            until(lambda: still.engine.waiting == 1)
        reply = still.engine._intake._queue[0][1].reply
        until(lambda: reply.cancelled)
        still.engine.start()
        until(lambda: still.engine.stats.ended["cancelled"] == 1)


def test_only_who_has_the_token_is_answered(folder: Path) -> None:
    openai = pytest.importorskip("openai")
    with serving(folder, token="secret") as guarded:
        assert guarded.get("/health")[0] == 200
        for path in ("/v1/models", "/metrics", "/nothing"):
            assert guarded.get(path)[0] == 401
            assert guarded.get(path, Authorization="Bearer secret")[0] != 401
        for wrong in ("secre", "secret2", "SECRET"):
            with pytest.raises(openai.AuthenticationError):
                guarded.client(api_key=wrong).models.list()
        assert [each.id for each in guarded.client(api_key="secret").models.list()] == ["tiny"]


def test_metrics_are_prometheus_text(served: Served) -> None:
    before = served.metric('auras_requests_total{finish="length"}')
    assert served.post(CHAT, SHORT)[0] == 200
    status, text = served.get("/metrics")
    assert status == 200
    lines = text.splitlines()
    for line in lines:
        assert SAMPLE.fullmatch(line.replace('le="+Inf"', 'le="inf"')) or re.match(r"# (HELP|TYPE) auras_\w+ \w", line)
    assert served.metric('auras_requests_total{finish="length"}') == before + 1
    assert [served.metric(f"auras_requests_{each}") for each in ("preparing", "open", "running", "waiting")] == [0] * 4
    assert served.metric("auras_generated_tokens_total") >= 2
    for each in ("time_to_first_token", "time_per_output_token", "request"):
        name = f"auras_{each}_seconds"
        counts = [float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}_bucket")]
        assert counts == sorted(counts)
        assert counts[-1] == served.metric(f"{name}_count") >= 1
        assert served.metric(f"{name}_sum") > 0


def test_health_says_what_is_served(served: Served) -> None:
    status, text = served.get("/health")
    assert (status, json.loads(text)) == (
        200, {"status": "ok", "model": "tiny", "dtype": "float32", "length": 4096},
    )  # fmt: skip


def test_an_engine_that_failed_is_503(folder: Path) -> None:
    with serving(folder, started=False) as broken:
        broken.engine.step = _fail  # type: ignore[method-assign]
        broken.engine.start()
        until(lambda: bool(broken.engine.failure))
        status, text = broken.get("/health")
        assert (status, "KeyError: 'broken'" in text) == (503, True)
        status, answer = broken.post(CHAT, SHORT)
        assert (status, answer["error"]["code"]) == (503, "engine_closed")


def _fail() -> bool:
    raise KeyError("broken")


def test_a_forward_that_fails_is_500_and_the_next_is_answered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from auras_ros.engine.workers import PrefillWorker

    with serving(folder) as served:
        with monkeypatch.context() as patch:
            patch.setattr(PrefillWorker, "__call__", lambda self, dispatch: _fail())
            for stream in (False, True):
                status, answer = served.post(CHAT, SHORT | {"stream": stream})
                assert (status, answer["error"]["code"]) == (500, "engine_error")
        assert served.post(CHAT, SHORT)[0] == 200


def test_requests_in_flight_end_when_the_server_does(folder: Path) -> None:
    """Whole: 503. Streamed: an error as the last event, never a finish_reason."""
    answers, begun = dict[bool, str](), threading.Event()
    with serving(folder, EngineOptions(kv_mib=16, block=4)) as served:

        def ask(stream: bool) -> None:
            with send(served, LONG | {"stream": stream}) as client:
                first = client.recv(65536)
                if stream:
                    begun.set()
                answers[stream] = b"".join([first, *iter(lambda: client.recv(65536), b"")]).decode()

        asking_both = [threading.Thread(target=ask, args=(stream,)) for stream in (False, True)]
        for each in asking_both:
            each.start()
        assert begun.wait(LONG_S)
        until(lambda: served.engine.running == 2)
    for each in asking_both:
        each.join(LONG_S)
    assert answers[False].startswith("HTTP/1.1 503 ")
    assert '"code": "cancelled"' in answers[False]
    assert answers[True].startswith("HTTP/1.1 200 ")
    assert '"code": "cancelled"' in answers[True]
    assert '"finish_reason":"' not in answers[True]


def test_a_port_in_use_is_named() -> None:
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port}: Address already in use"):
            listen("127.0.0.1", port)
