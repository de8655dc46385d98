"""A pipeline that stood still does not finish what it had begun: rule 9 for time instead of epochs.

While nothing is seen no frame runs. What comes out after the gap must not be half of a minute ago and half of now.
`test_modes_property` drives the same limit with random plans and gaps; the answers here are worked out by hand.
"""

from __future__ import annotations

import pytest

from auras_ros.clock import VirtualClock
from auras_ros.loading.pipeline import Pipeline, PipelineSettings
from auras_ros.pipeline.plan import Plan
from tests.pipeline.driver import Both, Left
from tests.pipeline.recording import IMAGE, mono_ns, stamp_of
from tests.policies import tiny

# Stamps are microseconds here. The record holds them in float32: up to 2**26 exact in multiples of four.
FRAME, LIMIT, GAP = 100_000, 1_600_000, 60_000_000
BEFORE, AFTER = 10, 12  # frames
EIGHT = Plan(mode="auras", pp_generation=8)


def stamps(left: Left) -> list[int]:
    return [stamp_of(context) for context in left.emission.contexts]


def frames(both: Both, first: int, count: int) -> list[int]:
    """Frames on a new observation every 100 ms; returns the number of each one that gave a chunk, from 0."""
    gave = []
    for frame in range(count):
        both.stamp = first + frame * FRAME
        if both.frame() is not None:
            gave.append(frame)
    return gave


@pytest.mark.parametrize(
    ("plan", "latency"),
    [(EIGHT, 8), (Plan(mode="auras", pp_perception=2, pp_generation=8, fetch_offset=-1), 10)],
    ids=str,
)
def test_rule_09_what_stood_still_for_a_minute_is_dropped(plan: Plan, latency: int) -> None:
    """After the gap the pipeline fills again: nothing for L - 1 frames, then a chunk every frame, of new contexts."""
    both = Both(plan, 8, 2, stale=LIMIT)
    assert plan.latency_frames == latency
    assert frames(both, FRAME, BEFORE) == list(range(latency - 1, BEFORE))
    before, admitted = len(both.left), len(both.noise.drawn)
    assert frames(both, GAP, AFTER) == list(range(latency - 1, AFTER))
    assert both.left[before].emission.request == admitted
    for left in both.left[before:]:
        assert min(stamps(left)) >= GAP
        assert left.actions[:, :8, IMAGE].min() >= GAP
    assert all(max(stamps(left)) - min(stamps(left)) <= LIMIT for left in both.left)
    both.close()


def test_without_a_limit_nothing_is_dropped() -> None:
    """Lockstep: the world may stand still for as long as it likes. And the tests above can fail."""
    both = Both(EIGHT, 8, 1)
    frames(both, FRAME, BEFORE)
    assert frames(both, GAP, AFTER) == list(range(AFTER))
    assert any(max(stamps(left)) - min(stamps(left)) > LIMIT for left in both.left)
    both.close()


@pytest.mark.parametrize(("gap", "survives"), [(1_600_000, True), (1_600_004, False)])
def test_rule_09_the_limit_counts_from_the_oldest_context_to_the_newest_observation(gap: int, survives: bool) -> None:
    """One request, two stages: the second comes just at the limit, or four microseconds after it."""
    both = Both(Plan(mode="auras", pp_generation=2), 2, 1, stale=LIMIT)
    both.stamp = FRAME
    both.frame()
    both.stamp = FRAME + gap
    left = both.frame()
    assert (left is not None) == survives
    assert left is None or stamps(left) == [FRAME, FRAME + gap]
    both.close()


@pytest.mark.parametrize("plan", ["fetch_offset=-1", "pp_perception=2"])
def test_rule_09_what_was_perceived_before_a_gap_admits_no_request_after_it(plan: str) -> None:
    """The frame after the gap could still fetch a context of before."""
    both = Both(Plan.parse(f"mode=auras,pp_generation=2,{plan}"), 2, 1, stale=LIMIT)
    both.stamp = FRAME
    both.frame()
    both.stamp = GAP
    both.frame()
    assert both.noise.drawn == []
    both.stamp = GAP + FRAME
    both.frame()
    assert both.noise.drawn == [0]
    both.close()


@pytest.mark.parametrize("plan", ["fetch_offset=-1", "pp_perception=2"])
def test_rule_09_a_request_whose_next_context_is_dropped_goes_with_it(plan: str) -> None:
    """Observations may go back: the one latched in between is too old, the request's own is not. No frame fails."""
    both = Both(Plan.parse(f"mode=auras,pp_generation=3,{plan}"), 3, 1, stale=12)
    for stamp in (10, 3, *range(20, 27)):
        both.stamp = stamp
        both.frame()
    assert [stamps(left) for left in both.left] == [[n, n + 1, n + 2] for n in range(20, 24)]
    both.close()


def test_rule_09_the_oldest_context_need_not_be_the_first() -> None:
    """Observations may go back: stages saw 10 and 3, so with a limit of 12 the request is over at 16, not at 23."""
    both = Both(Plan(mode="auras", pp_generation=3), 3, 1, stale=12)
    for stamp in (10, 3, 16):
        both.stamp = stamp
        assert both.frame() is None
    both.close()


def test_rule_09_on_a_robot_the_limit_is_the_horizon() -> None:
    """A chunk whose first context is older than its horizon has no action left to give: 8 steps of 100 ms."""
    pipeline = Pipeline(
        tiny.checkpoint(), Plan.parse("fine,mode=auras,pp_generation=3"), PipelineSettings(), VirtualClock()
    )
    assert pipeline.executor.ledger.stale_ns == mono_ns(800_000)
