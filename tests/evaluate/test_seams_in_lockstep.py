"""Seams in lockstep: every one is counted, and the actuator ticks between the world's steps.

Guards: a watch that changes what it watches; a tick at another time than its own; a world that is told something else
because the actuator ticks more often; a task whose seam is not its stream's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from auras_ros.action import ActionStream, Chunk, Contract, ContractError
from auras_ros.evaluate.charged import Charged
from auras_ros.evaluate.episode_runner import Task
from auras_ros.evaluate.lockstep import Timing, play
from auras_ros.evaluate.paused import Paused
from auras_ros.evaluate.seams import Seams
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.train.pusht_task import PUSHT
from tests.evaluate.tables import DT, MS, Script, Tables, same, scripted_checkpoint, tiny_checkpoint

TICK = 10 * MS

TIMINGS = [Charged({"seq": ms * MS}) for ms in (0, 30, 137, 200, 360, 1450)] + [Paused(4)]


@pytest.mark.parametrize("timing", TIMINGS, ids=str)
def test_a_world_is_told_the_same_however_often_the_actuator_ticks(
    monkeypatch: pytest.MonkeyPatch, timing: Timing
) -> None:
    """As long as nothing goes by ticks: no blend, and no limit on the rate."""
    given = PUSHT.contract
    free = Contract(tuple(replace(each, max_rate=None) for each in given.channels), given.dt_ms)
    checkpoint, found = cast(Checkpoint, scripted_checkpoint(contract=free)), []
    for ticks in (1, 10, 4):
        tables = Tables(monkeypatch)
        Script().install(monkeypatch, 1)
        outcome = play(checkpoint, Plan(), [3], Task(max_steps=30, ticks_per_step=ticks), timing)
        found.append((outcome, tables.take()))
    for outcome, worlds in found[1:]:
        assert outcome == found[0][0]
        same(worlds, found[0][1])


def test_watching_changes_nothing_and_counts_every_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real executor on two tables; every chunk but each table's first makes a seam."""
    checkpoint, tables = tiny_checkpoint(), Tables(monkeypatch)
    task, timing = Task("pusht-drift", 12, ticks_per_step=10), Charged({"seq": 230 * MS})
    unwatched = play(checkpoint, Plan.parse("quick"), [3, 4], task, timing)
    worlds, counted = tables.take(), Seams()
    assert play(checkpoint, Plan.parse("quick"), [3, 4], task, timing, seams=counted) == unwatched
    same(tables.take(), worlds)
    assert counted.count == counted.disagreements.total() == unwatched.chunks - 2


def test_a_chunk_that_came_too_late_is_no_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    Script().install(monkeypatch, 1)
    plan, counted = Plan(mode="par", concurrency=6), Seams()
    outcome = play(cast(Checkpoint, scripted_checkpoint()), plan, [3], Task(max_steps=30), Paused(4), seams=counted)
    assert outcome.episodes[0].refused == outcome.chunks > 1
    assert counted == Seams()


@pytest.mark.parametrize("timing", [Charged({"seq": 137 * MS}), Paused(4)], ids=str)
def test_ticks_stand_at_their_own_times_and_a_chunk_is_there_before_the_tick_of_its_instant(
    monkeypatch: pytest.MonkeyPatch, timing: Timing
) -> None:
    calls: list[tuple[str, int]] = []
    tick, offer = ActionStream.tick, ActionStream.offer

    def noted_tick(self: ActionStream, now_ns: int) -> Any:
        calls.append(("tick", now_ns))
        return tick(self, now_ns)

    def noted_offer(self: ActionStream, each: Chunk, now_ns: int) -> Any:
        calls.append(("offer", now_ns))
        return offer(self, each, now_ns)

    monkeypatch.setattr(ActionStream, "tick", noted_tick)
    monkeypatch.setattr(ActionStream, "offer", noted_offer)
    Script().install(monkeypatch, 1)
    play(cast(Checkpoint, scripted_checkpoint()), Plan(), [3], Task(max_steps=20, ticks_per_step=10), timing)
    assert [at_ns for what, at_ns in calls if what == "tick"] == list(range(DT, 20 * DT + 1, TICK))
    assert [at_ns for _, at_ns in calls] == sorted(at_ns for _, at_ns in calls)
    assert sum(what == "offer" for what, _ in calls) >= 5
    order = [(at_ns, what == "tick") for what, at_ns in calls]
    assert order == sorted(order)  # an offer, then the tick of that instant


def test_the_seam_of_a_task_is_its_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of the random policy disagree widely; blended they jump by less, averaged by less than by switching."""
    checkpoint, jumps = tiny_checkpoint(), {}
    for name, how in {"switch": {}, "blend": {"blend_ms": 80.0}, "ensemble": {}}.items():
        task, counted = Task("pusht", 20, seam=name, ticks_per_step=10, **cast(Any, how)), Seams()
        play(checkpoint, Plan.parse("quick"), [3], task, Charged({"seq": 200 * MS}), seams=counted)
        jumps[name] = counted.figures()["jump_median"] or 0.0
    assert jumps["blend"] < jumps["switch"] / 3
    assert jumps["ensemble"] < jumps["switch"]


@pytest.mark.parametrize("ticks", [0, -1, 3])
def test_ticks_that_do_not_fill_a_step_are_refused(ticks: int) -> None:
    checkpoint = cast(Checkpoint, scripted_checkpoint())
    with pytest.raises(ValueError, match=f"ticks_per_step: {ticks} do not fill"):
        play(checkpoint, Plan(), [3], Task(ticks_per_step=ticks), Paused(1))


def test_a_seam_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(ContractError, match="seam: 'wish'"):
        play(cast(Checkpoint, scripted_checkpoint()), Plan(), [3], Task(seam="wish"), Paused(1))
