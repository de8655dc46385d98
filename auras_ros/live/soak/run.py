"""One soak: start the loop, break it again and again, and write down what became of each promise."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from auras_ros import resources
from auras_ros.live.soak.control_node import ControlNode
from auras_ros.live.soak.faults import InjectedFault, faults
from auras_ros.live.soak.faults.loaded import STALLED, busy
from auras_ros.live.soak.faults.presses import NotTimedError, cases, press
from auras_ros.live.soak.harness import MS, Interrupted, SoakHarness, Times
from auras_ros.live.soak.judge import CommandLimits, Judge
from auras_ros.live.soak.log_pipe import LogPipe
from auras_ros.live.soak.topics import ACTION
from auras_ros.live.soak.usage import BIN_S, Usage
from auras_ros.live.soak.witness import Witness
from auras_ros.nodes.actuator.other_publishers import DISCOVERY_NS
from auras_ros.nodes.actuator.settings import load_contract
from auras_ros.nodes.common.config import read_config
from auras_ros.nodes.common.supervisor import Supervisor, SupervisorError
from auras_ros.report.result import Say
from auras_ros.ros import LoggingSeverity, SignalHandlerOptions, init, try_shutdown
from auras_ros.ros.callbacks import Callbacks

START_S = 120.0
POLL_S = 1.0  # beside a load
STOP_P99_MS = 50.0  # from the press to the hold, where the process runs
LATCHED_S = 0.1  # before arming after a stop, so that one which does not stay is seen
GROWTH_KIB_PER_MIN = 64.0  # less than this is no growth, however sure
GROWTH_ERRORS = 3.0
GROWTH_S = 120.0  # no verdict on memory from less, of lives that have settled
# Growth is asked for after this share of the run. A leak goes on; memory that parts take when they are first used, and
# pages of a heap that are touched for the first time, become less (docs/reliability.md, Memory).
SETTLED_SHARE = 0.75
RISEN = 4  # descriptors or threads
CONTROL = "a node that does nothing"
EVERY_SECOND = {"log_every_s": 1.0}  # faults are told by their lines in the log, and one follows soon after another
OVERRIDES: dict[str, dict[str, Any]] = {
    "pusht": {"viewer_px": 0, "auto_reset": False, **EVERY_SECOND},  # a table that resets itself moves the robot
    "actuator": {"arm_on_start": False, "joint_trajectory": True, **EVERY_SECOND},
    "agent": {"resize_images": False, **EVERY_SECOND},  # an image of another size is a fault here
}


class SoakError(RuntimeError):
    """The loop could not be started, or not be left to this alone."""


@dataclass(frozen=True)
class SoakSettings:
    """For how many seconds after it drives for the first time, in an order made of which seed, which kinds of faults
    (all if empty). presses: so many of each case of the emergency stop instead, however long that takes. load: so many
    busy loops beside it instead, and no other fault."""

    seconds: float
    seed: int = 0
    only: tuple[str, ...] = ()
    presses: int = 0
    load: int = 0


@dataclass
class FaultResult:
    """One fault. ms: from breaking to what was promised, None where it never came. case: which of a kind's."""

    at_s: float
    kind: str
    ms: float | None
    recovered_s: float
    case: str = ""


@dataclass
class LoadResult:
    """Beside a load: how often somebody had to arm again, because of a stall of the actuator or for another reason; and
    at how many of so many samples it was driven."""

    rearmed: int = 0
    by_stall: int = 0
    reasons: list[str] = field(default_factory=list)
    samples: int = 0
    driven: int = 0


@dataclass
class SoakResult:
    """What a soak found, complete or not; filled in while it runs."""

    judge: Judge
    kinds: dict[str, InjectedFault]
    outcomes: list[FaultResult] = field(init=False, default_factory=list)
    usage: dict[str, Usage] = field(init=False, default_factory=dict)
    control: Usage = field(init=False, default_factory=Usage)  # of a node that does nothing
    seconds: float = field(init=False, default=0.0)
    state: dict[str, Any] = field(init=False, default_factory=dict)
    skips: int = field(init=False, default=0)  # ticks that actuators have missed, of those planned_skips were asked for
    planned_skips: int = field(init=False, default=0)
    load_averages: list[float] = field(init=False, default_factory=list)
    load: LoadResult | None = field(init=False, default=None)
    presses_wanted: int = field(init=False, default=0)
    presses_again: int = field(init=False, default=0)  # see presses.press


def on_this_host_alone() -> None:
    """Whatever the environment says: garbage and an emergency stop are published, never into a robot's network."""
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    for name in ("ROS_LOCALHOST_ONLY", "ROS_STATIC_PEERS", "CYCLONEDDS_URI"):
        os.environ.pop(name, None)


