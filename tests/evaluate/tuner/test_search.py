"""The search on made-up speeds and skills: durations and episodes are planted, everything else is the real thing.

Guards: a plan played that is too slow or too old; the better half left behind; a winner that misses what was asked for;
what was measured measured again; a record of other settings mixed in; a plan charged for a machine that was busy.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from auras_ros.evaluate.settings import SettingsError
from auras_ros.evaluate.tuner.bayes import bayes
from auras_ros.evaluate.tuner.candidate import pareto
from auras_ros.evaluate.tuner.record import EpisodeStore
from auras_ros.evaluate.tuner.requirements import Requirements
from auras_ros.evaluate.tuner.search import FRESH, halving
from auras_ros.evaluate.tuner.show import rows, table
from auras_ros.evaluate.tuner.space import Space
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.checkpoint import Checkpoint
from tests.evaluate.tuner.planted import ANYTHING, BASE, SPACE, Make, World


def test_the_grid_is_every_number_of_stages_that_the_policy_can_have(checkpoint: Checkpoint) -> None:
    policy = checkpoint.policy("quick")
    found = {(plan.pp_perception, plan.pp_generation) for plan in SPACE.grid(policy)}
    assert found == {(p, g) for p in (1, 2) for g in (1, 2, 4)}
    assert all(plan.fetch_offset == 0 and plan.alpha == 0.0 for plan in SPACE.grid(policy))
    short = Space(BASE, (1, 2), (1, 2, 4), longest=3)
    assert {(plan.pp_perception, plan.pp_generation) for plan in short.grid(policy)} == {(1, 1), (1, 2), (2, 1), (2, 2)}
    with pytest.raises(SettingsError, match="9 stages for 8 generation steps"):
        Space(BASE, (1,), (9,)).grid(policy)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"pp_perception": (1, 1)}, "pp_perception: expected each once and in \\[1, 64\\], got 1,1"),
        ({"pp_generation": (0,)}, "pp_generation"),
        ({"fetch_offset": (1,)}, "fetch_offset"),
        ({"alpha": (-1.0,)}, "alpha"),
        ({"pp_generation": ()}, "at least one value"),
        ({"longest": 0}, "longest"),
        ({"base": Plan("quick")}, "mode: only plans of mode auras"),
    ],
)
def test_a_space_that_cannot_be_is_refused_by_field(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        Space(**{"base": BASE, **settings})


def test_only_what_is_fast_enough_is_played_and_the_better_half_goes_on(world: World, make: Make) -> None:
    result = make(Requirements(rate_of_seq=1.5, below_seq=0.15)).run(halving)
    most = world.most()
    assert not any("pp_generation" not in name for name in most if name != "quick"), most  # one stage is as slow as seq
    assert most["quick"] == 40  # seq, on every seed
    assert sorted(count for name, count in most.items() if name != "quick") == [10, 10, 40, 40]
    assert set(world.played.values()) == {1}
    assert result.chosen is not None
    assert result.chosen.plan == Plan("quick", "auras", pp_generation=2)
    assert (result.chosen.episodes, result.chosen.success) == (40, 0.7)
    assert result.chosen.speedup == pytest.approx(2.0)
    assert result.chosen.above_seq == pytest.approx(-0.1)
    refused = {str(one.plan): one.refused for one in result.candidates}
    assert refused["quick,mode=auras"] == "1.00 times seq's rate, wanted 1.5"
    assert refused["quick,mode=auras,pp_generation=4"] == "dropped after 10 episodes"


def test_the_skew_of_the_best_is_tuned_and_may_win(world: World, make: Make) -> None:
    result = make(Requirements(rate_of_seq=1.2)).run(halving)
    assert result.chosen is not None
    assert result.chosen.plan == Plan("quick", "auras", pp_perception=1, pp_generation=2, alpha=0.5)
    assert result.chosen.success == 0.8
    assert world.most()[str(result.chosen.plan)] == 40


def test_where_nothing_is_good_enough_nothing_is_chosen(world: World, make: Make) -> None:
    result = make(Requirements(rate_of_seq=3.0, below_seq=0.0)).run(halving)
    assert result.chosen is None
    assert any(one.success == 0.5 for one in result.candidates)  # it was played, and is shown


def test_an_age_bound_is_the_plans_own(world: World, make: Make) -> None:
    result = make(Requirements(max_age_ms=80.0)).run(halving)
    played = [one.plan for one in result.candidates if one.episodes and one.plan.mode == "auras"]
    kept = {(plan.pp_perception, plan.pp_generation) for plan in played}
    assert kept == {(1, 4), (2, 4)}  # 2 frames of 25 ms, and 3; with 2 stages they are 50 ms long


def test_a_slow_machine_makes_no_plan_worse(world: World, make: Make) -> None:
    """Two rounds of timing, the second while something else runs: what is charged is the ratio to seq."""
    search = make()
    (generation,) = search.trials
    (two,) = search.time(generation, [Plan("quick", "auras", pp_generation=2)])
    world.slow = 5.0
    (four,) = search.time(generation, [Plan("quick", "auras", pp_generation=4)])
    for one in (two, four):
        search.play(one, 10)
    assert world.charged_s["quick,mode=auras,pp_generation=2"] == pytest.approx(0.05)
    assert world.charged_s["quick,mode=auras,pp_generation=4"] == pytest.approx(0.025)
    assert world.charged_s["quick"] == pytest.approx(0.1)


def test_the_chosen_plan_is_played_again_on_seeds_that_the_search_has_not_seen(world: World, make: Make) -> None:
    result = make(confirm=20).run(halving)
    assert result.chosen is not None
    assert result.confirmed is not None
    fresh = {(name, seed) for name, seed in world.played if seed >= FRESH}
    assert fresh == {(name, FRESH + i) for name in ("quick", str(result.chosen.plan)) for i in range(20)}
    assert result.confirmed.episodes == 20
    assert result.summary()["confirmed_success"] == result.confirmed.success
    assert result.found == result.chosen
    assert rows(result)[-1]["fresh_seeds"]
    assert "the chosen plan on new seeds" in table(result)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (Requirements(below_seq=0.03), "success -20.0 points against seq, wanted -3.0"),
        (Requirements(success=0.7), "success 60.0%, wanted 70.0%"),
        (ANYTHING, ""),
    ],
)
def test_a_plan_that_was_lucky_on_the_seeds_of_the_search_is_not_found(
    world: World, make: Make, wanted: Requirements, why: str
) -> None:
    world.luck = 0.3
    result = make(wanted, confirm=20).run(halving)
    assert result.chosen is not None
    assert (result.chosen.success, result.confirmed and result.confirmed.success) == (0.9, 0.6)
    assert result.unconfirmed == why
    assert result.found == (None if why else result.chosen)
    assert result.summary()["confirmed"] == (0.0 if why else 1.0)
    assert f"the chosen plan on new seeds{why and ': '}{why}" in table(result)


def test_an_interrupted_search_shows_what_there_is_and_goes_on(world: World, make: Make, tmp_path: Path) -> None:
    work = tmp_path / "tune.json"
    world.interrupt_at = 55
    cut = make(work=work).run(halving)
    assert cut.partial
    assert cut.chosen is not None
    assert cut.chosen.plan.mode == "seq"  # nothing else was played to the end
    assert any(one.episodes for one in cut.candidates if one.plan.mode == "auras")
    kept = {
        (name, int(seed))
        for name, each in json.loads(work.read_text())["records"][0]["played"].items()
        for seed in each["seeds"].split()
    }
    before, timed = set(world.played), len(world.timed)
    world.interrupt_at = None
    result = make(work=work).run(halving)
    assert not result.partial
    assert result.chosen is not None
    again = {one for one in before if world.played[one] > 1}
    assert not again & {("quick" if name == "seq" else name, seed) for name, seed in kept}  # kept is not played again
    assert len(world.timed) == timed  # nor timed
    assert table(make(work=work).run(halving)) == table(result)  # all of it from the record
    world.interrupt_at = 0
    more = make(work=work, episodes=41).run(halving)
    known = {str(one.plan): one for one in more.candidates}
    assert known.keys() == {str(one.plan) for one in result.candidates if not one.plan.alpha}
    assert known["quick"].refused == "interrupted after 40 episodes"


@pytest.mark.parametrize("episodes", [20, 40])
def test_plans_are_compared_on_the_same_seeds_whatever_an_earlier_search_left(
    world: World, make: Make, tmp_path: Path, episodes: int
) -> None:
    """Guards against a plan that wins because it was played more often, in a space or an effort that is another now."""
    work = tmp_path / "tune.json"
    assert make(space=Space(BASE, (1,), (2, 4), alpha=()), work=work, episodes=80).run(halving).chosen is not None
    wider = Space(BASE, (1,), (1, 2, 4), alpha=())
    result = make(space=wider, work=work, episodes=episodes).run(halving)
    assert result.chosen is not None
    assert (result.chosen.plan.pp_generation, result.chosen.success) == (1, 0.9)
    assert max(one.episodes for one in result.candidates) == episodes


def test_a_plan_whose_confirmation_was_interrupted_is_not_found(world: World, make: Make, tmp_path: Path) -> None:
    work = tmp_path / "tune.json"
    make(work=work).run(halving)
    world.interrupt_at = sum(world.played.values()) + 3
    cut = make(work=work, confirm=20).run(halving)
    assert cut.partial
    assert cut.chosen is not None
    assert cut.confirmed is None
    assert (cut.found, cut.unconfirmed) == (None, "interrupted before it was over")


def test_a_confirmation_that_was_charged_otherwise_is_played_again(world: World, make: Make, tmp_path: Path) -> None:
    """The search's own record is gone, that of the confirmation is not, and the machine has another pace today."""
    work = tmp_path / "tune.json"
    make(work=work, confirm=10).run(halving)
    work.unlink()
    world.slow = 2.0
    result = make(work=work, confirm=10).run(halving)
    assert result.confirmed is not None
    assert world.played[str(result.confirmed.plan), FRESH] == 2
    assert world.charged_s["quick"] == pytest.approx(0.2)
    assert make(work=work, confirm=10).run(halving).confirmed == result.confirmed
    assert world.played[str(result.confirmed.plan), FRESH] == 2


