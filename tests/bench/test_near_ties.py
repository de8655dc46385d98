"""Where two answers part: whether the two best tokens were as good as equal, as a server's log probabilities say."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from auras_ros.bench.peers_vlm.near_ties import TOLERANCE, is_near_tie

BODY = json.dumps({"model": "a", "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}}).encode()


@contextmanager
def serving(answer: Any) -> Iterator[tuple[int, list[Any]]]:
    """The port, and what was asked."""
    asked = list[Any]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer(*tokens: tuple[str, float]) -> Any:
    """Each token with the distance of the second best one."""
    content = [{"token": text, "top_logprobs": [{"logprob": -1.0}, {"logprob": -1.0 - gap}]} for text, gap in tokens]
    return {"choices": [{"logprobs": {"content": content}}]}


@pytest.mark.parametrize(
    ("tokens", "one", "other", "is_one"),
    [
        ((("ab", 2.0), ("cd", TOLERANCE / 2), ("e", 2.0)), "abcde", "abxy", True),
        ((("ab", 2.0), ("cd", TOLERANCE * 2), ("e", 0.0)), "abcde", "abxy", False),
        ((("ab", 0.0), ("cd", 2.0), ("e", 0.0)), "abcde", "abxy", False),
        ((("ab", 2.0), ("cd", 0.0)), "abce", "abcf", True),  # they part within what this answer says otherwise
        ((("zz", 0.0), ("cd", 0.0)), "abcde", "abxy", False),  # this answer parts from both before
        ((("ab", 0.0),), "abcde", "abxy", False),  # and this one ends before
    ],
)
def test_where_two_answers_part(tokens: tuple[tuple[str, float], ...], one: str, other: str, is_one: bool) -> None:
    with serving(answer(*tokens)) as (port, asked):
        assert is_near_tie(port, BODY, one, other, 10.0) is is_one
    assert asked == [{"model": "a", "max_tokens": 3, "logprobs": True, "top_logprobs": 2}]


def test_an_answer_without_log_probabilities_is_named() -> None:
    with serving({"choices": [{}]}) as (port, _), pytest.raises(ValueError, match="log probabilities: "):
        is_near_tie(port, BODY, "a", "b", 10.0)