def soak(settings: SoakSettings, log: Path, stop: Callable[[], bool], progress: Say) -> SoakResult:
    """Break the loop again and again.

    Returns what was found, earlier when `stop`. Raises SoakError, or SupervisorError where the nodes cannot start.
    """
    config = resources.find("config", "demo.yaml")
    limits, rate_hz, max_age_ms = command_limits(config)
    kinds = {name: fault for name, fault in faults(max_age_ms, rate_hz).items() if name in (settings.only or (name,))}
    judge = Judge(limits)
    on_this_host_alone()
    init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    with ExitStack() as stack:
        stack.callback(try_shutdown)
        witness = Witness(judge)
        stack.callback(witness.destroy_node)
        witness.get_logger().set_level(LoggingSeverity.FATAL)  # it hears of what it breaks itself
        violate = partial(judge.violate, "callback failed")  # it did not judge that
        callbacks = stack.enter_context(closing(Callbacks(witness, violate)))
        wait_alone(witness, callbacks)
        out = stack.enter_context(LogPipe(log))
        supervisor = stack.enter_context(Supervisor(config, log=out.writer, parameters=OVERRIDES))
        rng = random.Random(settings.seed)
        control = stack.enter_context(ControlNode())
        harness = stack.enter_context(closing(SoakHarness(witness, callbacks, supervisor, rng, stop, out, control)))
        run = SoakRun(harness, kinds, settings, progress)
        run.play()
        return run.result


def command_limits(config: Path) -> tuple[CommandLimits, float, float]:
    """The limits of a config's actuator, its rate in Hz, and the maximum age of a chunk in ms."""
    actuator = read_config(config).section("actuator")
    rate_hz = float(actuator["rate_hz"])
    max_age_ms = float(actuator["max_chunk_age_ms"])
    channels = [
        (channel.lower, channel.upper, channel.max_rate) for channel in load_contract(actuator["checkpoint"]).channels
    ]
    return CommandLimits.of(channels, rate_hz, max_age_ms), rate_hz, max_age_ms


def wait_until_driving(harness: SoakHarness) -> None:
    """Wait until the loop drives for the first time. Raises SoakError."""
    active = harness.until(lambda: harness.witness.heartbeat.get("lifecycle") == "active", START_S)
    if not active or not harness.drive():
        raise SoakError(f"the loop did not drive within {START_S:g} s of its start")


def wait_alone(witness: Witness, callbacks: Callbacks) -> None:
    """Wait until others would have been discovered. Raises SoakError if somebody publishes actions already."""
    end_s = time.monotonic() + DISCOVERY_NS / 1e9
    while time.monotonic() < end_s:
        callbacks.spin_once()
    if witness.count_publishers(ACTION):
        raise SoakError("somebody publishes actions here already: set ROS_DOMAIN_ID to a number of your own")


