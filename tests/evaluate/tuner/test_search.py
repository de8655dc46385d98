"""The search on made-up speeds and skills: durations and episodes are planted, everything else is the real thing.

Guards: a plan played that is too slow or too old; the better half left behind; a winner that misses what was asked for;
what was measured measured again; a record of other settings mixed in; a plan charged for a machine that was busy.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from auras_ros import resources
from auras_ros.evaluate.charged import Charged
from auras_ros.evaluate.episode_runner import Task
from auras_ros.evaluate.outcome import EpisodeRecord, ModeResult
from auras_ros.evaluate.settings import SettingsError
from auras_ros.evaluate.tuner import trials as trials_module
from auras_ros.evaluate.tuner.bayes import bayes
from auras_ros.evaluate.tuner.record import EpisodeStore
from auras_ros.evaluate.tuner.requirements import Requirements
from auras_ros.evaluate.tuner.search import FRESH, Effort, Search, halving, pareto
from auras_ros.evaluate.tuner.show import rows, table
from auras_ros.evaluate.tuner.space import Space
from auras_ros.evaluate.tuner.trials import Trials, TrialSettings
from auras_ros.measure.durations import FrameDuration
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.loaders.open import load

BASE = Plan("quick", mode="auras")
SPACE = Space(BASE, (1, 2), (1, 2, 4), alpha=(0.0, 0.5))
ANYTHING = Requirements()
SKILL = {1: 0.9, 2: 0.7, 4: 0.5}  # share of successes by pp_generation


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return load(resources.checkpoint("pusht"))


class World:
    """Planted durations and episodes. slow: the whole machine takes that many times as long."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.timed: list[str] = []
        self.played: Counter[tuple[str, int]] = Counter()
        self.charged_s: dict[str, float] = {}
        self.slow = 1.0
        self.luck = 0.0  # how much less often a plan succeeds on fresh seeds than on those of the search
        self.interrupt_at: int | None = None
        monkeypatch.setattr(trials_module, "measure_durations", self.measure)
        monkeypatch.setattr(trials_module, "play", self.play)

    def measure(self, checkpoint: Checkpoint, plans: Mapping[str, Plan], **rest: Any) -> dict[str, FrameDuration]:
        assert "seq" in plans  # beside every plan
        self.timed += [name for name in plans if name != "seq"]
        return {name: FrameDuration(self.slow * self.seconds(plan), 8) for name, plan in plans.items()}

    @staticmethod
    def seconds(plan: Plan) -> float:
        if plan.mode == "seq":
            return 0.1
        return 0.1 / plan.pp_generation * (1.0 + plan.alpha)

    def play(
        self,
        checkpoint: Checkpoint,
        plan: Plan,
        seeds: Iterable[int],
        task: Task,
        timing: Charged,
        plain: bool,
        watch: object,
        worlds: object,
    ) -> ModeResult:
        assert not plain
        outcome, name = ModeResult(), str(plan)
        self.charged_s[name] = timing.durations_ns[plan.mode] / 1e9
        for seed in seeds:
            self.played[name, seed] += 1
            if self.interrupt_at is not None and sum(self.played.values()) > self.interrupt_at:
                raise KeyboardInterrupt
            share = 0.8 if plan.mode == "seq" else SKILL[plan.pp_generation] + (0.1 if plan.alpha else 0.0)
            share -= self.luck if plan.mode != "seq" and seed >= FRESH else 0.0
            outcome.episodes.append(EpisodeRecord(seed, 3 * seed % 10 < round(10 * share), 10))
            outcome.acted(plan.pp_perception)
        return outcome

    def most(self) -> Counter[str]:
        """Episodes of each plan."""
        return Counter(name for name, _ in self.played)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


Make = Callable[..., Search]


@pytest.fixture
def make(checkpoint: Checkpoint) -> Make:
    def made(
        wanted: Requirements = ANYTHING,
        space: Space = SPACE,
        work: Path | None = None,
        confirm: int = 0,
        episodes: int = 40,
    ) -> Search:
        key = {"sim": "planted"}
        both = [
            Trials(checkpoint, TrialSettings(BASE, Task(), wanted, batch=7), EpisodeStore.open(key, path))
            for path in (work, None if work is None else work.with_suffix(".fresh"))
        ]
        return Search(both[0], both[1], space, Effort(10, episodes, confirm=confirm), seed=0)

    return made


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
    kept = {(one.plan.pp_perception, one.plan.pp_generation) for one in result.candidates if one.episodes}
    assert kept == {(1, 4), (2, 4)}  # 2 frames of 25 ms, and 3; with 2 stages they are 50 ms long


def test_a_slow_machine_makes_no_plan_worse(world: World, make: Make) -> None:
    """Two rounds of timing, the second while something else runs: what is charged is the ratio to seq."""
    search = make()
    search.time([Plan("quick", "auras", pp_generation=2)])
    world.slow = 5.0
    search.time([Plan("quick", "auras", pp_generation=4)])
    for plan in (Plan("quick", "auras", pp_generation=2), Plan("quick", "auras", pp_generation=4)):
        search.play(plan, 10)
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
    world.interrupt_at = 45
    cut = make(work=work).run(halving)
    assert cut.partial
    assert cut.chosen is None
    assert any(one.episodes for one in cut.candidates)
    kept = {
        (name, int(seed))
        for name, each in json.loads(work.read_text())["played"].items()
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
