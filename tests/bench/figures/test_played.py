"""`auras bench fig5`, `fig12` and `fig13`: planted durations and episodes must come out in the report as planted, and
real ones as `lockstep` plays them.

Guards: a rate or a success beside the wrong plan or clock; par's chunks aligned where they should not be; what was kept
measured again; a curve that leaves out what the agent would refuse; a gain of the wrong clock beside the paper's.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from auras_ros.bench.figures import fig5, fig12, fig13, played
from auras_ros.cli import main as cli
from auras_ros.evaluate.charged import Charged
from auras_ros.evaluate.episode_runner import Task
from auras_ros.evaluate.lockstep import play as really_play
from auras_ros.evaluate.outcome import EpisodeRecord, ModeResult
from auras_ros.evaluate.paused import Paused
from auras_ros.evaluate.tuner import trials as trials_module
from auras_ros.measure import minutes
from auras_ros.measure.durations import FrameDuration
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.checkpoint import Checkpoint
from tests.evaluate.tables import tiny_checkpoint

SEEDS = 20
SHORT = ["--plan=quick", f"--episodes={SEEDS}", "--batch=8"]


def say(text: str) -> None:
    pass


class World:
    """Planted: how long a frame takes, and how many of 20 seeds a plan solves on a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.timed: list[str] = []
        self.played: Counter[tuple[str, str, bool, int]] = Counter()
        self.interrupt_at: int | None = None
        self.frame_s = 0.1
        monkeypatch.setattr(trials_module, "measure_durations", self.measure)
        monkeypatch.setattr(trials_module, "play", self.play)

    def measure(self, checkpoint: Checkpoint, plans: Mapping[str, Plan], **rest: Any) -> dict[str, FrameDuration]:
        self.timed += [name for name in plans if name != "seq"]
        return {name: FrameDuration(self.seconds(plan), 8) for name, plan in plans.items()}

    def seconds(self, plan: Plan) -> float:
        return self.frame_s / plan.pp_generation * (1 + plan.alpha)

    @staticmethod
    def wins(plan: Plan, clock: str, plain: bool) -> int:
        if plan.mode == "seq":
            return 16
        stale = plan.concurrency if plan.mode == "par" else plan.pp_perception
        return 16 - 2 * stale - 4 * plain + (clock == "charged") + round(2 * plan.alpha)

    def play(
        self,
        checkpoint: Checkpoint,
        plan: Plan,
        seeds: Iterable[int],
        task: Task,
        timing: Charged | Paused,
        plain: bool,
        watch: object,
        worlds: object,
    ) -> ModeResult:
        outcome = ModeResult()
        for seed in seeds:
            self.played[str(plan), timing.name, plain, seed] += 1
            if self.interrupt_at is not None and self.played.total() > self.interrupt_at:
                raise KeyboardInterrupt
            won = 7 * seed % SEEDS < self.wins(plan, timing.name, plain)
            outcome.episodes.append(EpisodeRecord(seed, won, 10))
            outcome.acted(1)
        return outcome


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(played, "load", lambda folder: tiny_checkpoint())
    return World(monkeypatch)


def command(tmp_path: Path, *argv: str) -> tuple[int, dict[str, Any]]:
    code = cli.main(["bench", *argv, "--json", str(tmp_path / "it.json")])
    found: dict[str, Any] = json.loads((tmp_path / "it.json").read_text())
    return code, found


def check(world: World, report: Mapping[str, Any]) -> None:
    """Every row is what was planted for its plan and clock."""
    for row in report["rows"]:
        plan = Plan.parse(row["plan"])
        assert row["success"] == world.wins(plan, row["clock"], row["plain"]) / SEEDS, row
        assert row["low"] < row["success"] < row["high"]
        interval_s = world.seconds(plan) / plan.concurrency
        assert row["rate_hz"] == pytest.approx(1 / interval_s)
        assert row["speedup"] == pytest.approx(world.frame_s / interval_s)
    assert {times for (name, *_), times in world.played.items() if name != "quick"} == {1}
    assert len(set(world.timed)) == len(world.timed)


