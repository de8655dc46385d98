"""A server under attack: whether it answers others meanwhile, how much memory it takes, and how soon it ends.

The server is on one core, and all clients on another one: a client that measures and the attack, whose process has the
lowest priority so that it does not delay what measures it. First the client is alone. Then the attack begins, and while
it goes on the same is measured again; at its end the server is told to end, with the attack still going on.

`/health` is asked at fixed times, however late earlier answers are, and each time over a new connection: a server that
stands for a second is late for every question of that second. The other client asks for one answer after another.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path

from auras_ros.live.soak_vlm.attacks.known import ATTACKS
from auras_ros.live.soak_vlm.attacks.target import AttackTarget, run_attack
from auras_ros.live.soak_vlm.client import HOST, exchange, http_bytes
from auras_ros.live.soak_vlm.hostile import TEXT
from auras_ros.live.soak_vlm.judge import FULL, BrokenPromises
from auras_ros.live.soak_vlm.overload import p99
from auras_ros.live.soak_vlm.process import VlmServerError, vlm_server

TOGETHER = "together"  # all attacks at once
HEALTH_MS, VICTIM_RATIO, RSS_MB, SIGTERM_S = 50.0, 1.5, 200.0, 10.0  # what is promised
PERIOD_S = 0.05  # between two questions to /health
HEALTH_S, ANSWER_S = 10.0, 60.0  # after so long there is no answer
FULL_S = 10.0  # a client that is refused for so long because the server is full is not answered
WARM_UP_S = 1.0  # what is used for the first time takes longer
SETTLE_S = 1.0  # of the attack alone: it takes what it can have while nobody else asks
START_S = 60.0  # for the attack's processes to begin
END_S = 60.0  # for the server to end, with the attack still going on
AGAIN_S = 0.05  # before the client asks again that was refused because the server is full
SAMPLE_S = 0.02  # between two looks at the memory
RUNNING, WAITING = 6, 10
HEALTH = f"GET /health HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()
VICTIM = {"prompt": "is the tee on its goal?", "max_tokens": 16, "ignore_eos": True, "temperature": 0}
PAGE = os.sysconf("SC_PAGE_SIZE")
Say = Callable[[str], None]


@dataclass(frozen=True)
class AttackSettings:
    """names: of ATTACKS, or TOGETHER; each is measured with a server of its own."""

    names: tuple[str, ...]
    alone_s: float = 8.0
    attack_s: float = 20.0
    # What the server is started with beside these.
    options: tuple[str, ...] = ()


@dataclass
class ClientTimes:
    """What a measurement has seen; ms from a question to its answer."""

    health_ms: list[float] = field(default_factory=list)
    answer_ms: list[float] = field(default_factory=list)
    # How often /health, or the client with the token, got no answer or a wrong one, in words.
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class AttackResult:
    """One attack's figures. sigterm_s: from the signal to the server's end."""

    name: str
    alone: ClientTimes
    attacked: ClientTimes
    rss_growth_mb: float
    sigterm_s: float
    # Whether server and clients had to share a core: their times are then measured, and not judged.
    is_core_shared: bool

    @property
    def health_ms_p99(self) -> float:
        return p99(self.attacked.health_ms) if self.attacked.health_ms else float("inf")

    @property
    def victim_ratio(self) -> float:
        """Medians of the answers' times, under attack by alone."""
        if not self.attacked.answer_ms or not self.alone.answer_ms:
            return float("inf")
        return statistics.median(self.attacked.answer_ms) / statistics.median(self.alone.answer_ms)


def attack_server(
    model: Path, settings: AttackSettings, log: Path, say: Say, stopped: Callable[[], bool]
) -> tuple[list[AttackResult], BrokenPromises]:
    """Every attack in turn. Raises VlmServerError if a server does not start."""
    results = list[AttackResult]()
    broken = BrokenPromises()
    for name in settings.names:
        if stopped():
            break
        say(f"attack: {name}")
        try:
            result = _measure(model, name, settings, log)
        except VlmServerError as error:
            if not results:
                raise
            broken.add(f"{name}: process ended", str(error))
            continue
        results.append(result)
        judge_attack(result, broken)
    return results, broken


def judge_attack(result: AttackResult, broken: BrokenPromises) -> None:
    """Each figure beyond what is promised is a broken promise. A failure is one whatever the figures are."""
    for text in result.alone.failures + result.attacked.failures:
        broken.add(f"{result.name}: not answered", text)
    figures = [
        ("rss_growth_mb", result.rss_growth_mb, RSS_MB),
        ("sigterm_s", result.sigterm_s, SIGTERM_S),
    ]
    if not result.is_core_shared:
        figures.append(("health_ms_p99", result.health_ms_p99, HEALTH_MS))
        figures.append(("victim_ratio", result.victim_ratio, VICTIM_RATIO))
    for figure, value, bound in figures:
        if not value <= bound:
            broken.add(f"{result.name}: {figure}", f"{value:.2f}, promised are {bound:g}")


