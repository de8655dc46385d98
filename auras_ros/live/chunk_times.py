"""What the agent publishes about each chunk on `provenance`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

INTEGERS = ("request", "origin_mono_ns", "latched_ns", "perceived_ns", "generated_ns", "published_ns")


@dataclass(frozen=True)
class ChunkTimes:
    """The life of one chunk: when its newest observation was made and latched, perceived, generated, published; and
    when each of its generation stages began, of several the first ones in frames before the latch (ns on the host's
    monotonic clock). prompt: which it answers."""

    request: int
    origin_mono_ns: int
    latched_ns: int
    perceived_ns: int
    generated_ns: int
    published_ns: int
    stage_ns: tuple[int, ...] = ()
    prompt: str = ""

    @classmethod
    def from_values(cls, values: Mapping[str, str]) -> ChunkTimes:
        """From the key-value pairs of a `provenance` status. Raises ValueError naming the key."""
        found: dict[str, Any] = {"prompt": values.get("prompt", "")}
        for name in ("stage_ns", *INTEGERS):
            given = values.get(name, "")
            try:
                if name == "stage_ns":
                    found[name] = tuple(int(ns) for ns in given.strip("[]").split(",") if ns)
                else:
                    found[name] = int(given)
            except ValueError as error:
                raise ValueError(f"provenance: {name}: expected integers, got {given!r}") from error
        return cls(**found)

    @property
    def request_ns(self) -> int:
        """From the request's beginning to its chunk."""
        return self.generated_ns - min((self.latched_ns, *self.stage_ns))


def values_of(status: Any) -> dict[str, str]:
    """The key-value pairs of a DiagnosticStatus."""
    return {pair.key: pair.value for pair in status.values}