def test_a_record_of_other_settings_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tune.json"
    EpisodeStore.open({"sim": "pusht", "max_steps": 300}, path).save()
    assert EpisodeStore.open({"sim": "pusht", "max_steps": 300}, path).played == {}
    with pytest.raises(SettingsError, match="was made with max_steps 300, not 60; use another --work file"):
        EpisodeStore.open({"sim": "pusht", "max_steps": 60}, path)
    for text in ("[]", '{"format": "auras-tune/1", "key": [1], "timed": {}, "played": {}}'):
        path.write_text(text)
        with pytest.raises(SettingsError, match="not a record of `auras tune`"):
            EpisodeStore.open({"sim": "pusht"}, path)


def test_the_front_is_what_no_other_beats_in_both(world: World, make: Make) -> None:
    result = make(space=Space(BASE, (1,), (1, 2, 4), alpha=())).run(halving)
    front = pareto(result.candidates)
    played = [one for one in result.candidates if not one.refused]
    assert [one.rate_hz for one in front] == sorted(one.rate_hz for one in front)
    for one in played:
        beaten = any(
            other.rate_hz >= one.rate_hz and (other.success or 0) >= (one.success or 0) and other is not one
            for other in played
        )
        assert (one in front) != beaten


def test_optuna_asks_for_the_same_plans_again_and_finds_them_played(world: World, make: Make, tmp_path: Path) -> None:
    work = tmp_path / "tune.json"
    wanted = Requirements(rate_of_seq=1.5)
    first = make(wanted, work=work).run(bayes(8, seed=3))
    played = dict(world.played)
    assert first.chosen is not None
    assert first.chosen.speedup >= 1.5
    assert all(one.episodes in (0, 40) for one in first.candidates)
    again = make(wanted, work=work).run(bayes(8, seed=3))
    assert world.played == played
    assert table(again) == table(first)