def _measure(model: Path, name: str, settings: AttackSettings, log: Path) -> AttackResult:
    """Starts a server, measures it alone and under attack, and ends it. Raises VlmServerError."""
    cores = sorted(os.sched_getaffinity(0))
    server_core, client_core = cores[0], cores[-1]
    token = secrets.token_hex(16)
    options = ["--running", str(RUNNING), "--waiting", str(WAITING), "--cores", str(server_core), *settings.options]
    names = list(ATTACKS) if name == TOGETHER else [name]
    with vlm_server(model, options, log, token) as server, _on_core(client_core):
        asyncio.run(_measure_clients(server.port, token, WARM_UP_S))
        alone = asyncio.run(_measure_clients(server.port, token, settings.alone_s))
        target = AttackTarget(server.port, token, time.monotonic() + START_S + settings.attack_s + END_S)
        with MemoryWatch(server.pid) as memory, _attacking(names, target, client_core) as processes:
            time.sleep(SETTLE_S)
            attacked = asyncio.run(_measure_clients(server.port, token, settings.attack_s))
            attacked.failures += [f"the attack {each.name} ended early" for each in processes if not each.is_alive()]
            sigterm_s = server.stop()
    return AttackResult(name, alone, attacked, memory.growth_mb, sigterm_s, is_core_shared=server_core == client_core)


@contextmanager
def _on_core(core: int) -> Iterator[None]:
    """This thread, and those that it starts, run on one core meanwhile."""
    previous = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, previous)


@contextmanager
def _attacking(names: Sequence[str], target: AttackTarget, core: int) -> Iterator[list[BaseProcess]]:
    """Each attack in a process of its own, from when all have begun. Raises VlmServerError if one does not begin."""
    context = multiprocessing.get_context("spawn")
    processes = list[BaseProcess]()
    begun = list[Event]()
    try:
        for name in names:
            is_begun = context.Event()
            given = (ATTACKS[name], target, frozenset({core}), is_begun)
            started = context.Process(target=run_attack, args=given, name=name, daemon=True)
            started.start()
            processes.append(started)
            begun.append(is_begun)
        for name, is_begun in zip(names, begun, strict=True):
            if not is_begun.wait(START_S):
                raise VlmServerError(f"the attack {name} did not begin within {START_S:g} s")
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


async def _measure_clients(port: int, token: str, seconds: float) -> ClientTimes:
    """`/health` at fixed times, and one answer after another."""
    times = ClientTimes()
    await asyncio.gather(_ask_health(port, seconds, times), _ask_answers(port, token, seconds, times))
    return times


async def _ask_health(port: int, seconds: float, times: ClientTimes) -> None:
    async def ask(planned_s: float) -> None:
        try:
            answer = await exchange(port, HEALTH, HEALTH_S)
        except OSError as error:  # TimeoutError too
            times.failures.append(f"/health: {error}")
            times.health_ms.append(1e3 * HEALTH_S)
            return
        if answer.status != 200:
            times.failures.append(f"/health: status {answer.status}: {answer.body[:200]!r}")
        times.health_ms.append(1e3 * (time.monotonic() - planned_s))

    tasks = list[asyncio.Task[None]]()
    begin_s = time.monotonic()
    for number in range(round(seconds / PERIOD_S)):
        planned_s = begin_s + number * PERIOD_S
        await asyncio.sleep(max(0.0, planned_s - time.monotonic()))
        tasks.append(asyncio.create_task(ask(time.monotonic())))
    await asyncio.gather(*tasks)


async def _ask_answers(port: int, token: str, seconds: float, times: ClientTimes) -> None:
    """A request that is refused because the server is full is asked again, and its time goes on."""
    raw = http_bytes(TEXT, json.dumps(VICTIM).encode(), token=token)
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        begin_s = time.monotonic()
        try:
            while (answer := await exchange(port, raw, ANSWER_S)).status == FULL:
                if time.monotonic() - begin_s > FULL_S:
                    break
                await asyncio.sleep(AGAIN_S)
        except OSError as error:  # TimeoutError too
            times.failures.append(f"the client with the token: {error}")
            continue
        if answer.status != 200:
            times.failures.append(f"the client with the token: status {answer.status}: {answer.body[:200]!r}")
        times.answer_ms.append(1e3 * (time.monotonic() - begin_s))


class MemoryWatch:
    """The resident memory of a process and its descendants, together, looked at fifty times a second."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)
        self._first_bytes = resident_bytes(process)
        self._peak_bytes = self._first_bytes

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    @property
    def growth_mb(self) -> float:
        """The peak less what was there at first, MB."""
        return (self._peak_bytes - self._first_bytes) / 1e6

    def _watch(self) -> None:
        while not self._ending.wait(SAMPLE_S):
            self._peak_bytes = max(self._peak_bytes, resident_bytes(self._process))


def resident_bytes(process: int) -> int:
    """Of a process and all its descendants; 0 for those that have ended."""
    folder = Path("/proc") / str(process)
    total = 0
    try:
        total += int((folder / "statm").read_text().split()[1]) * PAGE
        for task in os.listdir(folder / "task"):
            for child in (folder / "task" / task / "children").read_text().split():
                total += resident_bytes(int(child))
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return total
    return total
