"""One model: all sides started, checked for equal tokens, then measured in interleaved rounds, never two at once.

Two loads: a closed loop of eight (whoever has its answer asks again), which gives each side's throughput; then the
arrivals of one Poisson process at a share of the throughput that vLLM has in the closed loop, which gives latencies. In
a round every side gets the same requests; no round repeats those of another one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import NamedTuple

from auras_ros.bench.peers.process import PeerError
from auras_ros.bench.peers_vlm.client import Load, at_times, closed_loop
from auras_ros.bench.peers_vlm.equality import UnequalTokensError, answers, check_equal
from auras_ros.bench.peers_vlm.server import ServerCommand, ServerGroup
from auras_ros.bench.peers_vlm.sides import AT_ONCE, VLLM, is_each_core, library
from auras_ros.bench.peers_vlm.stream import AnswerError, StreamedAnswer
from auras_ros.bench.peers_vlm.workload import Shape, arrivals, bodies
from auras_ros.measure.minutes import Ends, OverError
from auras_ros.measure.rounds import Rounds
from auras_ros.measure.window import Length
from auras_ros.report.result import Report, Say

CLOSED, POISSON = "closed loop", "poisson"
CHECKED = 6  # requests whose tokens are compared, alone and together
SHARE = 0.7  # of vLLM's throughput, as the rate of arrivals
WARM_UP = 2 * AT_ONCE


class Window(NamedTuple):
    """One side's load of one round. cpu_s: of its server."""

    load: Load
    cpu_s: float


@dataclass
class ModelWindows:
    """What one model's contest found: windows by load and side, of whole rounds; by load the rate of arrivals; why a
    side was not measured, or not in all rounds; seconds until a server answered."""

    model: str
    shape: Shape
    cores: int
    windows: dict[str, dict[str, list[Window]]] = field(default_factory=dict, init=False)
    rates_hz: dict[str, float] = field(default_factory=dict, init=False)
    failed: dict[str, str] = field(default_factory=dict, init=False)
    start_s: dict[str, float] = field(default_factory=dict, init=False)


