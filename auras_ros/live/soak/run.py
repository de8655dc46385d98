"""One soak: start the loop, break it again and again, and write down what became of each promise."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from auras_ros import resources
from auras_ros.live.soak.faults import InjectedFault, Times, faults
from auras_ros.live.soak.faults.loaded import STALLED, busy
from auras_ros.live.soak.faults.presses import cases, press
from auras_ros.live.soak.judge import CommandLimits, Judge
from auras_ros.live.soak.logs import LogPipe
from auras_ros.live.soak.scene import MS, Interrupted, SoakHarness
from auras_ros.live.soak.usage import BIN_S, Usage
from auras_ros.live.soak.witness import ACTION, Witness
from auras_ros.nodes.actuator.settings import load_contract
from auras_ros.nodes.common.config import read_config
from auras_ros.nodes.common.supervisor import Supervisor, SupervisorError
from auras_ros.ros import LoggingSeverity, SignalHandlerOptions, init, try_shutdown
from auras_ros.ros.callbacks import Callbacks

START_S = 120.0
POLL_S = 1.0  # beside a load
STOP_P99_MS = 50.0  # from the press to the hold, where the process runs
DISCOVERY_S = 1.0
GROWTH_KIB_PER_MIN = 64.0  # less than this is no growth, however sure
GROWTH_ERRORS = 3.0
GROWTH_S = 600.0  # no verdict on memory for a shorter run
GROWTH_LIFE_S = 240.0  # nor of shorter lives: a message of 10 MB leaves its mark on each, once, and no slope
SETTLED_SHARE = 0.5  # growth is asked for after this share of the run: parts take memory when first used
RISEN = 4  # descriptors or threads
OVERRIDES: dict[str, dict[str, Any]] = {
    "pusht": {"viewer_px": 0, "auto_reset": False},  # a table that resets itself moves the robot
    "actuator": {"arm_on_start": False},
}


class SoakError(RuntimeError):
    """The loop could not be started, or not be left to this alone."""


@dataclass
class FaultResult:
    """One fault. ms: from breaking to what was promised, None where it never came. case: which of a kind's."""

    at_s: float
    kind: str
    ms: float | None
    recovered_s: float
    case: str = ""


@dataclass
class Ended:
    """Beside a load: how often somebody had to arm again, because of a stall of the actuator or for another reason; and
    at how many of so many looks it was driven."""

    rearmed: int = 0
    by_stall: int = 0
    reasons: list[str] = field(default_factory=list)
    looks: int = 0
    driven: int = 0


@dataclass
class SoakResult:
    """What a soak found, complete or not."""

    judge: Judge
    kinds: dict[str, InjectedFault]
    outcomes: list[FaultResult] = field(default_factory=list)
    usage: dict[str, Usage] = field(default_factory=dict)
    seconds: float = 0.0
    state: dict[str, Any] = field(default_factory=dict)
    skips: int = 0  # ticks that actuators have missed, of those planned_skips were asked for
    planned_skips: int = 0
    load: list[float] = field(default_factory=list)
    ended: Ended | None = None
    presses_wanted: int = 0
    presses_again: int = 0  # see presses.press


def on_this_host_alone() -> None:
    """Whatever the environment says: garbage and an emergency stop are published, never into a robot's network."""
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    for name in ("ROS_LOCALHOST_ONLY", "ROS_STATIC_PEERS", "CYCLONEDDS_URI"):
        os.environ.pop(name, None)


@dataclass(frozen=True)
class Wanted:
    """For how many seconds after it drives for the first time, in an order made of which seed, which kinds of faults
    (all if empty). presses: so many of each case of the emergency stop instead, however long that takes. load: so many
    busy loops beside it instead, and no other fault."""

    seconds: float
    seed: int = 0
    only: tuple[str, ...] = ()
    presses: int = 0
    load: int = 0


