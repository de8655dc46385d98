"""Which stage runs next, and for which requests. A scheduler sees the queues and changes nothing."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from auras_ros.engine.active import ActiveRequest
from auras_ros.lora.slots import Resident

Stage = Literal["vision", "prefill", "decode"]
NEWEST = 0.1  # weight of the newest decode in a mean
MOST_MISSED = 256  # adapters of which that is kept
PRODUCT_SHARE = 0.25  # of a forward's time: about what a product of adapters takes for each of its tokens
STAGES: tuple[Stage, ...] = ("vision", "prefill", "decode")
DECODER: tuple[Stage, ...] = ("prefill", "decode")  # stages of the decoder


class StageQueues(dict[Stage, list[ActiveRequest]]):
    """The requests of each stage, in their order."""

    def __init__(self) -> None:
        super().__init__({stage: [] for stage in STAGES})

    def everyone(self) -> list[ActiveRequest]:
        return [each for queue in self.values() for each in queue]

    def move(self, active: ActiveRequest, stage: Stage | None) -> None:
        """To this stage, and out of any other."""
        for name, queue in self.items():
            if active in queue:
                if name == stage:
                    return
                queue.remove(active)
        if stage is not None:
            insort(self[stage], active, key=lambda each: each.order)


@dataclass(frozen=True)
class Dispatch:
    """One forward of a stage. counts: how many tokens of each request, except of vision; a prefill may have requests
    that decode, with one token each. image: of vision, which one of the request's. split: units of decode's part of
    the device, the other stages run on the rest; None: on the whole device. merged: the adapter that is in the weights
    meanwhile (VaLoRA 4.4); the same one for two forwards that run side by side."""

    stage: Stage
    requests: tuple[ActiveRequest, ...]
    counts: tuple[int, ...] = ()
    image: int = 0
    split: int | None = None
    merged: Resident | None = None


def products(dispatch: Dispatch, merged: Resident | None) -> int:
    """Adapters' products that its tokens take with this adapter in the weights: none for its own, one to add an adapter
    and one to take the merged one away (the deLoRA branch, VaLoRA 4.4.2)."""
    return sum(
        count * ((each.resident is not None) + (merged is not None))
        for each, count in zip(dispatch.requests, dispatch.counts, strict=True)
        if each.resident != merged
    )


@dataclass
class LoraState:
    """What adapters' policies look at. merged: the adapter in the weights. summed: whose weights are computed, so that
    any forward can have them: one for each copy, the last used one last; None: nobody's yet. forward_ns: what the last
    decode took; switch_ns: the last computation of an adapter's weights. chosen: of the requests that wait, those that
    may run; None: all. decodes_ns: what decodes of so many rows have taken in the mean, with products of adapters
    (True) and without. missed_ns: by an adapter's digest, what its weights would have spared in the place of the
    longest unused ones, since these copies are as they are."""

    merged: Resident | None = None
    summed: tuple[Resident | None, ...] = (None,)
    forward_ns: int = 0
    switch_ns: int = 0
    chosen: frozenset[int] | None = None
    decodes_ns: dict[tuple[int, bool], float] = field(default_factory=dict)
    missed_ns: dict[str, float] = field(default_factory=dict)

    def ran(self, dispatch: Dispatch, taken_ns: int) -> None:
        """A forward of the decoder."""
        token_ns, (oldest, *kept) = PRODUCT_SHARE * taken_ns / sum(dispatch.counts), self.summed
        plain = min(products(dispatch, each) for each in (None, *kept))
        least = min(plain, products(dispatch, oldest))
        present = {each.resident.digest: each.resident for each in dispatch.requests if each.resident is not None}
        for digest in {*present, *self.missed_ns}:
            own = min(plain, products(dispatch, present[digest])) if digest in present else plain
            missed_ns = self.missed_ns.pop(digest, 0.0) + (least - own) * token_ns
            if missed_ns > 0:
                self.missed_ns[digest] = missed_ns
        while len(self.missed_ns) > MOST_MISSED:  # adapters that come and go
            del self.missed_ns[min(self.missed_ns, key=lambda each: self.missed_ns[each])]
        if dispatch.stage == "decode":
            self.forward_ns = taken_ns
            key = len(dispatch.requests), products(dispatch, dispatch.merged) > 0
            before_ns = self.decodes_ns.setdefault(key, taken_ns)
            self.decodes_ns[key] = before_ns + NEWEST * (taken_ns - before_ns)

    @property
    def full(self) -> bool:
        """Whether another adapter's weights would take the place of some."""
        return None not in self.summed

    def used(self, merged: Resident) -> None:
        """Its weights are the last used ones, and are computed if they were not."""
        if merged in self.summed:
            self.summed = (*(each for each in self.summed if each != merged), merged)
            return
        self.missed_ns = {} if self.full else self.missed_ns
        self.missed_ns.pop(merged.digest, None)
        self.summed = (*self.summed[1:], merged)

    def products_ns(self, rows: int) -> float | None:
        """What adapters' products cost a decode of so many rows; None if that is not known yet."""
        with_them, without = (self.decodes_ns.get((rows, each)) for each in (True, False))
        return None if with_them is None or without is None else max(with_them - without, 0.0)


