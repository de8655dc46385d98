"""Two sides' answers to one request that are not equal: whether the two best tokens were as good as equal where the
answers part, by the log probabilities that a server gives."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from auras_ros.bench.peers_vlm.client import HOST, PATH
from auras_ros.bench.peers_vlm.equality import parting

TOLERANCE = 1e-3  # of two log probabilities in float32: what another order of summation may turn around


def is_near_tie(port: int, body: bytes, one: str, other: str, limit_s: float) -> bool:
    """one, other: the texts of two answers to the streamed request. Asks the server on the port once more; False too if
    it answers otherwise before they part. Raises OSError, and ValueError for what is no answer."""
    asked = {name: value for name, value in json.loads(body).items() if not name.startswith("stream")}
    data = json.dumps(asked | {"logprobs": True, "top_logprobs": 2}).encode()
    request = urllib.request.Request(f"http://{HOST}:{port}{PATH}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=limit_s) as response:
        found = json.load(response)
    try:
        return _parts_at_a_tie(found["choices"][0]["logprobs"]["content"], one, other)
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"log probabilities: {json.dumps(found)[:300]}") from error


def _parts_at_a_tie(tokens: Sequence[Mapping[str, Any]], one: str, other: str) -> bool:
    """Equal texts are equal tokens, as every token of our models has a text of its own."""
    common, said = one[: parting(one, other)], ""
    for token in tokens:
        if len(said + token["token"]) > len(common):
            best, second = (each["logprob"] for each in token["top_logprobs"][:2])
            return common.startswith(said) and best - second <= TOLERANCE
        said += token["token"]
    return False
