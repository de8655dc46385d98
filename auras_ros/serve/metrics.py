"""Counts and times for Prometheus, in its text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from auras_ros.engine.request import Answer
from auras_ros.engine.stats import EngineSnapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
FINISHES = ("stop", "length", "cancelled", "deadline", "error")


class TimeHistogram:
    """Seconds, counted by upper bounds."""

    def __init__(self) -> None:
        self._counts = [0] * (len(SECONDS) + 1)
        self._sum = 0.0

    def observe(self, taken_ns: int) -> None:
        self._counts[bisect_left(SECONDS, taken_ns / 1e9)] += 1
        self._sum += taken_ns / 1e9

    def lines(self, name: str) -> Iterator[str]:
        below = 0
        for bound, count in zip((*map(str, SECONDS), "+Inf"), self._counts, strict=True):
            below += count
            yield f'{name}_bucket{{le="{bound}"}} {below}'
        yield f"{name}_sum {self._sum!r}"
        yield f"{name}_count {below}"


class ServerMetrics:
    """What the server itself has seen; the engine counts the rest."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        # Connections that are open, and those that were closed because there were too many.
        self.connections = 0
        self.given_up_connections = 0
        self._first, self._between, self._whole = TimeHistogram(), TimeHistogram(), TimeHistogram()

    def observe(self, answer: Answer) -> None:
        """An answer that has ended; times that it did not reach are not counted."""
        times, tokens = answer.usage.timings, len(answer.tokens)
        if times.first_token_ns:
            self._first.observe(times.first_token_ns - times.arrived_ns)
        if tokens > 1:
            self._between.observe((times.ended_ns - times.first_token_ns) // (tokens - 1))
        if answer.finish in ("stop", "length"):
            self._whole.observe(times.ended_ns - times.arrived_ns)

    def text(self, engine: EngineSnapshot, preparing: int, adapters: int) -> str:
        """preparing: requests that are being read and have not reached the engine. adapters: that can be asked for."""
        return "\n".join(self._lines(engine, preparing, adapters)) + "\n"

    def _lines(self, engine: EngineSnapshot, preparing: int, adapters: int) -> Iterator[str]:
        stats = engine.stats
        ended = {f'finish="{each}"': stats.ended[each] for each in FINISHES}
        yield from _family("requests_total", "counter", "Requests that have ended, by why", ended)
        refused = {f'status="{each}"': count for each, count in sorted(self.refused.items())}
        yield from _family("refused_total", "counter", "Requests that were refused, by HTTP status", refused)
        for name, text, count in (
            ("connections_given_up_total", "Connections closed because there were too many", self.given_up_connections),
            ("generated_tokens_total", "Tokens of answers", stats.tokens),
            ("prompt_tokens_total", "Tokens of prompts of requests that have ended", stats.prompt_tokens),
            ("cached_tokens_total", "Those of them whose keys and values were there already", stats.cached_tokens),
            ("images_total", "Images encoded", stats.images),
            ("image_hits_total", "Images whose embeddings were there already", stats.image_hits),
            ("preemptions_total", "How often a request gave its blocks back", stats.preemptions),
            ("adapter_loads_total", "Adapters read into memory", engine.adapters.loads),
            ("adapter_load_seconds_total", "Time that this took, beside the forwards", engine.adapters.load_s),
            ("adapter_evictions_total", "Of these, those in the place of another", engine.adapters.evictions),
            ("adapter_hits_total", "Requests for which no adapter had to be read", engine.adapters.hits),
        ):
            yield from _family(name, "counter", text, {"": count})
        for name, text, value in (
            ("connections", "Connections that are open", self.connections),
            ("requests_preparing", "Requests that are being read, before the engine has them", preparing),
            ("requests_open", "Requests that the engine has accepted and not ended", engine.open),
            ("requests_running", "Requests in one of the stages", engine.running),
            ("requests_waiting", "Requests that were accepted and wait", engine.waiting),
            ("blocks_in_use_ratio", "Share of the blocks of keys and values that requests own", engine.blocks_in_use),
            ("adapters", "LoRA adapters that requests can name as their model", adapters),
        ):
            yield from _family(name, "gauge", text, {"": value})
        for name, text, times in (
            ("time_to_first_token_seconds", "From arrival at the engine to the first token", self._first),
            ("time_per_output_token_seconds", "Between tokens; the mean of each request", self._between),
            ("request_seconds", "From arrival at the engine to the end, of answers that were finished", self._whole),
        ):
            yield from _head(name, "histogram", text)
            yield from times.lines(f"auras_{name}")


def _head(name: str, kind: str, text: str) -> Sequence[str]:
    return f"# HELP auras_{name} {text}", f"# TYPE auras_{name} {kind}"


def _family(name: str, kind: str, text: str, values: Mapping[str, float]) -> Iterator[str]:
    yield from _head(name, kind, text)
    for labels, value in values.items():
        yield f"auras_{name}{{{labels}}} {value}" if labels else f"auras_{name} {value}"
