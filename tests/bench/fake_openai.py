"""A server that streams as an OpenAI-compatible one does: canned tokens at stated intervals. A program of its own:
`python fake_openai.py PORT JSON`, or a `FakeServer` within a test."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Behaviour:
    """first_s, between_s: time to the first token and between tokens. together: tokens in one piece. word: of which a
    token is made. chunked: HTTP/1.1 with chunks. status: other than 200 refuses. fails: an error in the stream."""

    first_s: float = 0.0
    between_s: float = 0.0
    together: int = 1
    word: str = "x"
    chunked: bool = False
    status: int = 200
    fails: bool = False
    extra_prompt: int = 0


class FakeHandler(BaseHTTPRequestHandler):
    behaviour = Behaviour()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        how = self.behaviour
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(how.status)
        if how.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if how.status != 200:
            self.wfile.write(b'{"error": "busy"}')
            return
        self._event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        time.sleep(how.first_s)
        tokens = asked["max_tokens"]
        for at in range(0, tokens, how.together):
            if at:
                time.sleep(how.between_s)
            text = "".join(f" {how.word}{number}" for number in range(at, min(tokens, at + how.together)))
            self._event({"choices": [{"delta": {"content": text}}]})
            if how.fails:
                self._event({"error": {"message": "out of pages"}})
        prompt = len(json.dumps(asked["messages"])) + how.extra_prompt
        self._event({"choices": [], "usage": {"completion_tokens": tokens, "prompt_tokens": prompt}})
        self._write(b"data: [DONE]\n\n")
        if how.chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _event(self, event: dict[str, Any]) -> None:
        self._write(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _write(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data) if self.behaviour.chunked else data)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        pass


def serving(port: int, behaviour: Behaviour) -> ThreadingHTTPServer:
    handler = type("Handler", (FakeHandler,), {"behaviour": behaviour})
    if behaviour.chunked:
        handler.protocol_version = "HTTP/1.1"  # type: ignore[attr-defined]
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    return server


@contextmanager
def fake_server(behaviour: Behaviour) -> Iterator[int]:
    """Its port."""
    server = serving(0, behaviour)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    serving(int(sys.argv[1]), Behaviour(**json.loads(sys.argv[2]))).serve_forever()