def soak(wanted: Wanted, log: Path, stopping: Callable[[], bool], say: Callable[[str], None]) -> SoakResult:
    """Break the loop again and again.

    Returns what was found, earlier when `stopping`. Raises SoakError, or SupervisorError where the nodes cannot start.
    """
    config = resources.find("config", "demo.yaml")
    settings = read_config(config).section("actuator")
    rate_hz, max_age_ms = float(settings["rate_hz"]), float(settings["max_chunk_age_ms"])
    channels = [(each.lower, each.upper, each.max_rate) for each in load_contract(settings["checkpoint"]).channels]
    kinds = {name: fault for name, fault in faults(max_age_ms, rate_hz).items() if name in (wanted.only or (name,))}
    result = SoakResult(Judge(CommandLimits.of(channels, rate_hz, max_age_ms)), kinds)
    on_this_host_alone()
    init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    try:
        witness = Witness(result.judge)
        witness.get_logger().set_level(LoggingSeverity.FATAL)  # it hears of what it breaks itself
        callbacks = Callbacks(witness, partial(result.judge.violate, "callback failed"))  # it did not judge that
        try:
            _alone(witness, callbacks)
            with LogPipe(log) as out, Supervisor(config, log=out.writer, parameters=OVERRIDES) as supervisor:
                harness = SoakHarness(witness, callbacks, supervisor, random.Random(wanted.seed), stopping)
                harness.unread_logs, harness.closed_logs = out.unread, out.closed
                _break(harness, result, wanted, say)
        finally:
            callbacks.close()
            witness.destroy_node()
    finally:
        try_shutdown()
    return result


def _alone(witness: Witness, callbacks: Callbacks) -> None:
    end_s = time.monotonic() + DISCOVERY_S
    while time.monotonic() < end_s:
        callbacks.turn()
    if witness.count_publishers(ACTION):
        raise SoakError("somebody publishes actions here already: set ROS_DOMAIN_ID to a number of your own")


def _break(harness: SoakHarness, result: SoakResult, wanted: Wanted, say: Callable[[str], None]) -> None:
    """From the start to the verdicts, whatever ends it in between."""
    result.usage, began_s = harness.usage, time.monotonic()
    try:
        say("starting the loop")
        harness.witness.press(False)
        if not harness.until(lambda: harness.witness.beat.get("lifecycle") == "active", START_S) or not harness.drive():
            raise SoakError(f"the loop did not drive within {START_S:g} s of its start")
        began_s = time.monotonic()
        if wanted.presses:
            _presses(harness, result, began_s, wanted.presses, say)
        elif wanted.load:
            _beside_load(harness, result, began_s, wanted, say)
        else:
            _rounds(harness, result, began_s, wanted.seconds, say)
    except SupervisorError as error:
        harness.judge.violate("process ended", str(error))
    except Interrupted:
        pass
    finally:
        result.seconds = time.monotonic() - began_s
        result.state = harness.witness.state
        result.skips, result.planned_skips = harness.witness.skipped, harness.planned_skips
        result.presses_again = harness.presses_again
        for usage in result.usage.values():
            usage.since_s = began_s + SETTLED_SHARE * result.seconds
        judge_growth(result)


def _rounds(
    harness: SoakHarness, result: SoakResult, began_s: float, seconds: float, say: Callable[[str], None]
) -> None:
    """Fault after fault, round after round, each in random order. A process that cannot be started again ends it."""
    bag, rounds = list[str](), itertools.count()
    while time.monotonic() - began_s < seconds and harness.steady():
        if not bag:
            harness.new_table()
            bag = one_round(result.kinds, next(rounds), harness.rng)
        harness.pause(harness.rng.uniform(0.0, 1.0))
        kind = bag.pop()
        broken, at_s = harness.judge.kinds.total(), time.monotonic() - began_s
        say(f"{at_s:5.0f} s  {len(result.outcomes)} faults, {broken} violations  {kind.replace('_', ' ')}")
        _one(harness, result, kind, began_s, result.kinds[kind].play)
        result.load.append(os.getloadavg()[0])


