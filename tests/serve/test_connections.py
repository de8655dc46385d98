"""What comes before a request: heads that are too large or too slow, slow bodies, and too many connections."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from auras_ros.engine.options import EngineOptions
from auras_ros.serve import bodies, connections
from auras_ros.serve.connections import HEAD_BYTES, HEADERS, PIPELINED, URL_BYTES, BoundedProtocol
from tests.serve.serving import LONG_S, Served, serving, until

TEXT = "/v1/completions"
PLAIN = {"prompt": "left", "max_tokens": 2}
START = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
HEALTH = START + b"\r\n"


@contextlib.contextmanager
def connected(served: Served) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", served.port), LONG_S) as connection:
        yield connection


def read_all(connection: socket.socket) -> bytes:
    """Until the server closes it."""
    came = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            came += piece
    return came


def read_answer(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """One answer: status, headers in lower case, body."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return response.status, headers, response.read()


def sends_until_closed(connection: socket.socket, piece: bytes, limit: int, pause_s: float = 0.0) -> bool:
    """Whether the server closes the connection before `limit` bytes are sent."""
    try:
        for _ in range(limit // len(piece)):
            connection.sendall(piece)
            time.sleep(pause_s)
    except (ConnectionResetError, BrokenPipeError):
        return True
    return False


def post_head(length: int, path: str = TEXT, more: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n"
    return f"{head}{more}\r\n".encode()


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"GET /" + b"a" * (URL_BYTES + 1), 414, "url_too_long"),
        (START + b"X-Large: " + b"a" * HEAD_BYTES, 431, "headers_too_large"),
        (START + b"a" * HEAD_BYTES, 431, "headers_too_large"),
        (START + b"x: y\r\n" * (HEADERS + 1), 431, "headers_too_large"),
        (b"\r\n" * HEAD_BYTES, 431, "headers_too_large"),
        (b"\x16\x03\x01 no HTTP\r\n\r\n", 400, None),
        (post_head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
         + b"1\r\n \r\n0\r\n" + b"x: y\r\n" * (HEADERS + 1), 431, "headers_too_large"),
        (post_head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
         + b"1;" + b"a" * 200_000, 413, "body_too_large"),
        (post_head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
         + b"1\r\n \r\n" * 40_000, 413, "body_too_large"),
    ],
    ids=["url", "one header", "a header's name", "many headers", "empty lines", "no HTTP", "trailers",
         "a chunk's extension", "chunks of a byte"],
)  # fmt: skip
def test_what_is_too_large_is_refused_before_it_has_ended(
    served: Served, sent: bytes, status: int, code: str | None
) -> None:
    """The client goes on sending as long as it is let, and is still told why it is refused."""
    refused = served.service.metrics.refused[str(status)]
    with connected(served) as connection:
        connection.sendall(sent)
        answered, headers, body = read_answer(connection)
        assert (answered, headers["connection"]) == (status, "close")
        assert json.loads(body)["error"]["code"] == code
        assert read_all(connection) == b""
    assert served.service.metrics.refused[str(status)] == refused + 1
    assert served.get("/health")[0] == 200


def test_what_is_just_small_enough_is_answered(served: Served) -> None:
    many = b"".join(b"x-%d: y\r\n" % number for number in range(HEADERS - 2)) + b"Connection: close\r\n"
    large = b"X-Large: " + b"a" * (HEAD_BYTES - len(START) - 64) + b"\r\nConnection: close\r\n"
    for head in (START + many, START + large):
        with connected(served) as connection:
            connection.sendall(head + b"\r\n")
            assert read_answer(connection)[0] == 200
    assert served.get("/" + "a" * (URL_BYTES - 1))[0] == 404


def test_an_endless_header_ends_its_connection(served: Served) -> None:
    """It does not read the refusal."""
    with connected(served) as connection:
        connection.sendall(START + b"X-Large: ")
        assert sends_until_closed(connection, b"a" * 65536, 64 << 20)


