"""A search over several generation plans and checkpoints, on planted durations and episodes.

Guards: rates of generation plans that were not timed together; a pipeline compared with the worse of two seq; a plan
that goes on for being the best of a bad generation plan; a few-step seq that is better and yet not chosen; a file of an
earlier version, or of other generation plans, that is thrown away.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from auras_ros.evaluate.tuner.bayes import bayes
from auras_ros.evaluate.tuner.requirements import Requirements
from auras_ros.evaluate.tuner.search import FRESH, halving
from auras_ros.evaluate.tuner.show import rows, table
from auras_ros.evaluate.tuner.space import Space
from auras_ros.pipeline.plan import Plan
from tests.evaluate.tuner.planted import BASE, Make, World

BOTH = (("pusht", "quick"), ("pusht", "ddpm100"))
SMALL = Space(replace(BASE, generation=""), (1,), (1, 2, 4), alpha=())


@pytest.fixture(autouse=True)
def many_steps_take_longer(world: World) -> None:
    world.longer = {"ddpm100": 4.0}


def test_every_seq_is_played_on_all_seeds_and_the_best_is_what_all_are_compared_with(world: World, make: Make) -> None:
    world.better = {"ddpm100": 0.1}
    result = make(space=SMALL, generations=BOTH).run(halving)
    assert world.together == [{"pusht quick", "pusht ddpm100"}]
    seqs = {one.plan.generation: one for one in result.candidates if one.plan.mode == "seq"}
    assert {name: (one.episodes, one.success) for name, one in seqs.items()} == {
        "quick": (40, 0.8),
        "ddpm100": (40, pytest.approx(0.9)),
    }
    assert result.seq == seqs["ddpm100"]
    assert result.seq.above_seq is None
    assert (seqs["quick"].above_seq, seqs["quick"].speedup) == (pytest.approx(-0.1), pytest.approx(4.0))
    (best,) = [row for row in rows(result) if row["best_seq"]]
    assert (best["checkpoint"], best["generation"], best["mode"]) == ("pusht", "ddpm100", "seq")
    (line,) = [line for line in table(result).splitlines() if "ddpm100 (seq)" in line]
    assert line.startswith("pusht")
    assert line.endswith("best seq")


def test_a_plan_is_charged_as_its_generation_plan_was_timed_beside_the_others(world: World, make: Make) -> None:
    """The machine was three times slower when the plans were timed than when all seq were."""
    search = make(space=SMALL, generations=BOTH)
    search.play_seqs()
    world.slow = 3.0
    for generation in search.trials:
        search.time(generation, search.grid(generation))
    two = {one.plan.generation: one for one in search.candidates() if one.plan.pp_generation == 2}
    assert two["quick"].rate_hz == pytest.approx(20.0)
    assert two["ddpm100"].rate_hz == pytest.approx(5.0)


def test_the_better_half_is_that_of_all_together(world: World, make: Make) -> None:
    world.better = {"ddpm100": 0.1}
    make(space=SMALL, generations=BOTH).run(halving)
    most = world.most()
    # with 10 seeds each: 1.0, 0.9, 0.8 for 1 stage, 1 stage of the other, 2 stages; the others are dropped
    assert {name for name, count in most.items() if count == 40} == {
        "quick", "ddpm100", "ddpm100,mode=auras", "quick,mode=auras",
    }  # fmt: skip
    assert most["quick,mode=auras,pp_generation=4"] == 10


@pytest.mark.parametrize(("seq", "chosen"), [(1.0, "quick"), (0.8, "quick,mode=auras"), (0.9, "quick")])
def test_a_seq_of_few_steps_may_win_and_does_if_a_pipeline_gains_nothing(
    world: World, make: Make, seq: float, chosen: str
) -> None:
    world.seq, world.better = seq, {"ddpm100": -0.2}
    result = make(space=SMALL, generations=BOTH).run(halving)
    assert result.chosen is not None
    assert str(result.chosen.plan) == chosen
    assert result.seq is not None
    assert result.seq.plan == Plan("quick")


def test_a_rate_is_a_multiple_of_the_best_seqs(world: World, make: Make) -> None:
    """That of few steps is better; a pipeline of many steps is only 4 times faster than its own."""
    result = make(Requirements(rate_of_seq=1.5), space=SMALL, generations=BOTH).run(halving)
    refused = {str(one.plan): one.refused for one in result.candidates}
    assert refused["ddpm100,mode=auras,pp_generation=4"] == "1.00 times seq's rate, wanted 1.5"
    assert refused["quick"] == "1.00 times seq's rate, wanted 1.5"
    assert refused["quick,mode=auras,pp_generation=2"] == ""
    assert result.chosen is not None
    assert result.chosen.plan == Plan("quick", "auras", pp_generation=2)


def test_the_chosen_plan_and_the_best_seq_alone_are_played_on_new_seeds(world: World, make: Make) -> None:
    world.better = {"ddpm100": -0.1}
    wanted = Requirements(rate_of_seq=1.5)
    result = make(wanted, space=SMALL, generations=BOTH, confirm=20).run(halving)
    assert {name for name, seed in world.played if seed >= FRESH} == {"quick", "quick,mode=auras,pp_generation=2"}
    world.better = {"ddpm100": 0.1}
    world.longer = {"ddpm100": 0.5}
    world.played.clear()
    result = make(space=Space(replace(BASE, generation=""), (1,), (4,), alpha=()), generations=BOTH, confirm=20).run(
        halving
    )
    assert result.chosen is not None
    assert result.chosen.plan == Plan("ddpm100")  # the best seq itself
    assert {name for name, seed in world.played if seed >= FRESH} == {"ddpm100"}
    assert result.confirmed is not None
    assert (result.confirmed.episodes, result.confirmed.above_seq, result.unconfirmed) == (20, None, "")


def test_checkpoints_with_plans_of_one_name_are_told_apart(world: World, make: Make) -> None:
    result = make(space=SMALL, generations=(("pusht", "quick"), ("mine", "quick"))).run(halving)
    assert len(result.candidates) == 8
    assert {(row["checkpoint"], row["plan"]) for row in rows(result) if row["mode"] == "seq"} == {
        ("pusht", "quick"),
        ("mine", "quick"),
    }
    assert sum(row["chosen"] for row in rows(result)) == 1
    assert sum(row["best_seq"] for row in rows(result)) == 1


def test_a_file_keeps_what_this_search_does_not_ask_for(world: World, make: Make, tmp_path: Path) -> None:
    work = tmp_path / "tune.json"
    make(space=SMALL, work=work, generations=BOTH).run(halving)
    make(space=SMALL, work=work, generations=BOTH[1:]).run(halving)
    make(space=SMALL, work=work, generations=BOTH[::-1]).run(halving)
    assert set(world.played.values()) == {1}
    assert len(set(world.timed)) == len(world.timed)
    assert len(world.together) == 1


def test_a_file_of_the_earlier_version_is_gone_on_from(world: World, make: Make, tmp_path: Path) -> None:
    """It had one generation plan, and no time of seq alone: that of the others is scaled to it."""
    work = tmp_path / "tune.json"
    world.slow = 0.25
    make(space=SMALL, work=work).run(halving)
    made = json.loads(work.read_text())
    ((record,), key) = (made["records"], made["key"])
    del record["timed"]["seq"]
    own = {name: record.pop(name) for name in ("checkpoint", "seq")}
    work.write_text(json.dumps({"format": "auras-tune/1", "key": key | own, **record}))
    world.slow = 1.9
    played = world.played.copy()
    make(space=SMALL, work=work, generations=BOTH).run(halving)
    assert {name for name, _ in world.played - played} >= {"ddpm100", "ddpm100,mode=auras"}
    assert not any(name.startswith("quick") and seed < 10 for name, seed in world.played - played)
    assert world.charged_s["ddpm100"] == pytest.approx(0.25 * 0.4)


def test_optuna_chooses_among_generation_plans_too_and_again_the_same(world: World, make: Make, tmp_path: Path) -> None:
    work = tmp_path / "tune.json"
    first = make(space=SMALL, work=work, generations=BOTH).run(bayes(8, seed=3))
    played = world.played.copy()
    assert {one.plan.generation for one in first.candidates if one.plan.mode == "auras"} == {"quick", "ddpm100"}
    assert table(make(space=SMALL, work=work, generations=BOTH).run(bayes(8, seed=3))) == table(first)
    assert world.played == played