def test_fig12_goes_over_the_stages_of_each(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "12.png"
    stages = ["--pp-generation=1,2,3", "--pp-perception=1,2"]
    code, report = command(tmp_path, "fig12", *SHORT, *stages, "--picture", str(picture))
    assert code == 0
    check(world, report)
    where = [(row["clock"], row["panel"], row["at"]) for row in report["rows"]]
    points = [("pp_generation", n) for n in (1, 2, 3)] + [("pp_perception", n) for n in (1, 2)]
    assert where[:2] == [("paused", "", 0), ("charged", "", 0)]
    assert where[2:] == [(clock, *point) for point in points for clock in ("paused", "charged")]
    assert report["summary"]["speedup_pp_generation_3"] == pytest.approx(3)
    assert report["summary"]["success_paused_pp_perception_2"] == 12 / SEEDS
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert {said["paper"] for said in report["paper"]} >= {"figure only"}
    assert "accuracy falls severely" in capsys.readouterr().out


def test_fig13_sets_our_gain_on_the_papers_clock_beside_the_papers(world: World, tmp_path: Path) -> None:
    _, report = command(tmp_path, "fig13", *SHORT, "--alpha=0,1", "--pp-generation=2")
    check(world, report)
    summary = report["summary"]
    assert summary["rate_alpha_1_over_0"] == pytest.approx(0.5)
    assert summary["gain_percent_alpha_1"] == summary["gain_percent_alpha_1_paused"] == pytest.approx(100 * 2 / 14)
    assert summary["gain_percent_alpha_1_charged"] == pytest.approx(100 * 2 / 15)
    beside = {said["what"]: (said["paper"], said["ours"]) for said in report["paper"]}
    assert beside["accuracy gained by alpha 1"] == (23.98, summary["gain_percent_alpha_1"])
    assert beside["throughput, alpha 0"] == (11.84, pytest.approx(20))


def test_fig13_counts_the_steps_of_the_last_stage_as_the_paper_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 6.4: of 100 steps in five stages 20 are on the newest context, 64 at alpha 1."""
    report = fig13.Report("fig13")
    policy: Any = SimpleNamespace(steps=100)
    fig13._add_summary(report, argparse.Namespace(pp_generation=5), policy)
    assert report.summary == {"last_steps_percent_alpha_0": 20.0, "last_steps_percent_alpha_1": 64.0}
    said = {each.ours: each.value for each in fig13_said()}
    assert all(said[name] == value for name, value in report.summary.items())


def fig13_said() -> Any:
    from auras_ros.bench.figures.paper import PAPER

    return PAPER["fig13"]


def test_fig5_plays_stale_chunks_plain_and_aligned_beside_auras(world: World, tmp_path: Path) -> None:
    _, report = command(tmp_path, "fig5", *SHORT, "--degree=1,3", "--picture", str(tmp_path / "5.png"))
    check(world, report)
    plans = {(row["panel"], row["at"]): (row["plan"], row["plain"]) for row in report["rows"] if row["panel"]}
    assert plans["par", 3] == ("quick,mode=par,concurrency=3", True)
    assert plans["par, aligned", 3] == ("quick,mode=par,concurrency=3", False)
    assert plans["auras", 3] == ("quick,mode=auras,pp_generation=3", False)
    summary = report["summary"]
    assert summary["success_paused_par_3"] == 6 / SEEDS
    assert summary["loss_par_percent"] == summary["loss_par_percent_paused"] == pytest.approx(100 * (1 - 6 / 16))


def test_an_interrupted_figure_keeps_its_points_and_goes_on(world: World, tmp_path: Path) -> None:
    argv = ["fig12", *SHORT, "--pp-generation=1,2", "--pp-perception=1,2", "--work", str(tmp_path / "work.json")]
    world.interrupt_at = 70
    code, cut = command(tmp_path, *argv)
    assert code == 130
    assert 0 < min(row["episodes"] for row in cut["rows"]) < SEEDS
    world.interrupt_at, timed = None, len(world.timed)
    before = Counter(world.played)
    code, whole = command(tmp_path, *argv)
    assert code == 0
    assert {row["episodes"] for row in whole["rows"]} == {SEEDS}
    assert len(world.timed) == timed
    twice = [each for each, times in world.played.items() if times > 1]
    assert len(twice) <= 8  # the group that was cut, and no other
    assert all(before[each] for each in twice)
    again = command(tmp_path, *argv)[1]
    assert again["rows"] == whole["rows"]


def test_a_point_that_fails_is_named_and_the_others_are_played(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the bench, with nothing written."""
    right = world.play

    def broken(checkpoint: Checkpoint, plan: Plan, *given: Any, **more: Any) -> ModeResult:
        if plan.concurrency == 3:
            raise RuntimeError("the simulator ended")
        return right(checkpoint, plan, *given, **more)

    monkeypatch.setattr(trials_module, "play", broken)
    code, report = command(tmp_path, "fig5", *SHORT, "--degree=1,3", "--clock=paused")
    assert code == 1
    assert report["failed"] == [f"{panel} 3, paused clock: the simulator ended" for panel in fig5.PANELS[:2]]
    played = {(row["panel"], row["at"]) for row in report["rows"] if row["panel"] and row["episodes"] == SEEDS}
    assert played == {(panel, 1) for panel in fig5.PANELS} | {("auras", 3)}


def test_the_minutes_end_it_with_what_there_is(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, now_s = world.play, [0.0]

    def slow(*given: Any, **more: Any) -> ModeResult:
        now_s[0] += 60.0
        return right(*given, **more)

    monkeypatch.setattr(trials_module, "play", slow)
    for module in (played, minutes):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    code, report = command(tmp_path, "fig5", *SHORT, "--degree=1", "--clock=paused", "--minutes=4")
    assert code == 0  # a group of seq and of par, plain, and again both, aligned
    assert [each.partition(",")[0] for each in report["left_out"]] == ["auras 1"]
    assert {row["panel"]: row["episodes"] for row in report["rows"]} == {"": 8, "par": 8, "par, aligned": 8, "auras": 0}


def test_a_plan_that_the_agent_would_refuse_is_played_and_marked(world: World, tmp_path: Path) -> None:
    """Its chunks would be used up before the next one comes; the curve has its point all the same."""
    world.frame_s = 5.0
    _, report = command(tmp_path, "fig12", *SHORT, "--pp-generation=1", "--pp-perception=1,2")
    check(world, report)
    refused = [row["refused"] for row in report["rows"] if row["panel"]]
    assert all("outlast the horizon" in why for why in refused)


def test_what_is_reported_is_what_lockstep_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real loop on a tiny policy, with each plan's own timing; nothing planted but which steps are successes."""
    from tests.evaluate.tables import Tables

    checkpoint = tiny_checkpoint()
    monkeypatch.setattr(played, "load", lambda folder: checkpoint)
    monkeypatch.setattr(
        trials_module, "measure_durations", lambda made, plans, **rest: dict.fromkeys(plans, FrameDuration(0.15, 1))
    )
    Tables(monkeypatch, {0: 3, 2: 9, 3: 14})
    argv = ["--plan=quick", "--episodes=4", "--max-steps=12", "--pp-generation=2", "--pp-perception=1"]
    report = fig12.run(argv, say)
    for row in report.rows:
        timing = Paused(4) if row["clock"] == "paused" else Charged({row["mode"]: 150_000_000})
        outcome = really_play(checkpoint, Plan.parse(row["plan"]), range(4), Task("pusht-drift", 12), timing)
        assert (row["success"], row["episodes"]) == (outcome.successes / 4, 4)
        assert row["success"] == 0.5
        if row["panel"]:
            acted = sum(outcome.staleness)
            stale = sum(value * count for value, count in enumerate(outcome.staleness))
            assert row["staleness_ms"] == (stale / acted * 100 if acted else None)
            assert row["hold_share"] == sum(e.holds for e in outcome.episodes) / outcome.steps


def test_with_no_episodes_the_rates_of_an_architecture_stand_alone(world: World, tiny: str, tmp_path: Path) -> None:
    argv = ["--episodes=0", "--policy", tiny, "--steps=4", "--rounds=2", "--seconds=0", "--chunks=1", "--device=cpu"]
    argv.append("--cores=1")
    _, report = command(tmp_path, "fig13", *SHORT[:1], *argv, "--alpha=0,1", "--pp-generation=2")
    assert {row["measure"] for row in report["rows"]} == {"rate"}  # of Push-T nothing is timed: on a GPU another minute
    rates = report["rows"]
    assert {row["cores"] for row in rates} == {1}
    assert [(row["at"], row["plan"]) for row in rates] == [
        (0, "ddpm4,mode=auras,pp_generation=2"),
        (1, "ddpm4,mode=auras,pp_generation=2,alpha=1.0"),
    ]
    for row in rates:
        assert row["rate_hz"] > 0
        assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]
        assert row["rounds"] == 2
    assert report["summary"]["rate_tiny_alpha_1"] == rates[1]["rate_hz"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["fig12", "--sim=kitchen"], "sim 'kitchen' is not known"),
        (["fig12", "--clock=wall"], "clock: expected paused or charged"),
        (["fig12", "--episodes=-1"], "episodes: must be at least 0"),
        (["fig12", "--plan=quick", "--pp-generation=65"], "pp_generation"),
        (["fig13", "--plan=quick", "--alpha=-1"], "alpha"),
        (["fig13", "--plan=quick,alpha=1"], "plan: alpha is what the figure varies"),
        (["fig13", "--plan=quick", "--pp-generation=1"], "--pp-generation must be at least 2, got 1"),
        (["fig12", "--plan=quick", "--seed=4294967"], "seed: must be in"),
        (["fig5", "--plan=quick", "--degree=0"], "concurrency"),
        (["fig5", "--work=nowhere/at/all.json"], "work: no folder"),
        (["fig5", "--json=nowhere/it.json"], "--json: no folder"),
        (["ros", "--picture=it.png"], "--picture: ros draws no picture"),
    ],
)
def test_options_that_cannot_be_used(
    world: World, argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", *argv])
    assert said in capsys.readouterr().err
    assert not world.timed


def test_help_is_the_figures_own(capsys: pytest.CaptureFixture[str]) -> None:
    for name, option in (("fig5", "--degree"), ("fig12", "--pp-perception"), ("fig13", "--alpha")):
        with pytest.raises(SystemExit):
            cli.main(["bench", name, "--help"])
        assert option in capsys.readouterr().out
    assert fig5.PANELS[0] == "par"
