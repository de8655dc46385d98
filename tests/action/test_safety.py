"""Safety states: every transition, and none besides; the first reason wins."""

from __future__ import annotations

import pytest

from auras_ros.action import SafetyState
from auras_ros.action.safety import MAX_EVENTS, Safety

D, A, H, S = SafetyState.DISARMED, SafetyState.ARMED, SafetyState.HOLDING, SafetyState.STOPPED


def reach(state: SafetyState) -> Safety:
    safety = Safety()
    if state in (A, H):
        safety.arm(0, "arm")
    if state is A:
        safety.resume(0, "resume")
    if state is S:
        safety.stop(0, "first stop")
    safety.drain()
    return safety


@pytest.mark.parametrize(
    ("action", "results"),
    [
        ("arm", {D: H, A: A, H: H, S: S}),
        ("resume", {D: D, A: A, H: A, S: S}),
        ("hold", {D: D, A: H, H: H, S: S}),
        ("stop", {D: S, A: S, H: S, S: S}),
        ("disarm", {D: D, A: D, H: D, S: D}),
    ],
)
def test_every_transition(action: str, results: dict[SafetyState, SafetyState]) -> None:
    for before, after in results.items():
        safety = reach(before)
        reason = safety.reason
        getattr(safety, action)(7, "why")
        assert safety.state is after, (before, action)
        entered = before is not after or (action, before) == ("arm", H)
        assert safety.reason == ("why" if entered else reason), "the first reason stays"
        events = safety.drain()
        assert [(e.previous, e.state, e.reason, e.at_ns) for e in events] == (
            [(before, after, "why", 7)] if entered else []
        )


def test_only_armed_and_holding_are_live() -> None:
    assert [state for state in SafetyState if reach(state).live] == [A, H]


def test_uncollected_events_are_bounded_and_the_newest_stay() -> None:
    safety = Safety()
    for at_ns in range(MAX_EVENTS):
        safety.stop(at_ns, "stop")
        safety.disarm(at_ns, "disarm")
    events = safety.drain()
    assert len(events) == MAX_EVENTS
    assert events[-1].at_ns == MAX_EVENTS - 1
    assert safety.drain() == []
