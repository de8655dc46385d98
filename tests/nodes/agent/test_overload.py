"""The age contract: late chunks lead to the fallback plan, then to silence, and chunks in time out of it again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.nodes.agent.overload import STRIKES, WINDOW, Overload, OverloadLevel, check_age
from auras_ros.pipeline.plan import Plan, PlanError, TooSlowError
from tests.nodes.agent_child import published_ns, running

MS = 1_000_000
FREE = Plan()
GRID = Plan(frame_period_ms=100.0)
CHUNKS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 200)), max_size=60)
SLOW_FIRST = """
import time
from auras_ros.pipeline.whole import RequestWorker
run = RequestWorker.run
def slow(self):
    if self._ledger.epoch >= 0:  # not at warm-up
        time.sleep(0.5)
    run(self)
RequestWorker.run = slow
"""
SLOW_BOTH = (
    SLOW_FIRST
    + """
from auras_ros.pipeline.auras import PipelineWorker
run_too = PipelineWorker.run
def slow_too(self):
    if self._ledger.epoch >= 0:
        time.sleep(0.5)
    run_too(self)
PipelineWorker.run = slow_too
"""
)


@pytest.mark.parametrize(
    ("plan", "duration_ms", "interval_ms", "oldest_ms"),
    [
        (Plan(), 40, 40, 80),  # made in one frame, serves for another
        (Plan(frame_period_ms=400.0), 40, 400, 440),
        (Plan(frame_period_ms=30.0), 40, 40, 80),
        (Plan(mode="dec"), 40, 40, 120),
        (Plan(mode="par", concurrency=4), 40, 10, 50),
        (Plan(mode="auras", pp_generation=8), 40, 40, 80),  # the last stage sees this frame's context
        (Plan(mode="auras", pp_generation=8, fetch_offset=-1), 40, 40, 120),
        (Plan(mode="auras", pp_perception=3, pp_generation=8, fetch_offset=-1), 40, 40, 200),
    ],
    ids=str,
)
def test_how_old_actions_get(plan: Plan, duration_ms: int, interval_ms: int, oldest_ms: int) -> None:
    assert plan.interval_ns(duration_ms * MS) == interval_ms * MS
    assert plan.oldest_ns(duration_ms * MS) == oldest_ms * MS
    check_age(plan, duration_ms * MS, oldest_ms)
    check_age(plan, duration_ms * MS, 0.0)
    with pytest.raises(PlanError, match=f"{oldest_ms}.0 ms old, max_age_ms is {oldest_ms - 1}"):
        check_age(plan, duration_ms * MS, oldest_ms - 1.0)


def test_a_machine_that_may_have_been_busy_is_told_from_a_plan_that_never_can() -> None:
    """Guards against a measured duration that becomes a permanent refusal."""
    for max_age_ms in (50.0, 5.0, 0.1):  # however many times too slow
        with pytest.raises(TooSlowError):
            check_age(FREE, 40 * MS, max_age_ms)
    with pytest.raises(PlanError) as never:
        check_age(GRID, 40 * MS, 99.0)  # the grid alone is too coarse
    assert not isinstance(never.value, TooSlowError)
    for frame_ns in (200 * MS, 2_000 * MS, 2_000_000 * MS):
        with pytest.raises(TooSlowError):
            FREE.check_horizon(frame_ns, 500 * MS)
    with pytest.raises(PlanError) as never:
        Plan(frame_period_ms=200.0).check_horizon(200 * MS, 500 * MS)
    assert not isinstance(never.value, TooSlowError)


def naive(chunks: list[tuple[int, int]], max_age_ms: int, fallback: bool) -> list[OverloadLevel]:
    """The step after each chunk, from the rule's words: three of the newest ten are late, counted again after each
    step; once halted ten of ten are in time."""
    step, since, steps = OverloadLevel.FIRST, list[bool](), list[OverloadLevel]()
    for age_ms, duration_ms in chunks:
        late = max_age_ms > 0 and age_ms + max(duration_ms, 100) > max_age_ms
        strike = late or (duration_ms > 100 and step is OverloadLevel.FIRST and fallback)
        since.append(strike)
        if step is OverloadLevel.HALTED:
            if len(since) >= WINDOW and not any(since[-WINDOW:]):
                step, since = (OverloadLevel.FALLBACK if fallback else OverloadLevel.FIRST), []
        elif sum(since[-WINDOW:]) >= STRIKES:
            may_fall_back = step is OverloadLevel.FIRST and fallback
            step, since = (OverloadLevel.FALLBACK if may_fall_back else OverloadLevel.HALTED), []
        steps.append(step)
    return steps


@given(chunks=CHUNKS, max_age_ms=st.sampled_from([0, 150, 300, 1000]), fallback=st.booleans())
def test_it_goes_as_the_rule_says(chunks: list[tuple[int, int]], max_age_ms: int, fallback: bool) -> None:
    overload, steps = Overload(max_age_ms * MS, fallback), list[OverloadLevel]()
    for age_ms, duration_ms in chunks:
        before = overload.level
        assert overload.finished(GRID, age_ms * MS, duration_ms * MS) == (overload.level is not before)
        steps.append(overload.level)
    assert steps == naive(chunks, max_age_ms, fallback)
    if not fallback:
        assert OverloadLevel.FALLBACK not in steps
        assert max_age_ms > 0 or OverloadLevel.HALTED not in steps
    overload.reset()
    assert (overload.level, overload.late, overload.overruns) == (OverloadLevel.FIRST, 0, 0)


@pytest.mark.parametrize(("fallback", "after"), [(True, OverloadLevel.FALLBACK), (False, OverloadLevel.FIRST)])
def test_a_machine_that_was_busy_for_a_while_needs_no_person(fallback: bool, after: OverloadLevel) -> None:
    overload = Overload(200 * MS, fallback)
    for _ in range(2 * STRIKES):
        overload.finished(FREE, 300 * MS, 10 * MS)
    assert overload.level is OverloadLevel.HALTED
    for late in (*[False] * (WINDOW - 1), True, *[False] * (WINDOW - 1)):
        assert not overload.finished(FREE, (300 if late else 100) * MS, 10 * MS), "one late one, and all begins again"
    assert overload.finished(FREE, 100 * MS, 10 * MS)
    assert overload.level is after


@given(late=st.lists(st.booleans(), max_size=100))
def test_fewer_late_chunks_than_that_change_nothing(late: list[bool]) -> None:
    overload = Overload(200 * MS, True)
    for i in range(len(late)):
        rare = late[i] and not any(late[max(0, i - WINDOW // 2) : i])  # at most two of any ten
        late[i] = rare
        assert not overload.finished(FREE, (300 if rare else 100) * MS, 10 * MS)
    assert overload.level is OverloadLevel.FIRST


def test_an_overloaded_agent_goes_on_with_the_fallback_and_back_after_reset(checkpoint: str, tmp_path: Path) -> None:
    settings = {"max_age_ms": 800.0, "fallback_plan": "quick,mode=auras"}
    with running(checkpoint, tmp_path, code=SLOW_FIRST, **settings) as agent:
        chunks = agent.watch.chunks
        agent.watch.until(lambda: chunks and "mode=auras" in chunks[-1]["plan"], "chunks of the fallback plan")
        values = agent.diagnosed("plan", 1, "fallback plan")
        assert (values["plan"], values["level"]) == ("quick,mode=auras", "fallback")
        first = [chunk for chunk in chunks if "mode=auras" not in chunk["plan"]]
        fallback = [chunk for chunk in chunks if "mode=auras" in chunk["plan"]]
        assert len(first) >= STRIKES
        assert min(chunk["epoch"] for chunk in fallback) > max(chunk["epoch"] for chunk in first)
        assert min(chunk["request"] for chunk in fallback) > max(chunk["request"] for chunk in first)
        assert len({chunk["session"] for chunk in chunks}) == 1
        epoch = chunks[-1]["epoch"]
        assert agent.watch.call("agent/reset")[0]
        again = lambda: [c for c in chunks if c["epoch"] > epoch and "mode=auras" not in c["plan"]]  # noqa: E731
        agent.watch.until(again, "chunks of the first plan")


def test_when_the_fallback_is_late_too_nothing_is_published(checkpoint: str, tmp_path: Path) -> None:
    settings = {"max_age_ms": 800.0, "fallback_plan": "quick,mode=auras"}
    with running(checkpoint, tmp_path, code=SLOW_BOTH, **settings) as agent:
        agent.diagnosed("plan", 2, "no chunk is published")
        beats = agent.watch.beats
        agent.watch.until(lambda: beats[-1]["state"] == "overloaded", "overloaded")
        heard_ns, count = time.monotonic_ns(), len(beats)
        agent.watch.until(lambda: len(beats) > count + 100, "time for several frames more")
        assert max(published_ns(agent)) < heard_ns
        agent.says("overloaded")
        agent.logs("overloaded: the fallback plan runs", "overloaded: no chunk is published until")
        chunks = agent.watch.chunks
        count, last = len(chunks), chunks[-1]
        assert "mode=auras" in last["plan"]
        assert agent.transition("deactivate")
        assert agent.transition("activate")
        agent.chunk("chunks once active again")
        after = chunks[count]  # the very next one: none came while it was halted
        assert "mode=auras" not in after["plan"]
        assert after["epoch"] > last["epoch"]
