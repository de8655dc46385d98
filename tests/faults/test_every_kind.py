"""Faults of `auras soak`, each once on the whole loop in processes of its own: every promise is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from auras_ros.live.soak.faults import InjectedFault, faults
from auras_ros.live.soak.harness import MS, RECOVERY_S, SoakHarness
from tests.faults.conftest import MAX_AGE_MS, RATE_HZ, arm_after_a_stall, stood_still

BUSY = 3.0  # room for a machine that has other work, in the limits of what is only named
KINDS = ("overrun", "clock_set_back", "qos_mismatch", "image_corrupt", "image_wrong", "prompt_garbage", "prompt_huge",
         "noise", "actuator_killed")  # fmt: skip
TRIES = 3
PACE = {
    "disturbed", "did not go on", "not steady", "good ones not used", "actuator_killed: not said",
    "overrun: not counted",  # an agent that gets no core begins no frame that could miss its tick
}  # fmt: skip
waited = SoakHarness.until


@pytest.mark.slow
def test_the_loop_keeps_its_promises_under_each(
    loop: Callable[[], SoakHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, known = loop(), faults(MAX_AGE_MS, RATE_HZ)
    monkeypatch.setattr(SoakHarness, "until", until)
    for kind in (each for each in KINDS if each in known):
        bags, state = {name: [*items] for name, items in harness._bags.items()}, harness.rng.getstate()
        for _ in range(TRIES):
            harness._bags = {name: [*items] for name, items in bags.items()}  # what it draws is the same again
            harness.rng.setstate(state)
            if in_time(harness, kind, known[kind]):
                break
        else:
            pytest.fail(f"{kind}: {TRIES} times too late, for '{known[kind].promise}' or in {harness.judge.violations}")


def in_time(harness: SoakHarness, kind: str, fault: InjectedFault) -> bool:
    """Play it. What was only late may be the machine's doing; any other violation fails."""
    before = Counter(harness.judge.kinds)
    arm_after_a_stall(harness)
    begin_ns, end_ns = fault.play(harness) if harness.steady() else (0, None)
    arm_after_a_stall(harness)
    assert harness.witness.driving or harness.drive(), (kind, harness.judge.violations)
    violated = harness.judge.kinds - before
    assert violated.keys() <= PACE, (kind, harness.judge.violations)
    within = fault.limit_ms is None or (end_ns or 0) - begin_ns <= fault.limit_ms * BUSY * MS
    return not violated and end_ns is not None and within


def until(harness: SoakHarness, condition: Callable[[], Any], patience_s: float | None = None) -> bool:
    """As the harness's; but one that stood still does not go on by itself, and is not waited for."""

    def over() -> bool:
        return condition() or (patience_s == RECOVERY_S and stood_still(harness))

    return waited(harness, over, patience_s) and bool(condition())