class SoakRun:
    """Plays what the settings ask for; `result` is what was found so far."""

    def __init__(
        self, harness: SoakHarness, kinds: dict[str, InjectedFault], settings: SoakSettings, progress: Say
    ) -> None:
        self.result = SoakResult(harness.judge, kinds)
        self._harness, self._judge, self._settings, self._progress = harness, harness.judge, settings, progress
        self._began_s = time.monotonic()

    @property
    def _at_s(self) -> float:
        return time.monotonic() - self._began_s

    def play(self) -> None:
        """From the start to the verdicts, whatever ends it in between."""
        harness, result = self._harness, self.result
        result.usage, result.control = harness.usage, harness.control
        try:
            self._progress("starting the loop")
            harness.witness.press(False)
            wait_until_driving(harness)
            self._began_s = time.monotonic()
            if self._settings.presses:
                self.presses()
            elif self._settings.load:
                self.beside_load()
            else:
                self._rounds()
        except SupervisorError as error:
            self._judge.violate("process ended", str(error))
        except Interrupted:
            pass
        finally:
            self._judge.during = ""
            result.seconds, result.state = self._at_s, harness.witness.state
            result.skips, result.planned_skips = harness.witness.skipped, harness.planned_skips
            result.presses_again = harness.presses_again
            for usage in (*result.usage.values(), result.control):
                usage.since_s = self._began_s + SETTLED_SHARE * result.seconds
            judge_growth(result)

    def _rounds(self) -> None:
        """Fault after fault, round after round, each in random order. A process that cannot be restarted ends it."""
        harness, kinds = self._harness, self.result.kinds
        bag, rounds = list[str](), itertools.count()
        while self._at_s < self._settings.seconds and harness.steady():
            if not bag:
                harness.new_table()
                bag = one_round(kinds, next(rounds), harness.rng)
            harness.pause(harness.rng.uniform(0.0, 1.0))
            kind = bag.pop()
            done = f"{len(self.result.outcomes)} faults, {self._judge.kinds.total()} violations"
            self._progress(f"{self._at_s:5.0f} s  {done}  {kind.replace('_', ' ')}")
            self._one(kind, kinds[kind].play)

    def beside_load(self) -> None:
        """Busy loops and no other fault: what ends, and what somebody has to arm again, is counted."""
        witness, load = self._harness.witness, LoadResult()
        self.result.load = load
        with busy(self._settings.load):
            while (at_s := self._at_s) < self._settings.seconds:
                self._harness.pause(POLL_S)
                self._read_load()
                load.samples, load.driven = load.samples + 1, load.driven + witness.driving
                average = self.result.load_averages[-1]
                self._progress(f"{at_s:5.0f} s  load {average:.1f}, {load.rearmed} armed again, {load.by_stall} stalls")
                state, beat = witness.state, witness.heartbeat
                if state.get("state") == "disarmed":
                    self._rearm(load, state["reason"], by_stall=STALLED in state["reason"])
                elif state.get("session") and beat.get("lifecycle") == "active" and beat["session"] != state["session"]:
                    self._rearm(load, "another agent's life", by_stall=False)
        if not load.driven:
            self._judge.violate("not driven", "no command of a chunk went out beside the load")

    def _rearm(self, load: LoadResult, reason: str, *, by_stall: bool) -> None:
        load.reasons.append(reason)
        load.by_stall += by_stall
        load.rearmed += not by_stall
        if not by_stall:
            self._judge.violate("arming needed", reason)
        self._harness.drive()

    def presses(self) -> None:
        """Each case of the emergency stop so many times."""
        count, result = self._settings.presses, self.result
        result.presses_wanted = count * len(cases())
        for case in cases():
            for number in range(count):
                if not self._harness.steady():
                    return
                done = f"press {number + 1} of {count}, {self._judge.kinds.total()} violations"
                self._progress(f"{self._at_s:5.0f} s  {case.name}: {done}")
                self._one("stop_pressed", partial(press, case=case), case.name)
            held = [each.ms for each in result.outcomes if each.case == case.name and each.ms is not None]
            if held and not case.frozen and (p99 := float(np.percentile(held, 99))) > STOP_P99_MS:
                self._judge.violate("stop_pressed: slow", f"{case.name}: p99 {p99:.1f} ms, promised {STOP_P99_MS:g}")

    def _one(self, kind: str, play: Callable[[SoakHarness], Times], case: str = "") -> None:
        """Break once, judge the time, drive again."""
        at_s = self._at_s
        self._judge.during = f"{kind}, {case + ', ' if case else ''}{at_s:.0f} s"
        try:
            begin_ns, end_ns = play(self._harness)
        except NotTimedError:  # which is a violation already
            return
        ms = None if end_ns is None else (end_ns - begin_ns) / MS
        judge_time(self.result, kind, ms)
        if self._judge.sent[-1].state == "stopped":
            self._harness.pause(LATCHED_S)
        if not self._harness.witness.driving:
            self._harness.drive()
        self.result.outcomes.append(FaultResult(at_s, kind, ms, self._at_s - at_s, case))
        self._read_load()

    def _read_load(self) -> None:
        self.result.load_averages.append(os.getloadavg()[0])


def one_round(kinds: dict[str, InjectedFault], number: int, rng: random.Random) -> list[str]:
    """The kinds whose turn it is, in random order; all of them in the first round, and if it is nobody's turn."""
    if number == 0:
        due = [name for name, fault in sorted(kinds.items()) for _ in range(fault.first)]
    else:
        due = [name for name, fault in sorted(kinds.items()) if fault.every and number % fault.every == 0]
    due = due or sorted(kinds)
    return rng.sample(due, len(due))


def judge_time(result: SoakResult, kind: str, ms: float | None) -> None:
    """Whether a fault's promise was kept in time."""
    fault, judge = result.kinds[kind], result.judge
    if ms is None:
        judge.violate(f"{kind}: no {fault.promise}", "it never came")
    elif fault.limit_ms is not None and ms > fault.limit_ms:
        judge.violate(f"{kind}: late", f"{fault.promise} after {ms:.1f} ms, promised within {fault.limit_ms:g}")


def judge_growth(result: SoakResult) -> None:
    """Memory that rises above the control's, and descriptors or threads that rise, are violations too."""
    for name, usage in result.usage.items():
        found = usage.above(result.control).slope()
        if found is not None and found.bins * BIN_S >= GROWTH_S:
            surely = found.kib_per_min - GROWTH_ERRORS * found.error
            if surely > GROWTH_KIB_PER_MIN:
                text = f"{name}: {found.kib_per_min:.0f} +- {found.error:.0f} KiB a minute above {CONTROL}"
                result.judge.violate("memory grows", text)
        for what in ("descriptors", "threads"):
            risen = usage.risen(what)
            if risen is not None and risen[1] - risen[0] > RISEN:
                result.judge.violate(f"{what} grow", f"{name}: {risen[0]} to {risen[1]}")
