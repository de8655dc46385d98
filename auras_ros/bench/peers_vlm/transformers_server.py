"""transformers' `generate` behind a small OpenAI-compatible server: one request after another, or static batches.

Runs in the peers' environment: `python transformers_server.py FOLDER --port N --batch N`, and imports nothing of this
package. `generate` is used as its users do: float32, sdpa, its KV cache, no gradients. Every token is sent as soon as
it is made, in batches too. A batch is what waits when the one before it ends, and what comes within a short moment:
otherwise eight clients that ask again at once would be answered one, then seven, at a time. Its rows that have enough
tokens are computed until the longest one has.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import queue
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch

GATHER_S = 0.02


class Waiting:
    """A request, and the queue of its tokens' texts; None ends it, an exception's text fails it."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.tokens = int(asked["max_tokens"])
        self.images: list[Any] = []
        self.messages = [self._message(each) for each in asked["messages"]]
        self.prompt_tokens = 0
        self.made = 0
        self.texts: queue.SimpleQueue[str | Exception | None] = queue.SimpleQueue()

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        from PIL import Image

        parts: list[dict[str, Any]] = []
        content = message["content"]
        for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            if part["type"] == "image_url":
                data = base64.b64decode(part["image_url"]["url"].partition("base64,")[2])
                self.images.append(Image.open(io.BytesIO(data)).convert("RGB"))
                parts.append({"type": "image"})
            else:
                parts.append({"type": "text", "text": part["text"]})
        return {"role": message["role"], "content": parts}

    def token(self, text: str) -> None:
        if self.made < self.tokens:
            self.made += 1
            self.texts.put(text)
            if self.made == self.tokens:
                self.texts.put(None)


class TokenStreamer:
    """What `generate` gives its tokens to: first the prompts, then a token of each row at a time."""

    def __init__(self, rows: list[Waiting], tokenizer: Any) -> None:
        self._rows, self._tokenizer, self._prompt = rows, tokenizer, True

    def put(self, ids: torch.Tensor) -> None:
        if self._prompt:
            self._prompt = False
            return
        for row, token in zip(self._rows, ids.reshape(-1).tolist(), strict=True):
            row.token(self._tokenizer.decode([token]))

    def end(self) -> None:
        pass


class Generator:
    def __init__(self, folder: Path, batch: int) -> None:
        import transformers

        library: Any = transformers
        self.processor = library.AutoProcessor.from_pretrained(folder)
        self.processor.tokenizer.padding_side = "left"
        self.model = library.AutoModelForImageTextToText.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="sdpa"
        ).eval()
        self.waiting: queue.SimpleQueue[Waiting] = queue.SimpleQueue()
        self._batch = batch

    def run(self) -> None:
        while True:
            rows = self._next()
            try:
                self._generate(rows)
            except Exception as error:  # noqa: BLE001  it goes to all who wait
                for row in rows:
                    row.texts.put(error)

    def _next(self) -> list[Waiting]:
        rows = [self.waiting.get()]
        until_s = time.monotonic() + GATHER_S
        while len(rows) < self._batch:
            try:
                rows.append(self.waiting.get(timeout=max(0.0, until_s - time.monotonic())))
            except queue.Empty:
                break
        return rows

    @torch.inference_mode()
    def _generate(self, rows: list[Waiting]) -> None:
        texts = [
            self.processor.apply_chat_template(row.messages, add_generation_prompt=True, tokenize=False) for row in rows
        ]
        images = [image for row in rows for image in row.images]
        inputs = self.processor(text=texts, images=images or None, padding=len(rows) > 1, return_tensors="pt")
        for row, mask in zip(rows, inputs["attention_mask"], strict=True):
            row.prompt_tokens = int(mask.sum())
        self.model.generate(
            **inputs,
            max_new_tokens=max(row.tokens for row in rows),
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            streamer=TokenStreamer(rows, self.processor.tokenizer),
        )


class CompletionHandler(BaseHTTPRequestHandler):
    generator: Generator

    def do_GET(self) -> None:
        self._headers("application/json")
        self.wfile.write(b"{}")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        row = Waiting(asked)
        self.generator.waiting.put(row)
        self._headers("text/event-stream")
        while (text := row.texts.get()) is not None:
            if isinstance(text, Exception):
                self._send({"error": {"message": repr(text)}})
                return
            self._send({"choices": [{"index": 0, "delta": {"content": text}}]})
        usage = {"prompt_tokens": row.prompt_tokens, "completion_tokens": row.made}
        self._send({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _headers(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def _send(self, event: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        pass


class CompletionServer(ThreadingHTTPServer):
    request_queue_size = 64


def main() -> None:
    import threading

    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    CompletionHandler.generator = Generator(options.folder, options.batch)
    server = CompletionServer(("127.0.0.1", options.port), CompletionHandler)
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    CompletionHandler.generator.run()


if __name__ == "__main__":
    main()
