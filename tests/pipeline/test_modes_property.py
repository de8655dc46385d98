"""Every mode against the plain model of the rules: random plans, observations, stalls, epochs and environments.

What is compared is in `driver`; what is right is in `reference`, which was written from the rules alone. Of rule 1
this holds that inputs are latched once; when frames start is in `test_timeline_property`. Schedules are made from one
drawn seed: hypothesis would rather vary one long list of events a little than draw another.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, event, given, note, settings
from hypothesis import strategies as st

from auras_ros.pipeline import frame_stages, whole
from auras_ros.pipeline.plan import Plan
from tests.pipeline.driver import IDLE, Both
from tests.pipeline.recording import BLOCKS, LooseDevice

every_time_the_same = settings(derandomize=True, deadline=None)
seeds = st.integers(0, 2**32 - 1)

# What happens, how often against the others, and the range of a number that it needs.
EVENTS = {
    "advance": (10, 0, 3),  # the next of begin, run, end of one worker
    "frames": (7, 1, 14),  # some undisturbed frames, each on something new: how the pipeline fills
    "start": (5, 0, 3),  # one worker begins on something new
    "see": (4, 1, 3),
    "older": (1, 1, 2),
    "back": (1, 1, 2),  # a whole frame on what is older
    "gap": (1, 5, 40),  # it is much newer than what there was
    "lose": (1, 0, 0),  # there is nothing to see, until there is
    "force": (2, 0, 3),  # a worker begins although it does not want to
    "stall": (1, 0, 4_000_000),
    "reset": (2, -1, 1),
}


def auras_plan(choose: random.Random) -> Plan:
    return Plan(
        mode="auras",
        pp_perception=choose.randint(1, BLOCKS),
        pp_generation=choose.randint(1, 8),
        fetch_offset=choose.choice([0, -1]),
        alpha=choose.choice([0.0, 0.3, 0.5, 1.0, 2.0]),
        batched=choose.random() < 0.5,
    )


def whole_plan(choose: random.Random) -> Plan:
    if choose.random() < 0.2:
        return Plan(mode="seq")
    return Plan(mode="par", concurrency=choose.randint(1, 4), frame_period_ms=choose.choice([0.0, 1.0, 3.0]))


class Play:
    """One schedule of events, each to the executor and to the model."""

    def __init__(self, both: Both) -> None:
        self.both, self.newest = both, 1

    def see(self, newer: int = 1) -> None:
        self.newest = self.both.stamp = self.newest + newer

    def frames(self, count: int) -> None:
        for _ in range(count):
            self.see()
            for worker in range(len(self.both.states)):
                self.both.finish(worker)
                self.both.frame(worker)

    def start(self, worker: int) -> None:
        """A worker that only generates needs something that was perceived first."""
        self.see()
        if self.both.executor.plan.mode == "dec" and worker == 1:
            self.both.finish(0)
            self.both.frame(0)
        self.both.finish(worker)
        self.both.advance(worker)

    def older(self, worker: int, by: int, whole_frame: bool) -> None:
        if whole_frame:
            self.both.finish(worker)
        self.both.stamp = max(self.newest - by, 1)
        if whole_frame:
            self.both.advance(worker, forced=True)
            self.both.finish(worker)

    def happens(self, what: str, number: int) -> None:
        both, worker = self.both, number % len(self.both.states)
        if what in ("advance", "force"):
            both.advance(worker, forced=what == "force")
        elif what == "start":
            self.start(worker)
        elif what in ("older", "back"):
            self.older(worker, number, whole_frame=what == "back")
        elif what == "lose":
            both.stamp = None
        elif what == "stall":
            both.clock.advance(number)
        elif what == "reset":
            both.reset(None if number < 0 else 1_000 * number)
        elif what == "frames":
            self.frames(number)
        else:
            self.see(number)


def drive(seed: int, make: Callable[[random.Random], Plan]) -> None:
    """A plan and what happens to it, all from one seed."""
    choose = random.Random(seed)
    plan = make(choose)
    steps, environments = plan.pp_generation + choose.randint(0, 4), choose.randint(1, 3)
    stale = choose.choice([None, None, 1, 2, 4, 12])
    note(f"Both(Plan.parse({str(plan)!r}), {steps}, {environments}, stale={stale}), then:")
    both = Both(plan, steps, environments, LooseDevice(choose), stale)
    if choose.random() < 0.5:
        note("warm_up")
        both.warm_up()
    play, weights = Play(both), {what: often for what, (often, _, _) in EVENTS.items()}
    if len(both.states) > 1:  # what matters is how workers interleave
        weights |= {"advance": 40, "frames": 2}
    for what in choose.choices(list(weights), list(weights.values()), k=choose.randint(5, 15 * (1 + len(both.states)))):
        number = choose.randint(*EVENTS[what][1:])
        note(f"{what} {number}")
        play.happens(what, number)
        both.clock.advance(choose.choice([0, 0, 250_000, 1_000_000]))
    for worker, state in enumerate(both.states):
        if state != IDLE:
            both.finish(worker)
    both.close()
    event(f"{min(len(both.left), 5)} or more left")


@settings(every_time_the_same, max_examples=60)
@given(seeds)
def test_auras_does_what_the_rules_say(seed: int) -> None:
    """Rules 2 to 7, 9 and 10 for the pipelined mode: each step's observation, each chunk's frame, request and epoch."""
    drive(seed, auras_plan)


@pytest.fixture
def launched_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: what comes after is launched before what it reads is there, and only marks keep the order."""
    for module in (frame_stages, whole):
        monkeypatch.setattr(module, "launches_ahead", lambda device: True)


as_on_a_gpu = settings(
    every_time_the_same, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@as_on_a_gpu
@given(seeds)
def test_auras_launched_ahead_does_what_the_rules_say(launched_ahead: None, seed: int) -> None:
    """Rule 2: with offset 0 generation reads what this frame perceives, though it is launched before."""
    drive(seed, auras_plan)


@settings(as_on_a_gpu, max_examples=25)
@given(seeds)
def test_seq_and_par_launched_ahead_do_what_the_rules_say(launched_ahead: None, seed: int) -> None:
    drive(seed, whole_plan)


@settings(every_time_the_same, max_examples=40)
@given(seeds)
def test_seq_and_par_do_what_the_rules_say(seed: int) -> None:
    """Rules 4, 7, 9, 10 and 11; the workers begin, run and end in any interleaving."""
    drive(seed, whole_plan)


@settings(every_time_the_same, max_examples=40)
@given(seeds)
def test_dec_does_what_the_rules_say(seed: int) -> None:
    """Rules 4, 7, 9, 10 and 11; perception and generation begin, run and end in any interleaving."""
    drive(seed, lambda choose: Plan(mode="dec"))
