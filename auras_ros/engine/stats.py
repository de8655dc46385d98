"""What an engine has done so far, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class EngineStats:
    """ended: requests by reason. tokens: of answers. images: encoded. image_hits: taken from the cache."""

    ended: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    images: int = 0
    image_hits: int = 0
