"""What is asked: requests whose answers are known, and the trials that a soak makes of them. All follows from a seed.

An answer must depend on nothing else in its batch, so it must be the one that the same request got alone. That is asked
of greedy answers, and of sampled ones with a seed: the engine gives each token one uniform number of the request's own.
Batches of other sizes add in another order, so where two tokens are nearly as likely either may come: greedy requests
with such a token are left out. Of a sampled one, a draw within rounding of the border between two tokens could do the
same: about one in a million tokens in float32.
"""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from auras_ros.live.soak_vlm.client import Leaving, http_bytes
from auras_ros.live.soak_vlm.hostile import CHAT, TEXT, HostileAsk, hostile

QUESTION = "is the tee on its goal which way must it turn where are how many red yellow purple black things there"
SIZES = ((96, 96), (96, 96), (64, 48), (200, 120), (1, 1))
REGEX = "(left|right|x [0-9]{1,2} y [0-9]{1,2})"
SCHEMA = {"type": "object", "properties": {"turn": {"enum": ["left", "right"]}}, "required": ["turn"]}
LONG_TOKENS = 128  # capacity is then that of a server whose answers have a usual length
SHARES = {"whole": 0.3, "streamed": 0.25, "deadline": 0.12, "left": 0.18}  # the rest is hostile
LATEST_MS = 120.0  # of deadlines and of clients that go: about as long as an answer takes


@dataclass(frozen=True)
class GivenAnswer:
    """counts: tokens of prompt and answer. late: whether the deadline cut it off."""

    text: str
    finish: str | None
    counts: tuple[int, int] | None
    late: bool


@dataclass(frozen=True)
class KnownAsk:
    """A request, and what it is answered when nothing else runs."""

    name: str
    path: str
    fields: Mapping[str, Any]
    answer: GivenAnswer | None = None

    @property
    def greedy(self) -> bool:
        return "seed" not in self.fields

    def raw(self, **more: Any) -> bytes:
        return http_bytes(self.path, json.dumps({**self.fields, **more}).encode())


@dataclass(frozen=True)
class Trial:
    """One request of the soak: one whose answer is known, or one that must be refused."""

    number: int
    kind: str
    raw: bytes
    ask: KnownAsk | None = None
    hostile: HostileAsk | None = None
    leaving: Leaving | None = None
    streamed: bool = False


def asks(seed: int, count: int, grammar: bool, long: bool = False) -> list[KnownAsk]:
    """grammar: whether the server can hold an answer to one. long: each has an image and LONG_TOKENS tokens."""
    made = []
    for number in range(count):
        chance = random.Random(f"{seed} {'long' if long else 'ask'} {number}")
        question = " ".join(chance.choices(QUESTION.split(), k=chance.randrange(3, 12))) + "?"
        images = 1 if long else chance.choice([0, 0, 1, 1, 1, 2, 3])
        fields: dict[str, Any] = {"max_tokens": chance.randrange(4, 24), "ignore_eos": chance.random() < 0.8}
        if long:
            fields |= {"max_tokens": LONG_TOKENS, "ignore_eos": True}
        else:
            fields |= _settings(chance, grammar)
        if not images and chance.random() < 0.6:
            made.append(KnownAsk(f"{number}: completion", TEXT, {"prompt": question, **fields}))
            continue
        content: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": _picture(chance)}} for _ in range(images)
        ]
        messages = [{"role": "user", "content": [*content, {"type": "text", "text": question}]}]
        if chance.random() < 0.3:  # a beginning that many have
            messages.insert(0, {"role": "system", "content": [{"type": "text", "text": QUESTION}]})
        made.append(KnownAsk(f"{number}: chat with {images} images", CHAT, {"messages": messages, **fields}))
    return made


def _settings(chance: random.Random, grammar: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {"temperature": 0}
    if chance.random() < 0.4:
        fields = {"temperature": chance.choice([0.7, 1.0, 1.5]), "seed": chance.randrange(1 << 32)}
        fields |= chance.choice([{}, {"top_p": 0.9}, {"top_k": 20}, {"min_p": 0.05}])
    if chance.random() < 0.2:
        fields["repetition_penalty"] = 1.3
    if chance.random() < 0.2:
        fields["stop"] = chance.choice([["e"], ["zz", " y"], ["7", "the"]])
    elif grammar and chance.random() < 0.25:
        fields |= chance.choice([{"guided_regex": REGEX}, {"structured_outputs": {"json": SCHEMA}}])
    return fields


def _picture(chance: random.Random) -> str:
    """A data URL of coloured rectangles."""
    from PIL import Image, ImageDraw

    width, height = chance.choice(SIZES)
    made = Image.new("RGB", (width, height), "white")
    for _ in range(6):
        left, top = chance.randrange(width), chance.randrange(height)
        box = (left, top, left + chance.randrange(40), top + chance.randrange(40))
        ImageDraw.Draw(made).rectangle(box, fill=chance.choice(["red", "yellow", "purple", "black", "green"]))
    file, form = io.BytesIO(), chance.choice(["PNG", "JPEG", "WEBP"])
    made.save(file, form)
    return f"data:image/{form.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


def trials(seed: int, count: int, known: Sequence[KnownAsk], body_mib: int) -> list[Trial]:
    """Every hostile kind comes once before any comes again."""
    chance, refused = random.Random(f"{seed} trials"), list(hostile(random.Random(), body_mib))
    kinds = chance.choices([*SHARES, "hostile"], [*SHARES.values(), 1 - sum(SHARES.values())], k=count)
    turns = iter(chance.sample(refused, len(refused)) * (count // len(refused) + 1))
    return [_trial(seed, number, next(turns) if kind == "hostile" else kind, known, body_mib)
            for number, kind in enumerate(kinds)]  # fmt: skip


def _trial(seed: int, number: int, kind: str, known: Sequence[KnownAsk], body_mib: int) -> Trial:
    chance = random.Random(f"{seed} trial {number}")
    if kind not in SHARES:
        bad = hostile(chance, body_mib)[kind]
        return Trial(number, f"hostile: {kind}", bad.raw, hostile=bad)
    ask = chance.choice([each for each in known if kind == "whole" or "stop" not in each.fields])
    more: dict[str, Any] = {"priority": chance.randrange(3)}
    streamed = kind == "streamed" or (kind in ("deadline", "left") and chance.random() < 0.5)
    if streamed:
        more |= {"stream": True, "stream_options": {"include_usage": True}}
    if kind == "deadline":
        more["deadline_ms"] = LATEST_MS * chance.random() + 0.01
    leaving = None
    if kind == "left":
        kind, leaving = _leaving(chance, streamed)
    return Trial(number, kind, ask.raw(**more), ask, leaving=leaving, streamed=streamed)


def _leaving(chance: random.Random, streamed: bool) -> tuple[str, Leaving]:
    abrupt, point = chance.random() < 0.5, chance.random()
    if point < 0.2:
        return "left while sending", Leaving(sent=0.99 * chance.random(), abrupt=abrupt)
    if point < 0.4:
        return "left while prepared", Leaving(after_s=0.003 * chance.random(), abrupt=abrupt)
    if streamed:
        return "left the stream", Leaving(events=chance.randrange(1, 6), abrupt=abrupt)
    return "left while it ran", Leaving(after_s=LATEST_MS / 1e3 * chance.random(), abrupt=abrupt)
