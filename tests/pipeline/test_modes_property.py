"""Every mode against the plain model of the rules: random plans, observations, stalls, epochs and environments.

What is compared is in `driver`; what is right is in `reference`, which was written from the rules alone.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from auras_ros.pipeline.plan import Plan
from tests.pipeline.driver import Both
from tests.pipeline.recording import BLOCKS, LooseDevice

MAX_STAGES = 8
EXAMPLES = {"derandomize": True, "deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


@st.composite
def auras_plans(draw: st.DrawFn) -> Plan:
    return Plan(
        mode="auras",
        pp_perception=draw(st.integers(1, BLOCKS)),
        pp_generation=draw(st.integers(1, MAX_STAGES)),
        fetch_offset=draw(st.sampled_from([0, -1])),
        alpha=draw(st.sampled_from([0.0, 0.3, 0.5, 1.0, 2.0])),
        batched=draw(st.booleans()),
    )


other_plans = st.one_of(
    st.just(Plan(mode="seq")),
    st.just(Plan(mode="dec")),
    st.builds(
        lambda workers, period_ms: Plan(mode="par", workers=workers, frame_period_ms=period_ms),
        st.integers(1, 4),
        st.sampled_from([0.0, 1.0, 3.0]),
    ),
)

# One event: what happens, and a number that it needs. Strands advance far more often than anything else happens.
events = st.lists(
    st.one_of(
        *[st.tuples(st.just("advance"), st.integers(0, 3))] * 8,
        *[st.tuples(st.just("see"), st.integers(1, 3))] * 3,
        *[st.tuples(st.just("frame"), st.integers(1, 12))] * 6,
        st.tuples(st.just("older"), st.integers(1, 2)),
        st.tuples(st.just("stall"), st.integers(0, 4_000_000)),
        st.tuples(st.just("force"), st.integers(0, 3)),
        st.tuples(st.just("lose"), st.just(0)),
        st.tuples(st.just("reset"), st.sampled_from([-1, 0, 1_000])),
        st.tuples(st.just("keep"), st.integers(0, 2**16)),
    ),
    min_size=8,
    max_size=30,
)


def play(both: Both, happened: list[tuple[str, int]], newest: int = 1) -> None:
    """Each event in turn, to the executor and to the model."""
    for what, number in happened:
        strand = number % len(both.executor.strands)
        if what in ("advance", "force"):
            both.advance(strand, forced=what == "force")
        elif what == "frame":  # some undisturbed frames, each on something new: how the pipeline fills
            for _ in range(number):
                newest = both.stamp = newest + 1
                for each in range(len(both.executor.strands)):
                    both.finish(each)
                    both.frame(each)
        elif what == "see":
            newest = both.stamp = newest + number
        elif what == "older":
            both.stamp = max(newest - number, 1)
        elif what == "lose":
            both.stamp = None if both.stamp is not None else newest
        elif what == "stall":
            both.clock.advance(number)
        elif what == "reset":
            both.reset(None if number < 0 else number)
        else:
            count = len(both.environments)
            both.keep(sorted(random.Random(number).sample(range(count), max(1, count - number % 2))))


def drive(plan: Plan, data: Any, happened: list[tuple[str, int]]) -> None:
    steps = data.draw(st.integers(plan.pp_generation, plan.pp_generation + 4), "steps")
    environments = data.draw(st.integers(1, 3), "environments")
    device = LooseDevice(random.Random(data.draw(st.integers(0, 99), "order")))
    both = Both(plan, steps, environments, device)
    if data.draw(st.booleans(), "warm"):
        both.warm_up()
    play(both, happened)
    both.close()
    event(f"{min(len(both.left), 5)} or more left")


@settings(max_examples=110, **EXAMPLES)
@given(auras_plans(), st.data(), events)
def test_auras_does_what_the_rules_say(plan: Plan, data: Any, happened: list[tuple[str, int]]) -> None:
    """Rules 1 to 7, 9 and 10 for the pipelined mode: each step's observation, each chunk's frame, request and epoch."""
    drive(plan, data, happened)


@settings(max_examples=110, **EXAMPLES)
@given(other_plans, st.data(), events)
def test_the_other_modes_do_what_the_rules_say(plan: Plan, data: Any, happened: list[tuple[str, int]]) -> None:
    """Rules 1, 4, 7, 9, 10 and 11 for seq, dec and par, whose strands begin and end in any interleaving."""
    drive(plan, data, happened)
