"""The engine on a virtual clock: its own code and its schedulers, but forwards only take the time that a profile says.

Two forwards at once slow each other down from the moment at which the second one begins until the first one ends, so
each has a share of its work done, and its speed changes with what runs beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import torch

from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.checkpoints.vlm.open import VlmCheckpoint
from auras_ros.checkpoints.vlm.pictures import PreparedImage
from auras_ros.clock import VirtualClock
from auras_ros.device.reservation import FrameReservation
from auras_ros.engine.engine import Engine
from auras_ros.engine.forwards import ForwardLog
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.profile import CorunTimes, StageProfile
from auras_ros.engine.reply import Reply
from auras_ros.engine.request import AnswerToken, Delta, RequestUsage, VlmRequest
from auras_ros.engine.scheduler import Dispatch, StageScheduler
from auras_ros.engine.tables import EngineMemory
from auras_ros.engine.workers import Outcome
from auras_ros.models.paged_kv import PagedKVCache
from auras_ros.models.vlm import ImageEmbeddings

TOKEN, VOCABULARY = 1, 2
MOST_LENGTH = 1 << 20


@dataclass(frozen=True)
class Arrival:
    """A request of a trace. tokens: of its answer. prompt: tokens, the image's included; the profile's unless given."""

    at_s: float
    tokens: int
    prompt: int | None = None


@dataclass
class Served:
    """What became of an arrival. tokens_ns: when each token of the answer came."""

    arrival: Arrival
    reply: Reply
    tokens_ns: list[int] = field(default_factory=list)

    @property
    def usage(self) -> RequestUsage:
        return self.reply.result(0).usage


@dataclass
class Forward:
    """One that runs. left: share of its work."""

    dispatch: Dispatch
    began_ns: int
    future: Future[Outcome] = field(default_factory=Future)
    left: float = 1.0


class SimulatedForwards:
    """Forwards that only take time. log: of each, when it began and ended, ns."""

    def __init__(self, profile: StageProfile, clock: VirtualClock) -> None:
        self._profile, self._clock = profile, clock
        self._running: list[Forward] = []
        self._since_ns = 0
        self.log: ForwardLog = []

    def submit(self, dispatch: Dispatch) -> Future[Outcome]:
        self._proceed()
        self._running.append(Forward(dispatch, self._clock.now_ns()))
        return self._running[-1].future

    def close(self) -> None: ...

    def next_end_ns(self) -> int | None:
        """When the next forward ends, if nothing else begins before."""
        self._proceed()
        ends = [each.left * duration_ms(self._profile, each.dispatch, self._others(each)) for each in self._running]
        return self._clock.now_ns() + max(round(min(ends) * 1e6), 1) if ends else None

    def advance(self) -> None:
        """Ends what has ended by now."""
        self._proceed()
        for forward in [each for each in self._running if each.left <= 1e-9]:
            self._running.remove(forward)
            self.log.append((forward.dispatch, forward.began_ns, self._clock.now_ns()))
            forward.future.set_result(_outcome(forward.dispatch))

    def _proceed(self) -> None:
        now_ns = self._clock.now_ns()
        passed_ms = (now_ns - self._since_ns) / 1e6
        self._since_ns = now_ns
        if passed_ms:
            speeds = [1 / duration_ms(self._profile, each.dispatch, self._others(each)) for each in self._running]
            for forward, speed in zip(self._running, speeds, strict=True):
                forward.left -= passed_ms * speed

    def _others(self, forward: Forward) -> list[Dispatch]:
        return [each.dispatch for each in self._running if each is not forward]


def duration_ms(profile: StageProfile, dispatch: Dispatch, others: Sequence[Dispatch]) -> float:
    """A forward beside others. One that has a part of the device alone takes as long as beside a decode there; two
    whose parts overlap take as long as without a partition; vision and prefill, both bound by arithmetic, take twice as
    long beside each other."""
    if dispatch.stage != "decode" and any(each.stage != "decode" for each in others):
        return 2 * duration_ms(profile, dispatch, [each for each in others if each.stage == "decode"])
    corun = _times(profile, dispatch, others)
    if dispatch.stage == "vision":
        return profile.vision if corun is None else corun.vision
    if dispatch.stage == "prefill":
        pairs = zip(dispatch.requests, dispatch.counts, strict=True)
        decoding = [each for each, count in pairs if count == 1 and len(each.ids) > each.prompt_length]
        alone = profile.prefill_ms(sum(dispatch.counts)) + len(decoding) * profile.token_row
        return alone if corun is None else alone * corun.prefill / profile.prefill[profile.prompt]
    alone = profile.decode_ms(len(dispatch.requests))
    if corun is None:
        return alone
    beside_prefill = any(each.stage == "prefill" for each in others)
    return alone * (corun.decode_by_prefill if beside_prefill else corun.decode_by_vision) / profile.decode


def _times(profile: StageProfile, dispatch: Dispatch, others: Sequence[Dispatch]) -> CorunTimes | None:
    if any(_overlap(profile, dispatch, each) for each in others):
        return profile.shared
    return None if dispatch.split is None else profile.corun[dispatch.split]


def _overlap(profile: StageProfile, one: Dispatch, other: Dispatch) -> bool:
    """Whether a decode and a forward of another stage have units in common: decode has the device's first ones, the
    other stages those behind the first ones of their own split."""
    decode, beside = (one, other) if one.stage == "decode" else (other, one)
    return (decode.split or profile.units) > (beside.split or 0)


def simulate(
    scheduler: StageScheduler, profile: StageProfile, trace: Sequence[Arrival], options: EngineOptions
) -> tuple[list[Served], SimulatedForwards]:
    """Every request of the trace, by an engine with this scheduler; each has an image that no other has."""
    clock = VirtualClock()
    forwards = SimulatedForwards(profile, clock)
    engine = make_simulated(scheduler, forwards, options, clock)
    served, coming = list[Served](), sorted(trace, key=lambda each: each.at_s)[::-1]
    while True:
        engine.step()  # once: while the clock stands, a second one finds nothing to do
        ends = [forwards.next_end_ns(), round(coming[-1].at_s * 1e9) if coming else None]
        next_ns = min((each for each in ends if each is not None), default=None)
        if next_ns is None:
            break
        clock.sleep_until_ns(next_ns)
        forwards.advance()
        while coming and coming[-1].at_s * 1e9 <= clock.now_ns() + 1:
            served.append(_submit(engine, coming.pop(), len(served), profile.prompt, clock))
    if engine.open:
        raise RuntimeError(f"simulation: {engine.open} requests wait, and the scheduler starts nothing")
    engine.close()
    return served, forwards


def make_simulated(
    scheduler: StageScheduler,
    forwards: SimulatedForwards,
    options: EngineOptions,
    clock: VirtualClock,
    reservation: FrameReservation | None = None,
) -> Engine:
    """An engine without a model: its blocks hold one number a token."""
    places = lambda length, at, grids: torch.arange(length)  # noqa: E731
    tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: "")
    checkpoint: Any = SimpleNamespace(
        model=SimpleNamespace(language=SimpleNamespace(vocabulary=VOCABULARY), places=places),
        prompts=SimpleNamespace(tokenizer=tokenizer),
        stop_ids=frozenset(),
        length=MOST_LENGTH,
    )
    cache = PagedKVCache(1, (options.kv_mib << 20) // (8 * options.block) + 1, options.block, 1, 1)
    return Engine(
        cast(VlmCheckpoint, checkpoint), options, EngineMemory(cache), forwards, scheduler, clock, reservation
    )


def _submit(engine: Engine, arrival: Arrival, number: int, prompt: int, clock: VirtualClock) -> Served:
    length = arrival.prompt or prompt
    image = PreparedImage(torch.empty(0), (1, 1), 1, "", f"{number:064x}")
    request = VlmRequest(
        VlmPrompt(torch.full((length,), TOKEN), (image,), torch.zeros(1, dtype=torch.int64)),
        max_tokens=arrival.tokens,
        ignore_eos=True,
    )
    times = list[int]()

    def came(piece: Delta) -> None:
        times.extend([clock.now_ns()] * len(piece.tokens))

    return Served(arrival, engine.submit(request, came), times)


def _outcome(dispatch: Dispatch) -> Outcome:
    if dispatch.stage == "vision":
        return ImageEmbeddings(torch.zeros(1, 1))
    return [AnswerToken(TOKEN)] * len(dispatch.requests)