def _beside_load(
    harness: SoakHarness, result: SoakResult, began_s: float, wanted: Wanted, say: Callable[[str], None]
) -> None:
    """Busy loops and no other fault: what ends, and what somebody has to arm again, is counted."""
    ended = result.ended = Ended()
    with busy(wanted.load):
        while (at_s := time.monotonic() - began_s) < wanted.seconds:
            harness.pause(POLL_S)
            result.load.append(os.getloadavg()[0])
            ended.looks, ended.driven = ended.looks + 1, ended.driven + harness.witness.driving
            say(f"{at_s:5.0f} s  load {result.load[-1]:.1f}, {ended.rearmed} armed again, {ended.by_stall} stalls")
            state, beat = harness.witness.state, harness.witness.beat
            if state.get("state") == "disarmed":
                stalled = STALLED in state["reason"]
                ended.by_stall += stalled
                _rearm(harness, ended, state["reason"], unasked=not stalled)
            elif state.get("session") and beat.get("lifecycle") == "active" and beat["session"] != state["session"]:
                _rearm(harness, ended, "another agent's life", unasked=True)
    if not ended.driven:
        harness.judge.violate("not driven", "no command of a chunk went out beside the load")


def _rearm(harness: SoakHarness, ended: Ended, reason: str, *, unasked: bool) -> None:
    ended.reasons.append(reason)
    if unasked:
        ended.rearmed += 1
        harness.judge.violate("arming needed", reason)
    harness.drive()


def _presses(harness: SoakHarness, result: SoakResult, began_s: float, count: int, say: Callable[[str], None]) -> None:
    """Each case of the emergency stop so many times."""
    result.presses_wanted = count * len(cases())
    for case in cases():
        for number in range(count):
            if not harness.steady():
                return
            at_s = time.monotonic() - began_s
            say(f"{at_s:5.0f} s  {case.name}: press {number + 1} of {count}, {harness.judge.kinds.total()} violations")
            _one(harness, result, "stop_pressed", began_s, partial(press, case=case), case.name)
            result.load.append(os.getloadavg()[0])
        held = [each.ms for each in result.outcomes if each.case == case.name and each.ms is not None]
        if held and not case.frozen and (p99 := float(np.percentile(held, 99))) > STOP_P99_MS:
            harness.judge.violate("stop_pressed: slow", f"{case.name}: p99 {p99:.1f} ms, promised {STOP_P99_MS:g}")


def one_round(kinds: dict[str, InjectedFault], number: int, rng: random.Random) -> list[str]:
    """The kinds whose turn it is, in random order; all of them in the first round, and where it is nobody's turn."""
    due = [name for name, fault in sorted(kinds.items()) if number % fault.every == 0] or sorted(kinds)
    return rng.sample(due, len(due))


def _one(
    harness: SoakHarness,
    result: SoakResult,
    kind: str,
    began_s: float,
    play: Callable[[SoakHarness], Times],
    case: str = "",
) -> None:
    """Break once, judge the time, drive again."""
    at_s = time.monotonic() - began_s
    begin_ns, end_ns = play(harness)
    ms = None if end_ns is None else (end_ns - begin_ns) / MS
    judge_time(result, kind, ms)
    if not harness.witness.driving:
        harness.drive()
    result.outcomes.append(FaultResult(at_s, kind, ms, time.monotonic() - began_s - at_s, case))


def judge_time(result: SoakResult, kind: str, ms: float | None) -> None:
    """Whether a fault's promise was kept in time."""
    fault, judge = result.kinds[kind], result.judge
    if ms is None:
        judge.violate(f"{kind}: no {fault.promise}", "it never came")
    elif fault.limit_ms is not None and ms > fault.limit_ms:
        judge.violate(f"{kind}: late", f"{fault.promise} after {ms:.1f} ms, promised within {fault.limit_ms:g}")


def judge_growth(result: SoakResult) -> None:
    """Memory, descriptors or threads that rise are violations too."""
    for name, usage in result.usage.items():
        found = usage.slope()
        long_enough = found is not None and found.bins * BIN_S >= GROWTH_LIFE_S * found.lives
        if found is not None and long_enough and result.seconds >= GROWTH_S:
            surely = found.kib_per_min - GROWTH_ERRORS * found.error
            if surely > GROWTH_KIB_PER_MIN:
                text = f"{name}: {found.kib_per_min:.0f} +- {found.error:.0f} KiB a minute"
                result.judge.violate("memory grows", text)
        for what in ("descriptors", "threads"):
            risen = usage.risen(what)
            if risen is not None and risen[1] - risen[0] > RISEN:
                result.judge.violate(f"{what} grow", f"{name}: {risen[0]} to {risen[1]}")
