"""Worlds as processes in lockstep: the same episodes bit for bit, and one that is killed costs its episode alone.

Guards: a lost episode that is counted as a failure, or worse as a success; one that ends the others, the evaluation or
the search; a seed compared with one that was never played to its end.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from auras_ros.cli import main as cli
from auras_ros.cli.command import INTERRUPTED
from auras_ros.evaluate import campaign as campaign_module
from auras_ros.evaluate.campaign import Campaign
from auras_ros.evaluate.charged import Charged
from auras_ros.evaluate.episode_runner import Task
from auras_ros.evaluate.episode_runners import EpisodeRunners
from auras_ros.evaluate.lockstep import Timing, play
from auras_ros.evaluate.outcome import ModeResult
from auras_ros.evaluate.parts import EvaluationPart, merge
from auras_ros.evaluate.paused import Paused
from auras_ros.evaluate.settings import EvaluationSettings, batch_of
from auras_ros.evaluate.tuner import trials as trials_module
from auras_ros.evaluate.tuner.record import EpisodeStore
from auras_ros.evaluate.tuner.requirements import Requirements
from auras_ros.evaluate.tuner.trials import Trials, TrialSettings
from auras_ros.evaluate.world_pool import WorldPool
from auras_ros.measure.durations import FrameDuration
from auras_ros.pipeline.plan import Plan
from auras_ros.sim.process.world import ProcessWorld
from auras_ros.sim.world import World, WorldLostError
from auras_ros.sim.worlds import find
from tests.evaluate.tables import tiny_checkpoint
from tests.sim.processes import all_as_processes, as_process, impatient, kill

SIM, STEPS = "pusht-drift", 12
TASK = Task(SIM, STEPS)
CLOCKS = [Paused(3), Charged({"seq": 230_000_000, "auras": 130_000_000, "par": 300_000_000}, jitter=0.2)]
PLANS = ["quick,mode=seq", "quick,pp_generation=2", "quick,mode=par,concurrency=2"]
Watch = Callable[[EpisodeRunners], None]


def killing(seed: int, step: int, how: signal.Signals = signal.SIGKILL) -> Watch:
    """Hits the world of this seed after its step of this number."""
    left = [how]

    def watch(runners: EpisodeRunners) -> None:
        for runner in runners.living().values():
            if left and (runner.seed, runner.episode.steps) == (seed, step):
                kill(runner.world, left.pop())

    return watch


def rest_of(outcome: ModeResult, seed: int) -> list[Any]:
    return [episode for episode in outcome.episodes if episode.seed != seed]


# -- lockstep -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timing", CLOCKS, ids=["paused", "charged"])
@pytest.mark.parametrize("plan", PLANS)
def test_the_same_seeds_are_the_same_episodes_in_process_and_over_the_wire(
    plan: str, timing: Timing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every record, staleness and age of a context; the coverage to its last bit."""
    checkpoint, asked = tiny_checkpoint(), Plan.parse(plan, mode="auras")
    here = play(checkpoint, asked, range(3), TASK, timing, plain=asked.mode == "par")
    all_as_processes(monkeypatch)
    made = list[World]()
    pool = WorldPool(lambda: made.append(TASK.world()) or made[-1])
    for _ in range(2):  # in new processes, and in the same ones again
        assert play(checkpoint, asked, range(3), TASK, timing, plain=asked.mode == "par", worlds=pool) == here
    assert len(made) == 3
    assert all(isinstance(each, ProcessWorld) for each in made)
    pool.close()


