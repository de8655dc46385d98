"""What the agent publishes about each chunk on `provenance`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

INTEGERS = ("request", "origin_mono_ns", "latched_ns", "perceived_ns", "generated_ns", "published_ns")


@dataclass(frozen=True)
class ChunkTimes:
    """The life of one chunk: when its observation was made and latched, perceived, generated, published (ns on the
    host's monotonic clock), and the prompt that it answers."""

    request: int
    origin_mono_ns: int
    latched_ns: int
    perceived_ns: int
    generated_ns: int
    published_ns: int
    prompt: str = field(default="", kw_only=True)

    @classmethod
    def from_values(cls, values: Mapping[str, str]) -> ChunkTimes:
        """From the key-value pairs of a `provenance` status. Raises ValueError naming the key."""
        found = {}
        for name in INTEGERS:
            try:
                found[name] = int(values[name])
            except (KeyError, ValueError) as error:
                raise ValueError(f"provenance: {name}: expected an integer, got {values.get(name)!r}") from error
        return cls(**found, prompt=values.get("prompt", ""))


def values_of(status: Any) -> dict[str, str]:
    """The key-value pairs of a DiagnosticStatus."""
    return {pair.key: pair.value for pair in status.values}
