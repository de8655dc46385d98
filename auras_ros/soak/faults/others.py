"""Faults that the loop's own actuator is spared: another one is started for each, of which nothing moves."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from auras_ros.nodes.actuator_place import MAX_AGE_MS
from auras_ros.soak.faults.kinds import PATIENCE_S, Times
from auras_ros.soak.faults.processes import told_instead
from auras_ros.soak.other import JOINTS, OtherActuator
from auras_ros.soak.scene import MS, SoakHarness

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
def beside(
    scene: SoakHarness, name: str = "actuator", log: str = os.devnull, *, speaking: bool = True, **parameters: Any
) -> Iterator[OtherActuator]:
    """Started, and heard of. speaking: its robot is."""
    other = scene.other(name, Path(log), parameters)
    try:
        if speaking:
            other.speak()
        if not scene.until(lambda: other.state, START_S):
            scene.judge.violate("not started", f"no word of another actuator within {START_S:g} s")
        yield other
    finally:
        other.close()


def asked(scene: SoakHarness, other: OtherActuator, word: str) -> bool:
    """Whether it did what it was asked for."""
    response = scene.answer(lambda: other.call(word))
    return response is not None and bool(response.success)


def drives(scene: SoakHarness, other: OtherActuator) -> int | None:
    """Arm it. When it sent its first command of a chunk after that; None where it did not."""
    since_ns = scene.now_ns()
    if not scene.until(lambda: asked(scene, other, "arm"), START_S):
        scene.judge.violate("not armed", f"another actuator: {other.state.get('reason')}")
    return _first(scene, other, since_ns, armed=True)


def _first(scene: SoakHarness, other: OtherActuator, since_ns: int, *, armed: bool) -> int | None:
    def found() -> list[int]:
        return [e.mono_ns for e in other.sent if e.mono_ns > since_ns and (e.state == "armed") == armed]

    return found()[0] if scene.until(found, PATIENCE_S) else None


def joint_states_in_parts(scene: SoakHarness) -> Times:
    """Two drivers tell of one joint each: the loop's agent sees by them, and another actuator can be armed. One of that
    one's falls silent: it holds, and cannot be armed any more until that one speaks again."""
    _seen_in_parts(scene)
    with beside(scene) as other:
        drives(scene, other)
        quiet = scene.rng.choice(sorted(other.speaking))
        at_ns = scene.now_ns()
        other.speaking.discard(quiet)
        held_ns = _first(scene, other, at_ns, armed=False)
        asked(scene, other, "disarm")
        if asked(scene, other, "arm"):
            scene.judge.violate("armed half blind", f"nothing is heard of {quiet}")
        other.speaking.add(quiet)
        drives(scene, other)
    return at_ns, held_ns


def _seen_in_parts(scene: SoakHarness) -> None:
    """The loop's robot stands still, and two drivers and a camera tell of that in its stead: chunks must go on."""
    with told_instead(scene, [[joint] for joint in JOINTS], new_images=True) as at_ns:
        whole_ns = at_ns + WHOLE_NS
        if not scene.until(lambda: any(each.origin_ns > whole_ns for each in scene.witness.chunks), PATIENCE_S):
            scene.judge.violate("good ones not used", "no chunk of a state that came in parts")
    scene.undisturbed(at_ns, "joint states in parts")


def arm_on_start_used(scene: SoakHarness) -> Times:
    """A person says no before all is there that arming needs: then the parameter arms nobody. Measured from a person's
    yes, when all is there, to the first command of a chunk; before that one none is sent that may move."""
    words = scene.draw("arm_on_start_used", WORDS)
    with beside(scene, speaking=False, arm_on_start=True) as other:
        for word in words:
            if not scene.until(partial(asked, scene, other, word), PATIENCE_S):
                scene.judge.violate("not asked", f"{word} of another actuator")
        other.speak()
        scene.pause(BY_ITSELF_S)
        asked(scene, other, "disarm")  # the way out of a stop, and no yes
        scene.pause(NO_YES_S)
        at_ns = scene.now_ns()
        driven_ns = drives(scene, other)
        early = [each for each in other.sent if each.mono_ns < at_ns and each.state in ("armed", "holding")]
        if early:
            scene.judge.violate("armed by itself", f"{len(early)} commands after {' and '.join(words)}")
    return at_ns, driven_ns


def second_actuator(scene: SoakHarness) -> Times:
    """One stands still for longer than the lease of its commands, a second one is started and armed, and the first one
    goes on: it must say nothing. Measured to its own word that it is disarmed."""
    with beside(scene, "first") as first:
        drives(scene, first)
        first.process.send_signal(signal.SIGSTOP)
        try:
            with beside(scene, "second") as second:
                drives(scene, second)
                scene.pause(KNOWN_S)
                at_ns = scene.now_ns()

                def disarmed() -> bool:
                    return bool(first.state.get("mono_ns", 0) > at_ns and first.state["state"] == "disarmed")

                first.process.send_signal(signal.SIGCONT)
                disarmed_ns = first.state["mono_ns"] if scene.until(disarmed, PATIENCE_S) else None
                scene.pause(scene.rng.uniform(*TOGETHER_S))
                sent = [each for each in second.sent if each.mono_ns > at_ns]
        finally:
            first.process.send_signal(signal.SIGCONT)
    # Ticks of one actuator only rise: one that does not is another one's.
    mixed = sum(after.tick <= before.tick for before, after in itertools.pairwise(sent))
    if mixed or not sent:
        scene.judge.violate("two drive", f"{mixed} of {len(sent)} commands are of the one that had stood still")
    return at_ns, disarmed_ns


def log_full(scene: SoakHarness) -> Times:
    """The disk of its log is full from the start on: it starts, is armed and drives. Measured from the start."""
    at_ns = scene.now_ns()
    with beside(scene, log=FULL_DISK) as other:
        return at_ns, drives(scene, other)