class PeersContest:
    """options: requests, rounds, limit, seed, start_limit, share, length (as `Rounds` wants them)."""

    def __init__(
        self, measured: ModelWindows, options: argparse.Namespace, report: Report, ends: Ends, say: Say
    ) -> None:
        self.measured, self._options, self._report, self._ends, self._say = measured, options, report, ends, say

    def run(self, commands: Sequence[ServerCommand]) -> None:
        """The first command's side is the reference. What was measured is in `measured`, also if this raises."""
        with ExitStack() as stack:
            servers = self._start(commands, stack)
            self._check(commands[0].name, servers)
            self._warm_up(servers)
            now_s = time.monotonic()
            half = self._ends._replace(soft_s=now_s + (self._ends.soft_s - now_s) / 2)
            self._rounds(CLOSED, servers, half, self._closed)
            self.measured.rates_hz = self._rates_hz()
            for number, (load, rate_hz) in enumerate(self.measured.rates_hz.items()):
                now_s, left = time.monotonic(), len(self.measured.rates_hz) - number
                part = self._ends._replace(soft_s=now_s + (self._ends.soft_s - now_s) / left)
                self._rounds(load, servers, part, partial(self._poisson, load, rate_hz))
            if self.measured.rates_hz:
                self._look_back(servers)

    def _start(self, commands: Sequence[ServerCommand], stack: ExitStack) -> dict[str, ServerGroup]:
        servers = {}
        for command in commands:
            self._say(f"{self.measured.model}: starting {command.name}")
            limit_s = min(self._options.start_limit, self._left_s())
            try:
                server = stack.enter_context(ServerGroup(command, limit_s))
            except PeerError as error:
                self._drop(command.name, error)
                continue
            self.measured.start_s[command.name] = server.start_s
            server.pause()
            servers[command.name] = server
        return servers

    def _check(self, reference: str, servers: dict[str, ServerGroup]) -> None:
        """Drops every side whose tokens are others. Without the reference nothing is timed."""
        if reference not in servers:
            why = f"{reference} did not start, which the tokens of all are compared with"
            raise UnequalTokensError(f"{self.measured.model}: {why}")
        asked = self._bodies("tokens", CHECKED)
        found: dict[str, list[StreamedAnswer]] = {}
        for name, server in list(servers.items()):
            self._say(f"{self.measured.model}: checking the tokens of {name}")
            try:
                found[name] = answers(server, asked, AT_ONCE, self._limit_s())
                check_equal(found, reference, name)
            except (UnequalTokensError, AnswerError, OSError) as error:
                if name == reference:
                    raise
                self._drop(name, error)
                servers.pop(name).close()

    def _warm_up(self, servers: dict[str, ServerGroup]) -> None:
        asked = self._bodies("warm-up", min(WARM_UP, self._options.requests))
        for name, server in list(servers.items()):
            self._say(f"{self.measured.model}: warming up {name}")
            with server.running():
                try:
                    closed_loop(server.ports, asked, AT_ONCE, self._limit_s())
                except (AnswerError, OSError) as error:
                    self._drop(name, error)
                    servers.pop(name).close()

    def _rounds(
        self,
        load: str,
        servers: Mapping[str, ServerGroup],
        ends: Ends,
        run: Callable[[ServerGroup, int, float], Load],
    ) -> None:
        windows: dict[str, list[Window]] = {name: [] for name in servers}

        def rate(name: str, length: Length) -> float:
            server = servers[name]
            with server.running():
                before_s = server.cpu_s()
                try:
                    found = run(server, len(windows[name]), self._limit_s())
                except AnswerError:
                    if time.monotonic() < ends.hard_s:
                        raise
                    raise OverError from None
                windows[name].append(Window(found, server.cpu_s() - before_s))
            return windows[name][-1].load.rate_hz

        most = self._closed_rounds() if load == CLOSED else self._options.rounds
        options = argparse.Namespace(**vars(self._options) | {"rounds": most})
        rounds = Rounds[str](f"{self.measured.model}, {load}", rate, options, ends, self._say)
        try:
            rounds.contest([name for name in servers if name not in self.measured.failed])
        finally:
            rounds.tell(self._report)
            self.measured.failed |= rounds.failed
            done = max(map(len, rounds.rates.values()), default=0)  # of a side that failed its rounds before stay
            self.measured.windows[load] = {name: found[:done] for name, found in windows.items() if found[:done]}

    def _closed(self, server: ServerGroup, number: int, limit_s: float) -> Load:
        return closed_loop(server.ports, self._bodies(f"{CLOSED} {number}"), AT_ONCE, limit_s)

    def _poisson(self, load: str, rate_hz: float, server: ServerGroup, number: int, limit_s: float) -> Load:
        seed = f"{load} {number}"
        asked = self._bodies(seed)
        times_s = self._arrivals(rate_hz, len(asked), f"{self._options.seed} {seed}")
        return at_times(server.ports, asked, times_s, limit_s)

    def _arrivals(self, rate_hz: float, count: int, seed: str) -> list[float]:
        return arrivals(rate_hz, count, seed)

    def _closed_rounds(self) -> int:
        return int(self._options.rounds)

    def _rates_hz(self) -> dict[str, float]:
        """Of arrivals, by load: a share of the throughput of vLLM's better form; none if vLLM was not measured."""
        rates = [
            median(each.load.rate_hz for each in windows)
            for name, windows in self.measured.windows[CLOSED].items()
            if library(name) == VLLM and not is_each_core(name)
        ]
        return {POISSON: float(self._options.share * max(rates))} if rates else {}

    def _bodies(self, what: str, count: int | None = None) -> list[bytes]:
        seed = f"{self._options.seed} {self.measured.model} {what}"
        return bodies(self.measured.model, self.measured.shape, count or self._options.requests, seed)

    def _look_back(self, servers: Mapping[str, ServerGroup]) -> None:
        """When all rounds are over and the servers still there."""

    def _limit_s(self) -> float:
        return min(float(self._options.limit), self._left_s())

    def _left_s(self) -> float:
        left_s = self._ends.hard_s - time.monotonic()
        if left_s <= 0:
            raise OverError
        return left_s

    def _drop(self, name: str, why: object) -> None:
        self.measured.failed[name] = str(why)
        self._report.fail(f"{self.measured.model}, {name}", why)