def test_a_head_that_does_not_end_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """However steadily it comes; on a new connection as well as on one that has had an answer."""
    monkeypatch.setattr(connections, "HEAD_S", 0.5)
    for before in (b"", HEALTH):
        with connected(served) as connection:
            connection.sendall(before)
            if before:
                assert read_answer(connection)[0] == 200
            ended = threading.Event()

            def trickle(connection: socket.socket = connection, ended: threading.Event = ended) -> None:
                with contextlib.suppress(OSError):
                    connection.sendall(START + b"X: ")
                    while not ended.wait(0.05):
                        connection.sendall(b"a")

            trickling = threading.Thread(target=trickle)
            trickling.start()
            try:
                status, headers, body = read_answer(connection)
            finally:
                ended.set()
                trickling.join()
        assert (status, headers["connection"]) == (408, "close")
        assert json.loads(body)["error"]["code"] == "headers_too_slow"


def test_empty_lines_keep_no_connection_open(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser skips them, so nothing of a head ever comes."""
    monkeypatch.setattr(connections, "HEAD_S", 0.5)
    with connected(served) as connection:
        connection.sendall(HEALTH)
        assert read_answer(connection)[0] == 200
        assert sends_until_closed(connection, b"\r\n", 1200, pause_s=0.05)


def test_a_connection_that_sends_nothing_is_closed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.5)
    with connected(served) as connection:
        assert read_all(connection) == b""


def test_a_slow_body_takes_no_place(folder: Path) -> None:
    """As many as the engine has places, and twice as many again."""
    with (
        serving(folder, EngineOptions(kv_mib=16, block=4, running=1, waiting=1)) as small,
        contextlib.ExitStack() as open_ones,
    ):
        for _ in range(6):
            open_ones.enter_context(connected(small)).sendall(post_head(1000))
        until(lambda: len(small.service.bodies._bodies) == 6)
        assert small.service.preparing == 0
        assert small.post(TEXT, PLAIN)[0] == 200


def test_a_body_below_the_least_rate_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "GRACE_S", 0.5)
    with connected(served) as connection:
        connection.sendall(post_head(1000) + b" " * 100)
        status, headers, body = read_answer(connection)
        assert (status, headers["connection"]) == (408, "close")
        assert json.loads(body)["error"]["code"] == "body_too_slow"
        assert "100 bytes" in json.loads(body)["error"]["message"]
        assert read_all(connection) == b""


def test_a_slow_body_above_the_least_rate_is_answered(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes several times the grace."""
    monkeypatch.setattr(bodies, "GRACE_S", 0.5)
    body = json.dumps(PLAIN | {"user": "x" * 100_000}).encode()
    with connected(served) as connection:
        connection.sendall(post_head(len(body)))
        begin_s = time.monotonic()
        for at in range(0, len(body), 5000):
            connection.sendall(body[at : at + 5000])
            time.sleep(0.1)
        assert time.monotonic() - begin_s > 2 * bodies.GRACE_S
        assert read_answer(connection)[0] == 200


def test_bodies_together_have_a_bound_and_the_slowest_gives_way(served: Served) -> None:
    memory = served.service.bodies
    limit, memory.limit = memory.limit, 200_000
    try:
        with connected(served) as slow, connected(served) as quick:
            slow.sendall(post_head(150_000) + b" " * 90_000)
            until(lambda: memory.total_bytes == 90_000)
            time.sleep(1.5 * bodies.SLOWEST_S)  # its rate falls
            body = json.dumps(PLAIN).encode()
            quick.sendall(post_head(150_000) + b" " * (150_000 - len(body)))
            until(lambda: memory.total_bytes == 150_000 - len(body))
            quick.sendall(body)
            assert read_answer(quick)[0] == 200
            slow.sendall(b" " * 60_000)
            status, headers, refusal = read_answer(slow)
            assert (status, headers["retry-after"]) == (429, "1")
            assert json.loads(refusal)["error"]["code"] == "bodies_full"
    finally:
        memory.limit = limit
    until(lambda: memory.total_bytes == 0)


def test_the_oldest_idle_connection_gives_way_and_never_one_with_a_request(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 6)
    with (
        serving(folder, EngineOptions(kv_mib=16, block=4), started=False) as small,
        contextlib.ExitStack() as open_ones,
    ):
        body = json.dumps(PLAIN).encode()
        asking = open_ones.enter_context(connected(small))
        asking.sendall(post_head(len(body)) + body)
        until(lambda: small.engine.waiting == 1)
        idle = [open_ones.enter_context(connected(small)) for _ in range(5)]
        until(lambda: small.service.metrics.connections == 6)
        for _ in range(5):
            assert small.get("/health")[0] == 200  # over a new connection each time
        assert read_all(idle[0]) == b""
        assert small.metric("auras_connections_given_up_total") >= 1
        assert small.metric("auras_connections") <= 6
        small.engine.start()
        assert read_answer(asking)[0] == 200


def test_with_many_slow_bodies_the_slowest_gives_way(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 3)
    monkeypatch.setattr(connections, "SLOWEST_S", 0.0)
    with serving(folder, EngineOptions(kv_mib=16, block=4)) as small, contextlib.ExitStack() as open_ones:
        slow, slower, quick = (open_ones.enter_context(connected(small)) for _ in range(3))
        for connection, size in ((slow, 2000), (slower, 10), (quick, 90_000)):
            connection.sendall(post_head(100_000) + b" " * size)
        until(lambda: small.service.bodies.total_bytes == 92_010)
        assert small.get("/health")[0] == 200
        status, _, refusal = read_answer(slower)
        assert (status, json.loads(refusal)["error"]["code"]) == (503, "connections_full")
        body = json.dumps(PLAIN).encode()
        quick.sendall(b" " * (10_000 - len(body)) + body)
        assert read_answer(quick)[0] == 200


def test_health_and_metrics_are_answered_while_every_place_is_taken(folder: Path) -> None:
    options = EngineOptions(kv_mib=16, block=4, running=1, waiting=1)
    with serving(folder, options, started=False) as full, contextlib.ExitStack() as open_ones:
        body = json.dumps(PLAIN).encode()
        for _ in range(2):
            open_ones.enter_context(connected(full)).sendall(post_head(len(body)) + body)
        until(lambda: full.engine.waiting == 2)
        assert full.post(TEXT, PLAIN)[0] == 429
        assert [full.get(path)[0] for path in ("/health", "/metrics")] == [200, 200]


def test_pipelined_requests_are_answered_in_order_and_bounded(served: Served) -> None:
    paths = [f"/v1/models/{number}" for number in range(40)]
    sent = "".join(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n" for path in paths).encode()
    with connected(served) as connection:
        connection.sendall(sent)
        came = read_all(connection).decode()
    answered = [int(number) for number in re.findall(r"model: '(\d+)' is not served", came)]
    assert 2 <= len(answered) <= PIPELINED + 1
    assert answered == list(range(len(answered)))


def test_a_head_behind_a_body_is_whole(served: Served) -> None:
    """Both in one part: the body's bytes are none of the head's."""
    body = json.dumps(PLAIN | {"user": "x" * 200_000}).encode()
    second = json.dumps(PLAIN).encode()
    with connected(served) as connection:
        head = post_head(len(second)).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        connection.sendall(post_head(len(body)) + body + head + second)
        assert read_all(connection).count(b"HTTP/1.1 200 OK") == 2


def test_a_second_head_that_is_refused_does_not_answer_for_the_first(served: Served) -> None:
    with connected(served) as connection:
        body = json.dumps(PLAIN).encode()
        connection.sendall(post_head(len(body)) + body + b"GET /" + b"a" * (2 * URL_BYTES))
        assert read_answer(connection)[0] == 200
        assert read_all(connection) == b""


def test_a_connection_is_used_again_and_closed_when_idle(served: Served) -> None:
    with connected(served) as connection:
        for _ in range(3):
            connection.sendall(HEALTH)
            assert read_answer(connection)[0] == 200
        assert read_all(connection) == b""


def test_another_protocol_is_not_taken_up(served: Served) -> None:
    """A request is answered as if it had not asked for one, and the connection closed; what follows is not parsed. The
    parser would take a body for what follows, so a request with a body is refused."""
    for upgrade in ("websocket", "h2c"):
        more = f"Connection: Upgrade\r\nUpgrade: {upgrade}\r\n"
        with connected(served) as connection:
            connection.sendall(START + more.encode() + b"\r\n\x00\x01 no HTTP")
            status, headers, _ = read_answer(connection)
            assert (status, headers["connection"]) == (200, "close")
            assert read_all(connection) == b""
        body = json.dumps(PLAIN).encode()
        with connected(served) as connection:
            connection.sendall(post_head(len(body), more=more) + body)
            status, _, refusal = read_answer(connection)
            assert (status, json.loads(refusal)["error"]["code"]) == (400, "upgrade_not_taken")


def test_who_expects_100_continue_is_told_to_go_on_or_why_not(served: Served) -> None:
    body = json.dumps(PLAIN).encode()
    with connected(served) as connection:
        connection.sendall(post_head(len(body), more="Expect: 100-continue\r\n"))
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert read_answer(connection)[0] == 200
    with connected(served) as connection:
        connection.sendall(post_head(1 << 30, more="Expect: 100-continue\r\n"))
        status, headers, _ = read_answer(connection)
        assert (status, headers["connection"]) == (413, "close")
        assert read_all(connection) == b""


def test_a_server_that_ends_waits_for_no_slow_client(folder: Path) -> None:
    with serving(folder) as served, contextlib.ExitStack() as open_ones:
        nothing, head, body = (open_ones.enter_context(connected(served)) for _ in range(3))
        head.sendall(START)
        body.sendall(post_head(1000))
        until(lambda: len(served.service.bodies._bodies) == 1)
        ended = threading.Event()
        answers = dict[str, bytes]()

        def read(name: str, connection: socket.socket) -> None:
            answers[name] = read_all(connection)
            if len(answers) == 3:
                ended.set()

        named: dict[str, Any] = {"nothing": nothing, "head": head, "body": body}
        readers = [threading.Thread(target=read, args=each) for each in named.items()]
        for reader in readers:
            reader.start()
        begin_s = time.monotonic()
        served.shut_down()
        took_s = time.monotonic() - begin_s
        for reader in readers:
            reader.join(LONG_S)
    assert took_s < bodies.GRACE_S - 2.0
    assert answers["nothing"] == answers["head"] == b""
    assert answers["body"].startswith(b"HTTP/1.1 503 ")


def test_who_takes_nothing_of_its_answer_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request is cancelled. The answer is larger than what the kernel keeps for it."""
    monkeypatch.setattr(connections, "UNREAD_S", 0.5)
    connection_made = BoundedProtocol.connection_made

    def keep_little(self: BoundedProtocol, transport: Any) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connection_made(self, transport)

    monkeypatch.setattr(BoundedProtocol, "connection_made", keep_little)
    before = served.engine.stats.ended["cancelled"]
    message = {"role": "user", "content": "left"}
    asked = {"messages": [message], "max_tokens": 3900, "ignore_eos": True, "stream": True}
    body = json.dumps(asked | {"logprobs": True, "top_logprobs": 20}).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", served.port))
        connection.sendall(post_head(len(body), "/v1/chat/completions") + body)
        until(lambda: served.engine.stats.ended["cancelled"] == before + 1)


def test_connections_stay_below_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"soft": 1024, "hard": 1024}

    def set_limits(_which: int, pair: tuple[int, int]) -> None:
        limits["soft"], limits["hard"] = pair

    monkeypatch.setattr(resource, "getrlimit", lambda _which: (limits["soft"], limits["hard"]))
    monkeypatch.setattr(resource, "setrlimit", set_limits)
    for soft, hard in ((1024, 1 << 20), (1024, 1024), (64, 64), (1 << 20, 1 << 20)):
        limits.update(soft=soft, hard=hard)
        count, accepted_at_once = connections.connection_limits()
        assert 1 <= count <= connections.CONNECTIONS
        assert count + accepted_at_once < limits["soft"]
        assert hard < 4096 or count == connections.CONNECTIONS
