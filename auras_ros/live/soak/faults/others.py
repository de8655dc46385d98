"""Faults that the loop's own actuator is spared: another one is started for each, of which nothing moves."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from auras_ros.live.soak.faults.processes import simulated_peers
from auras_ros.live.soak.harness import MS, SoakHarness, Times
from auras_ros.live.soak.other_actuator import OtherActuator
from auras_ros.live.soak.topics import JOINTS
from auras_ros.nodes.actuator.position import MAX_AGE_MS

START_S = 30.0  # for a process that imports, beside a loop that works
BY_ITSELF_S = 2.0  # in which one that arms by itself has armed: the graph is known after one
NO_YES_S = 0.3
KNOWN_S = 1.2  # another one that shows up within a second of arming disarms: it was there, and not yet known
TOGETHER_S = (0.5, 1.0)
SILENCE_MS = float(MAX_AGE_MS)
WHOLE_NS = 1000 * MS  # after which no agent sees by what was told of all joints at once
FULL_DISK = "/dev/full"
WORDS = [("disarm",), ("stop",), ("stop", "disarm")]


@contextmanager
def _other(
    harness: SoakHarness, name: str = "actuator", log: str = os.devnull, *, speaking: bool = True, **parameters: Any
) -> Iterator[OtherActuator]:
    """Started, and heard of. speaking: its robot is."""
    with closing(OtherActuator(harness, name, Path(log), parameters)) as other:
        if speaking:
            other.speak()
        not_started = "not started", f"no word of another actuator within {START_S:g} s"
        harness.expect(lambda: other.state, *not_started, START_S)
        yield other


def _asked(harness: SoakHarness, other: OtherActuator, word: str) -> bool:
    """Whether it did what it was asked for."""
    return harness.agrees(lambda: other.call(word))


def _drives(harness: SoakHarness, other: OtherActuator) -> int | None:
    """Arm it. When it sent its first command of a chunk after that; None where it did not."""
    since_ns = harness.now_ns()
    if not harness.until(lambda: _asked(harness, other, "arm"), START_S):
        harness.judge.violate("not armed", f"another actuator: {other.state.get('reason')}")
    return harness.first(lambda each: each.state == "armed", other.sent, since_ns)


def joint_states_in_parts(harness: SoakHarness) -> Times:
    """Two drivers tell of one joint each: the loop's agent sees by them, and another actuator can be armed. One of that
    one's falls silent: it holds, and cannot be armed any more until that one speaks again."""
    _seen_in_parts(harness)
    with _other(harness) as other:
        _drives(harness, other)
        quiet = harness.rng.choice(sorted(other.speaking))
        at_ns = harness.now_ns()
        other.speaking.discard(quiet)
        held_ns = harness.first(lambda each: each.state != "armed", other.sent, at_ns)
        _asked(harness, other, "disarm")
        if _asked(harness, other, "arm"):
            harness.judge.violate("armed half blind", f"nothing is heard of {quiet}")
        other.speaking.add(quiet)
        _drives(harness, other)
    return at_ns, held_ns


def _seen_in_parts(harness: SoakHarness) -> None:
    """The loop's robot stands still, and two drivers and a camera tell of that in its stead: chunks must go on."""
    with simulated_peers(harness, [[joint] for joint in JOINTS], new_images=True) as at_ns:
        not_used = "good ones not used", "no chunk of a state that came in parts"
        harness.expect(lambda: harness.fresh_chunk_ns(at_ns + WHOLE_NS), *not_used)
    harness.undisturbed(at_ns, "joint states in parts")


def arm_on_start_used(harness: SoakHarness) -> Times:
    """A person says no before all is there that arming needs: then the parameter arms nobody. Measured from a person's
    yes, when all is there, to the first command of a chunk; before that one none is sent that may move."""
    words = harness.draw("arm_on_start_used", WORDS)
    with _other(harness, speaking=False, arm_on_start=True) as other:
        for word in words:
            harness.expect(partial(_asked, harness, other, word), "not asked", f"{word} of another actuator")
        other.speak()
        harness.pause(BY_ITSELF_S)
        _asked(harness, other, "disarm")  # the way out of a stop, and no yes
        harness.pause(NO_YES_S)
        at_ns = harness.now_ns()
        driven_ns = _drives(harness, other)
        early = [each for each in other.sent if each.mono_ns < at_ns and each.state in ("armed", "holding")]
        if early:
            harness.judge.violate("armed by itself", f"{len(early)} commands after {' and '.join(words)}")
    return at_ns, driven_ns


def second_actuator(harness: SoakHarness) -> Times:
    """One stands still for longer than the lease of its commands, a second one is started and armed, and the first one
    goes on: it must say nothing. Measured to its own word that it is disarmed."""
    with _other(harness, "first") as first:
        _drives(harness, first)
        first.process.send_signal(signal.SIGSTOP)
        try:
            with _other(harness, "second") as second:
                _drives(harness, second)
                harness.pause(KNOWN_S)
                at_ns = harness.now_ns()

                def disarmed() -> bool:
                    return bool(first.state.get("mono_ns", 0) > at_ns and first.state["state"] == "disarmed")

                first.process.send_signal(signal.SIGCONT)
                disarmed_ns = first.state["mono_ns"] if harness.until(disarmed) else None
                harness.pause(harness.rng.uniform(*TOGETHER_S))
                sent = [each for each in second.sent if each.mono_ns > at_ns]
        finally:
            first.process.send_signal(signal.SIGCONT)
    # Ticks of one actuator only rise: one that does not is another one's.
    mixed = sum(after.tick <= before.tick for before, after in itertools.pairwise(sent))
    if mixed or not sent:
        harness.judge.violate("two drive", f"{mixed} of {len(sent)} commands are of the one that had stood still")
    return at_ns, disarmed_ns


def log_full(harness: SoakHarness) -> Times:
    """The disk of its log is full from the start on: it starts, is armed and drives. Measured from the start."""
    at_ns = harness.now_ns()
    with _other(harness, log=FULL_DISK) as other:
        return at_ns, _drives(harness, other)
