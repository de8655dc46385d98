"""A server is asked one request at a time what it answers, then everything at once, and judged.

Learn: each request whose answer is to be known, one at a time. Mix, in two halves: as many clients as the server takes
and half as many again, each with the next trial; a refusal because it is full is tried again. After each half nothing
may be left. The second half may leave no more memory, descriptors or threads than it found. Again: all that was learnt,
one at a time, has the same answers.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from auras_ros.live.soak.usage import Reading, read
from auras_ros.live.soak_vlm.asks import KnownAsk, Trial, asks, trials
from auras_ros.live.soak_vlm.client import HOST, Leaving, WireAnswer, exchange
from auras_ros.live.soak_vlm.judge import FULL, BrokenPromises, nearly_equal, read_given, refusal_text, wrong

KNOWN, LONG = 60, 4  # requests whose answers are known; those of the overload
BODY_MIB = 1
AGAIN_S = 0.02  # before a request is tried again that was refused because the server is full
GAUGES = ("requests_preparing", "requests_open", "requests_running", "requests_waiting", "blocks_in_use_ratio")
KIB_A_REQUEST, NOISE_KIB = 4.0, 4096.0  # what the second half may leave
FEWEST = 500  # requests of a half: with fewer, parts are still used for the first time
RISEN = 2  # descriptors or threads
Say = Callable[[str], None]


@dataclass(frozen=True)
class VlmSoakSettings:
    """running, waiting: the server's. patience_s: after so long a request never ends. overload_s: how long ten times
    the load is offered. grammar: whether the server has llguidance."""

    requests: int = 2000
    seed: int = 0
    running: int = 6
    waiting: int = 10
    patience_s: float = 60.0
    overload_s: float = 20.0
    grammar: bool = True

    @property
    def limit(self) -> int:
        """Requests that the server has at any time."""
        return self.running + self.waiting


@dataclass
class OverloadResult:
    """Rates in requests a second. Times, ms: of a full server that refuses nobody, of what was admitted and of what was
    refused at ten times that rate. bound_ms: of the p99 of what was admitted."""

    capacity_hz: float
    full_ms: list[float]
    bound_ms: float
    offered_hz: float = 0.0
    admitted_ms: list[float] = field(default_factory=list, init=False)
    refused_ms: list[float] = field(default_factory=list, init=False)


@dataclass
class VlmSoakResult:
    """times: ms by kind of trial. full: how often a trial was refused because the server was full. left_out: requests
    with two tokens nearly as likely. answers: how many different ones were learnt. readings: after each half."""

    settings: VlmSoakSettings
    broken: BrokenPromises = field(default_factory=BrokenPromises, init=False)
    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list), init=False)
    full: int = field(default=0, init=False)
    known: int = field(default=0, init=False)
    answers: int = field(default=0, init=False)
    left_out: int = field(default=0, init=False)
    seconds: float = field(default=0.0, init=False)
    counted: dict[str, float] = field(default_factory=dict, init=False)
    readings: list[Reading] = field(default_factory=list, init=False)
    overload: OverloadResult | None = field(default=None, init=False)


class VlmSoak:
    """Of a server that listens at a port. process: its id."""

    def __init__(
        self, port: int, process: int, settings: VlmSoakSettings, say: Say, stopped: Callable[[], bool]
    ) -> None:
        self.port, self.settings, self.result = port, settings, VlmSoakResult(settings)
        self.process, self._say, self.stopped = process, say, stopped
        self.broken = self.result.broken

    async def mixed(self) -> None:
        """All but the overload. Raises OSError if the server is gone."""
        begin_s = time.monotonic()
        known = await self.learnt(asks(self.settings.seed, KNOWN, self.settings.grammar))
        self.result.known, self.result.answers = len(known), len({each.answer for each in known})
        drawn = trials(self.settings.seed, self.settings.requests, known, BODY_MIB)
        half = len(drawn) // 2
        for part in (drawn[:half], drawn[half:]):
            await self._together(part)
            await self.settled()
            if (reading := read(self.process, time.monotonic() - begin_s)) is not None:
                self.result.readings.append(reading)
        judge_rise(self.result.readings, len(drawn) - half, self.broken)
        for number, ask in enumerate(known):
            if not self.stopped():
                await self._one(Trial(number, "alone again", ask.raw(), ask))
        self.result.seconds = time.monotonic() - begin_s

    async def learnt(self, asked: Sequence[KnownAsk]) -> list[KnownAsk]:
        """Those of the requests that have one answer, with it."""
        found = []
        for ask in asked:
            self._say(f"asking alone: {ask.name}")
            first = await self._patient(ask.raw())
            if first.status != 200:
                self.broken.add("not answered", f"{ask.name}, alone: status {first.status} {refusal_text(first)}")
                continue
            more = {"logprobs": True, "top_logprobs": 2} if "messages" in ask.fields else {"logprobs": 2}
            if ask.greedy and nearly_equal((await self._patient(ask.raw(**more))).body):
                self.result.left_out += 1
            else:
                found.append(replace(ask, answer=read_given(first.body, streamed=False)))
        if not found:
            raise RuntimeError(f"no request was answered; the first one: {''.join(self.broken.texts[:1])}")
        return found

    async def settled(self) -> None:
        """Waits until the server has nothing left; what is left after a while is a broken promise."""
        end_s = time.monotonic() + self.settings.patience_s
        while left := {name: value for name in GAUGES if (value := (await self.metrics())[f"auras_{name}"])}:
            if time.monotonic() > end_s:
                self.broken.add("left behind", ", ".join(f"{name} {value:g}" for name, value in left.items()))
                return
            await asyncio.sleep(AGAIN_S)

    async def metrics(self) -> dict[str, float]:
        raw = f"GET /metrics HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()
        lines = (await exchange(self.port, raw, self.settings.patience_s)).body.decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        self.result.counted = {name: float(value) for name, _, value in pairs}
        return self.result.counted

    async def _together(self, drawn: Sequence[Trial]) -> None:
        queue = iter(drawn)
        await asyncio.gather(*(self._client(queue) for _ in range(self.settings.limit * 3 // 2)))

    async def _client(self, queue: Iterator[Trial]) -> None:
        for trial in queue:
            if self.stopped():
                return
            self._say(f"{trial.number} of {self.settings.requests} requests, {self.broken.kinds.total()} violations")
            await self._one(trial)

    async def _one(self, trial: Trial) -> None:
        """Asked until the server is not full."""
        end_s = time.monotonic() + self.settings.patience_s
        try:
            while (came := await self._patient(trial.raw, trial.leaving)).status == FULL:
                self.result.full += 1
                if "full" not in refusal_text(came) and not came.left:
                    self.broken.add("refused without a reason", repr(came.body[:200]), trial)
                if time.monotonic() > end_s:
                    self.broken.add("never admitted", f"full for {self.settings.patience_s:g} s", trial)
                    return
                await asyncio.sleep(AGAIN_S)
        except TimeoutError as error:
            self.broken.add("never ended", str(error), trial)
            return
        except OSError as error:
            self.broken.add("no connection", str(error), trial)
            return
        self.result.times["hostile" if trial.hostile else trial.kind].append(came.ms)
        if why := wrong(trial, came):
            self.broken.add("not refused" if trial.hostile else "wrong answer", why, trial)

    async def _patient(self, raw: bytes, leaving: Leaving | None = None) -> WireAnswer:
        return await exchange(self.port, raw, self.settings.patience_s, leaving)


def judge_rise(readings: Sequence[Reading], requests: int, broken: BrokenPromises) -> None:
    """What a server uses when nothing runs, after the first half and after the second, which had so many requests.
    There is no verdict on the memory of fewer than FEWEST."""
    if len(readings) != 2:
        broken.add("process ended", "its memory could not be read")
        return
    first, last = readings
    risen, bound = last.kib - first.kib, NOISE_KIB + KIB_A_REQUEST * requests
    if risen > bound and requests >= FEWEST:
        broken.add("memory grows", f"{risen:.0f} KiB for {requests} requests, at most {bound:.0f} are allowed")
    for what in ("descriptors", "threads"):
        before, after = getattr(first, what), getattr(last, what)
        if after - before > RISEN:
            broken.add(f"{what} grow", f"{before} to {after}")
