"""Requests of many adapters: whose they are, how long they are, and when they come.

A retrieval trace in the manner of the Azure LLM inference trace of 2023, which VaLoRA samples: lengths are lognormal
and arrivals come in bursts (gamma intervals). The medians are a fourth of those of its conversations, 1,020 tokens of a
prompt and 129 of an answer (Patel et al. 2024, Splitwise); a letter is a token of our models. Nothing is read from that
trace: the parameters are stated here and in every report, and everything follows from the seed.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass
from typing import Any

from auras_ros.bench.peers_vlm.workload import ENDPOINT_FIELDS, image_url

WORDS = "abcdefghijklmnopqrstuvwxyz     "


@dataclass(frozen=True)
class LoraTrace:
    """skew: the share of the most wanted adapter (VaLoRA 6.3.3); the others are equally likely. letters, tokens: of
    prompts and answers: median and sigma of the logarithm, and the most. with_image: share of requests with an image of
    image_px. burst: shape of the gamma intervals; 1 is Poisson's."""

    skew: float
    letters: tuple[float, float, int] = (256.0, 0.8, 1024)
    tokens: tuple[float, float, int] = (32.0, 0.6, 128)
    with_image: float = 0.5
    image_px: int = 168
    burst: float = 0.5

    def bodies(self, adapters: list[str], count: int, seed: str) -> list[bytes]:
        """JSON of chat requests; the first adapter is the most wanted one."""
        draw = random.Random(seed)
        return [self._body(self._adapter(adapters, draw), draw) for _ in range(count)]

    def arrivals(self, rate_hz: float, count: int, seed: str) -> list[float]:
        """Seconds after the begin, in order."""
        draw, at_s, made = random.Random(seed), 0.0, list[float]()
        for _ in range(count):
            made.append(at_s)
            at_s += draw.gammavariate(self.burst, 1 / (rate_hz * self.burst))
        return made

    def _adapter(self, adapters: list[str], draw: random.Random) -> str:
        if len(adapters) == 1 or draw.random() < self.skew:
            return adapters[0]
        return draw.choice(adapters[1:])

    def _body(self, adapter: str, draw: random.Random) -> bytes:
        letters, tokens = _length(self.letters, draw), _length(self.tokens, draw)
        content: list[dict[str, Any]] = [{"type": "text", "text": "".join(draw.choices(WORDS, k=letters))}]
        if draw.random() < self.with_image:
            url = image_url(self.image_px, draw.getrandbits(32))
            content.insert(0, {"type": "image_url", "image_url": {"url": url}})
        message = {"role": "user", "content": content}
        return json.dumps({"model": adapter, "messages": [message], "max_tokens": tokens, **ENDPOINT_FIELDS}).encode()

    def describe(self) -> str:
        words = [
            f"{name} lognormal, median {median:g}, sigma {sigma:g}, at most {most}"
            for name, (median, sigma, most) in (("letters", self.letters), ("tokens", self.tokens))
        ]
        words.append(
            f"{self.with_image:.0%} with an image of {self.image_px}², gamma intervals of shape {self.burst:g}"
        )
        return f"skew {self.skew:g}; {'; '.join(words)}"


def _length(parameters: tuple[float, float, int], draw: random.Random) -> int:
    median, sigma, most = parameters
    return max(1, min(round(draw.lognormvariate(math.log(median), sigma)), most))
