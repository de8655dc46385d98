"""How long forwards take, alone and beside one another, for each split of the device: what planner and simulation read.

Kept per device and model as JSON. Milliseconds.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from auras_ros.number_checks import is_int, is_number, shown
from auras_ros.text_file import MEBIBYTE, read_text_file

MOST_BYTES = MEBIBYTE
MOST_MS, MOST_UNITS, MOST_TOKENS = 1e9, 4096, 1 << 20


@dataclass(frozen=True)
class CorunTimes:
    """Two stages at once. vision, prefill: beside decode; decode_by_vision, decode_by_prefill: one decode of a single
    request beside them."""

    vision: float
    prefill: float
    decode_by_vision: float
    decode_by_prefill: float


@dataclass(frozen=True)
class StageProfile:
    """units: of the device. vision: of one image. prefill: of so many tokens in one forward, alone; between two entries
    it is linear. prompt: tokens of the prompt that `corun` prefills. decode: of one request, alone; decode_row: for
    each further one. token_row: for each request that decodes within a prefill. corun: by units of decode's part.
    shared: on the whole device, without a partition. Raises ValueError, naming the field."""

    device: str
    model: str
    units: int
    vision: float
    prefill: Mapping[int, float]
    prompt: int
    decode: float
    decode_row: float
    token_row: float
    corun: Mapping[int, CorunTimes]
    shared: CorunTimes

    def __post_init__(self) -> None:
        for name, time in self._times():
            if not is_number(time) or not 0 <= time <= MOST_MS:
                raise ValueError(f"profile: {name}: {shown(time)} is not a time")
            if time == 0 and name not in ("decode_row", "token_row"):
                raise ValueError(f"profile: {name}: a time of 0")
        if not is_int(self.units) or not 1 <= self.units <= MOST_UNITS:
            raise ValueError(f"profile: units: {shown(self.units)} is not a number from 1 to {MOST_UNITS}")
        if self.prefill and max(self.prefill) > MOST_TOKENS:
            raise ValueError(f"profile: prefill: {shown(max(self.prefill))} tokens, at most {MOST_TOKENS}")
        if not is_int(self.prompt) or self.prompt not in self.prefill:
            raise ValueError(f"profile: prefill: no time for the prompt of {shown(self.prompt)} tokens")
        if min(self.prefill) < 1:
            raise ValueError(f"profile: prefill: {min(self.prefill)} tokens")
        bad = [size for size in self.corun if not 0 < size < self.units]
        if bad:
            raise ValueError(f"profile: corun: {bad[0]} units leave nothing, of {self.units}")

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted(self.corun))

    def prefill_ms(self, tokens: int) -> float:
        """One forward of so many tokens, alone."""
        sizes = sorted(self.prefill)
        if len(sizes) == 1 or tokens <= sizes[0]:
            return self.prefill[sizes[0]] if tokens <= sizes[0] else self.prefill[sizes[0]] * tokens / sizes[0]
        at = min(bisect_left(sizes, tokens), len(sizes) - 1)
        low, high = sizes[at - 1], sizes[at]
        time = self.prefill[low] + (tokens - low) / (high - low) * (self.prefill[high] - self.prefill[low])
        return max(time, self.prefill[high]) if tokens > high else time

    def decode_ms(self, rows: int) -> float:
        """One decode of so many requests, alone."""
        return self.decode + (rows - 1) * self.decode_row

    def _times(self) -> Iterator[tuple[str, float]]:
        """Every time with its name."""
        yield from ((name, getattr(self, name)) for name in ("vision", "decode", "decode_row", "token_row"))
        yield from ((f"prefill: {tokens}", time) for tokens, time in self.prefill.items())
        for where, times in (("shared", self.shared), *((f"corun: {size}", each) for size, each in self.corun.items())):
            yield from ((f"{where}: {name}", time) for name, time in vars(times).items())

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def read_profile(path: Path) -> StageProfile:
    """Raises ValueError, naming the file and what is wrong with it."""
    try:
        values: dict[str, Any] = json.loads(read_text_file(path, MOST_BYTES))
        values["prefill"] = {int(size): each for size, each in values["prefill"].items()}
        values["corun"] = {int(size): CorunTimes(**each) for size, each in values["corun"].items()}
        return StageProfile(**{**values, "shared": CorunTimes(**values["shared"])})
    except (OSError, KeyError, TypeError, AttributeError, ValueError, RecursionError, OverflowError) as error:
        raise ValueError(f"{path}: not a profile: {error}") from error