@pytest.mark.parametrize("timing", CLOCKS, ids=["paused", "charged"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_world_that_is_lost_ends_its_episode_and_nothing_else(
    how: signal.Signals, timing: Timing, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, plan = tiny_checkpoint(), Plan.parse("quick,pp_generation=2", mode="auras")
    whole = play(checkpoint, plan, range(3), TASK, timing)
    all_as_processes(monkeypatch)
    impatient(monkeypatch)
    cut = play(checkpoint, plan, range(3), TASK, timing, watch=killing(1, 5, how))
    assert rest_of(cut, 1) == rest_of(whole, 1)
    lost = cut.episodes[1]
    assert (lost.seed, lost.steps, lost.success) == (1, 5, False)
    said = {signal.SIGKILL: "was ended by SIGKILL", signal.SIGSTOP: "has said nothing for 2 s"}[how]
    assert lost.lost.startswith(f"pusht: the world's process {said}")
    assert (cut.lost, list(cut.won)) == ({1: lost.lost}, [0, 2])


def test_all_may_be_lost_before_the_first_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row of the batch has ever seen anything."""
    all_as_processes(monkeypatch)

    class Dying(WorldPool):
        def begin(self, seed: int) -> World:
            world = super().begin(seed)
            kill(world)
            return world

    for timing in CLOCKS:
        plan = Plan.parse("quick,pp_generation=2", mode="auras")
        outcome = play(tiny_checkpoint(), plan, range(2), TASK, timing, worlds=Dying(TASK.world))
        assert (list(outcome.lost), outcome.won, outcome.steps) == ([0, 1], {}, 0)


def test_one_may_be_lost_before_its_first_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row of the batch is somebody else's then, which nobody looks at; the other row stays its own."""
    checkpoint, plan = tiny_checkpoint(), Plan.parse("quick,mode=seq")
    alone = play(checkpoint, plan, range(2), TASK, CLOCKS[0])
    all_as_processes(monkeypatch)
    observe = EpisodeRunners.observe

    def killed_first(self: EpisodeRunners, now_ns: int, soonest_ns: int) -> None:
        if self.frames == 0 and 0 in self.living() and not self.living()[0].episode.steps:
            kill(self.living()[0].world)
        observe(self, now_ns, soonest_ns)

    monkeypatch.setattr(EpisodeRunners, "observe", killed_first)
    cut = play(checkpoint, plan, range(2), TASK, CLOCKS[0])
    assert list(cut.lost) == [0]
    assert cut.episodes[1] == alone.episodes[1]


# -- the pool -----------------------------------------------------------------------------------------------


class Counting:
    """Makes worlds; the given ones of them die before their first reset."""

    def __init__(self, *dead: int) -> None:
        self.dead, self.made = dead, list[World]()

    def __call__(self) -> World:
        self.made.append(as_process("pusht").make())
        if len(self.made) in self.dead:
            kill(self.made[-1])
        return self.made[-1]


def test_a_world_that_dies_between_two_episodes_costs_none() -> None:
    make = Counting()
    pool = WorldPool(make)
    pool.end(pool.begin(1))
    kill(make.made[0])
    again = pool.begin(1)
    assert again is make.made[1]
    assert dict(again.state()) == dict(_reset(find("pusht").make(), 1).state())
    pool.end(again)
    assert pool.begin(2) is again
    pool.close()
    again.close()


def _reset(world: World, seed: int) -> World:
    world.reset(seed)
    return world


def test_one_that_dies_when_it_begins_is_tried_again_once() -> None:
    make = Counting(1)
    WorldPool(make).begin(1).close()
    assert len(make.made) == 2
    make = Counting(1, 2)
    with pytest.raises(WorldLostError, match=r"ended by SIGKILL \(reset\)"):
        WorldPool(make).begin(1)
    assert len(make.made) == 2


# -- an evaluation ------------------------------------------------------------------------------------------


def settings() -> EvaluationSettings:
    given: dict[str, Any] = {"modes": ("seq", "auras"), "sim": SIM, "max_steps": STEPS, "frame_steps": 3}
    return EvaluationSettings("tiny@0", "quick,pp_generation=2", clocks=("paused",), **given)


def hit(monkeypatch: pytest.MonkeyPatch, seed: int, step: int, how: signal.Signals = signal.SIGKILL) -> None:
    """Hits the world of this seed in the next evaluation, in the first mode that plays it."""
    real, strike = campaign_module.play, killing(seed, step, how)

    def struck(*given: Any, **more: Any) -> ModeResult:
        *rest, watch = given

        def both(runners: EpisodeRunners) -> None:
            watch(runners)
            strike(runners)

        return real(*rest, both, **more)

    monkeypatch.setattr(campaign_module, "play", struck)


def test_an_evaluation_goes_on_with_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """One episode at a time: the killed world would be that of all that follow."""
    whole = Campaign(tiny_checkpoint(), settings(), batch=1)
    assert whole.run(range(3))
    all_as_processes(monkeypatch)
    hit(monkeypatch, 1, 4)
    cut = Campaign(tiny_checkpoint(), settings(), batch=1)
    assert cut.run(range(3))
    assert cut.seeds == [0, 1, 2]
    assert cut.outcomes["paused", "auras"] == whole.outcomes["paused", "auras"]
    seq, undisturbed = cut.outcomes["paused", "seq"], whole.outcomes["paused", "seq"]
    assert list(seq.lost) == [1]
    assert rest_of(seq, 1) == rest_of(undisturbed, 1)


def test_a_report_has_the_lost_episode_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    all_as_processes(monkeypatch)
    hit(monkeypatch, 1, 4)
    cut = Campaign(tiny_checkpoint(), settings(), batch=3)
    assert cut.run(range(3))
    part = EvaluationPart(settings(), cut.outcomes, partial=True)
    raw = json.loads(json.dumps(part.report().to_dict()))
    seq, auras = raw["rows"]
    assert (seq["episodes"], seq["lost"], auras["episodes"], auras["lost"]) == (2, 1, 3, 0)
    assert auras["both_succeed"] is not None
    assert auras["diff"] == pytest.approx((auras["successes"] - seq["successes"]) / 2)  # of the pairs that there are
    assert list(raw["episodes"]["paused/seq"]["lost"]) == ["1"]
    read = EvaluationPart.from_dict(raw)
    assert read.outcomes["paused", "seq"].lost == cut.outcomes["paused", "seq"].lost
    assert merge([read]).partial


def test_a_mode_that_has_lost_every_episode_has_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    all_as_processes(monkeypatch)
    hit(monkeypatch, 0, 4)
    cut = Campaign(tiny_checkpoint(), settings(), batch=1)
    assert cut.run(range(1))
    report = EvaluationPart(settings(), cut.outcomes, partial=True).report()
    assert (report.rows[0]["success"], report.rows[0]["episodes"]) == (None, 0)
    assert report.rows[1]["diff"] is None
    assert "success_seq_paused" not in report.summary


def test_eval_says_it_ends_with_130_and_the_same_command_plays_it_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["eval", "--sim", SIM, "--plan", "quick,pp_generation=2", "--modes", "seq,auras", "--clock", "paused"]
    argv += ["--episodes", "3", "--max-steps", "9", "--batch", "2"]
    reports = [tmp_path / f"{name}.json" for name in ("whole", "cut", "again")]
    assert cli.main([*argv, "--json", str(reports[0])]) == 0
    all_as_processes(monkeypatch)
    with monkeypatch.context() as patch:
        hit(patch, 1, 4)
        work = ["--work", str(tmp_path / "work.json"), "--out", str(tmp_path)]
        assert cli.main([*argv, *work, "--json", str(reports[1])]) == INTERRUPTED
    said = capsys.readouterr().out
    assert "PARTIAL" in said
    assert (
        "lost, and counted as no episode: paused seq, seed 1: pusht: the world's process was ended by SIGKILL" in said
    )
    played = []
    real = campaign_module.play

    def counted(checkpoint: Any, plan: Any, seeds: list[int], *rest: Any, **more: Any) -> Any:
        played.append((plan.mode, seeds))
        return real(checkpoint, plan, seeds, *rest, **more)

    monkeypatch.setattr(campaign_module, "play", counted)
    assert cli.main([*argv, *work, "--json", str(reports[2])]) == 0
    assert played == [("seq", [0, 1])]  # the others are in the file
    whole, _, again = (json.loads(path.read_text()) for path in reports)
    assert again["episodes"] == whole["episodes"]


def test_processes_are_fewer_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulator's takes a gigabyte."""
    assert batch_of("pusht", None, 64) == 64
    all_as_processes(monkeypatch)
    assert [batch_of("pusht", given, most) for given, most in ((None, 64), (None, 3), (20, 64))] == [8, 3, 20]


# -- a search -----------------------------------------------------------------------------------------------


def test_a_search_goes_on_and_plays_it_again_when_it_is_continued(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        trials_module, "measure_durations", lambda made, plans, **rest: dict.fromkeys(plans, FrameDuration(0.15, 1))
    )
    all_as_processes(monkeypatch)
    real, strike = trials_module.play, killing(1, 4)

    def struck(*given: Any, **more: Any) -> ModeResult:
        *rest, watch = given
        return real(*rest, lambda runners: (watch(runners), strike(runners)), **more)

    monkeypatch.setattr(trials_module, "play", struck)
    plan = Plan.parse("quick,pp_generation=2", mode="auras")

    def trials() -> Trials:
        made = TrialSettings(plan, TASK, Requirements(), frame_steps=3, batch=2)
        path = tmp_path / "tune.json"
        return Trials(tiny_checkpoint(), made, EpisodeStore.open(made.key(tiny_checkpoint(), SIM), path))

    first = trials()
    first.time([plan])
    first.play(plan, range(3))
    ((name, seed, why),) = first.lost
    assert (name, seed) == ("seq", 1)
    assert "ended by SIGKILL" in why
    seq, candidate = first.seq(), first.candidate(plan, range(3))
    assert seq is not None
    assert (seq.episodes, seq.lost, seq.tried) == (2, 1, 3)
    assert (candidate.episodes, candidate.lost) == (3, 0)
    assert candidate.above_seq is not None  # on the two seeds that both have
    first.play(plan, range(3))
    assert len(first.lost) == 1  # not again and again in one search
    second = trials()
    second.play(plan, range(3))
    assert second.lost == []
    assert second.seq().episodes == 3  # type: ignore[union-attr]
