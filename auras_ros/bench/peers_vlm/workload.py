"""The requests that all sides get: images and prompts of stated sizes, answers of stated lengths, arrivals by Poisson.

Everything follows from the seed. No image and no prompt comes twice, as no side may answer from a cache.
"""

from __future__ import annotations

import base64
import io
import json
import random
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ENDPOINT_FIELDS = {"temperature": 0.0, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}


@dataclass(frozen=True)
class Shape:
    """image_px: the image's side, square; with_image: the share of requests that have one. letters: of a prompt's text,
    from and to. tokens: of an answer, from and to."""

    image_px: int
    with_image: float
    letters: tuple[int, int]
    tokens: tuple[int, int]


def bodies(model: str, shape: Shape, count: int, seed: str) -> list[bytes]:
    """JSON of `count` requests for chat completions. seed: a text, another one for every window."""
    draw = random.Random(seed)
    return [_body(model, shape, draw) for _ in range(count)]


def arrivals(rate_hz: float, count: int, seed: str) -> list[float]:
    """Seconds after the begin, in order."""
    draw, at_s, made = random.Random(seed), 0.0, list[float]()
    for _ in range(count):
        made.append(at_s)
        at_s += draw.expovariate(rate_hz)
    return made


def _body(model: str, shape: Shape, draw: random.Random) -> bytes:
    letters, tokens = draw.randint(*shape.letters), draw.randint(*shape.tokens)
    words = "".join(draw.choices(string.ascii_lowercase + "     ", k=letters))
    content: list[dict[str, Any]] = [{"type": "text", "text": f"what is on the table? {words}"}]
    if draw.random() < shape.with_image:
        content.insert(0, {"type": "image_url", "image_url": {"url": image_url(shape.image_px, draw.getrandbits(32))}})
    message = {"role": "user", "content": content}
    return json.dumps({"model": model, "messages": [message], "max_tokens": tokens, **ENDPOINT_FIELDS}).encode()


def image_url(side: int, seed: int) -> str:
    """A PNG of coloured squares as a data URL."""
    from PIL import Image

    squares = np.random.default_rng(seed).integers(0, 256, (side // 14, side // 14, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(squares.repeat(14, 0).repeat(14, 1)).save(file, "PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def describe(shape: Shape) -> str:
    image = f"{shape.with_image:.0%} with an image of {shape.image_px}²"
    return f"{image}, texts of {_range(shape.letters)} letters, answers of {_range(shape.tokens)} tokens"


def _range(given: Sequence[int]) -> str:
    low, high = given
    return str(low) if low == high else f"{low} to {high}"