@dataclass
class EngineState:
    """The requests of each stage, and what runs. remaining: tokens that a prefill has yet to compute. fits: whether
    there are blocks for a prefill of these requests, so many tokens of each. last: the stage of the last dispatch.
    now_ns: the engine's clock. lora: what adapters' policies look at."""

    remaining: Callable[[ActiveRequest], int]
    fits: Callable[[Sequence[ActiveRequest], Sequence[int]], bool]
    queues: StageQueues = field(default_factory=StageQueues)
    running: dict[Stage, Dispatch] = field(default_factory=dict)
    last: Stage | None = None
    now_ns: int = 0
    lora: LoraState = field(default_factory=LoraState)

    def allowed(self, stage: Stage) -> list[ActiveRequest]:
        """Those of the stage that an adapters' policy has chosen; all without one."""
        queue, chosen = self.queues[stage], self.lora.chosen
        return queue if chosen is None else [each for each in queue if each.number in chosen]

    def ready(self, stage: Stage) -> list[ActiveRequest]:
        """Those that wait for the stage, if it is idle."""
        return [] if stage in self.running else [each for each in self.allowed(stage) if not each.busy]

    def waited_ns(self, active: ActiveRequest) -> int:
        """Since it last ran, or came."""
        return self.now_ns - (active.ran_ns or active.timings.arrived_ns)

    @property
    def pending(self) -> int:
        """Requests that are in vision or prefill, running ones included (Nova III-C2: the load)."""
        return len(self.queues["vision"]) + len(self.queues["prefill"])


class StageScheduler(Protocol):
    def next(self, state: EngineState) -> Dispatch | None:
        """What to start now; None if nothing can be."""
        ...


def decode_all(state: EngineState, split: int | None = None) -> Dispatch | None:
    """One token of every request that decodes and does not run."""
    ready = tuple(state.ready("decode"))
    return Dispatch("decode", ready, (1,) * len(ready), split=split) if ready else None


def prefill_up_to(state: EngineState, budget: int, chunked: bool) -> Dispatch | None:
    """The next prompts, packed up to `budget` tokens; the first one at least. chunked: none has more than that."""
    chosen, counts, left = list[ActiveRequest](), list[int](), budget
    for each in state.ready("prefill"):
        count = state.remaining(each)
        if chunked:
            count = min(count, left)
        if (chosen and count > left) or count == 0 or not state.fits([*chosen, each], [*counts, count]):
            break
        chosen.append(each)
        counts.append(count)
        left -= count
    return Dispatch("prefill", tuple(chosen), tuple(counts)) if chosen else None


def next_image(state: EngineState) -> Dispatch | None:
    """One image of the first request that waits for vision."""
    waiting = state.ready("vision")
    return Dispatch("vision", (waiting[0],), image=waiting[0].unseen()[0]) if waiting else None


def joined_prefill(state: EngineState, budget: int) -> Dispatch | None:
    """The next prompts or a part of one, and with them a token of every request that decodes: up to `budget` tokens in
    one forward (chunked prefill, Agrawal et al. 2024)."""
    decode = decode_all(state)
    rows = 0 if decode is None else len(decode.requests)
    chunk = prefill_up_to(state, max(budget - rows, 1), chunked=True)
    if chunk is None or decode is None:
        return chunk
    return replace(chunk, requests=decode.requests + chunk.requests, counts=decode.counts + chunk.counts)


class InterleavedScheduler:
    """First come, first served within a stage. Stages take turns, and between any two of the others every request that
    decodes makes a token, so the time between tokens is that of one vision or prefill at most; of those two prefill
    goes first, as it makes a token. chunked: the token is made within the prefill (`joined_prefill`), and the parts of
    a prompt are of one size: a small rest would read all weights for little."""

    def __init__(self, prefill_tokens: int, chunked: bool) -> None:
        self._budget, self._chunked = prefill_tokens, chunked
        self._before_decode = ("vision",) if chunked else ("vision", "prefill")

    def next(self, state: EngineState) -> Dispatch | None:
        if state.running:
            return None
        decode = decode_all(state)
        if decode is not None and state.last in self._before_decode:
            return decode
        if self._chunked:
            prefill = joined_prefill(state, self._part(state))
        else:
            prefill = prefill_up_to(state, self._budget, chunked=False)
        return prefill or next_image(state) or decode

    def _part(self, state: EngineState) -> int:
        """Tokens of the next prefill: the first prompt's rest in as few equal parts as the budget allows."""
        first = next(iter(state.ready("prefill")), None)
        rows = len(state.ready("decode"))
        parts = 1 if first is None else -(-state.remaining(first) // max(self._budget - rows, 1))
        return self._budget if first is None or parts < 2 else -(-state.remaining(first) // parts) + rows
