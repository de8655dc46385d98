"""`auras bench seams`: what is reported is what lockstep plays, with the latency, the join and the ticks of its row.

Guards: a row beside another one's figures; a latency that a mode is charged twice or not at all; a difference against
other seeds; what was kept played again, or joined with what was played otherwise.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from auras_ros.bench.seams import command as bench
from auras_ros.bench.seams import game
from auras_ros.cli import main as cli
from auras_ros.evaluate.charged import Charged
from auras_ros.evaluate.episode_runner import Task
from auras_ros.evaluate.lockstep import play as really_play
from auras_ros.evaluate.outcome import EpisodeRecord, ModeResult
from auras_ros.evaluate.seams import Seams
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.report.statistics import paired_difference
from tests.evaluate.tables import MS, Tables, tiny_checkpoint

SEEDS = 10
JOINS = ["switch", "blend-50", "blend-200", "ensemble", "inpaint", "rtc"]
SHORT = ["--plan=quick", f"--episodes={SEEDS}", "--batch=4"]


def say(text: str) -> None:
    pass


@pytest.fixture(autouse=True)
def checkpoint(monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
    made = tiny_checkpoint()
    monkeypatch.setattr(game, "load", lambda folder: made)
    return made


class World:
    """Planted: what a case's episodes and seams come to, by its latency and its way of joining."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.played: Counter[tuple[str, float, str, float, int]] = Counter()
        self.drawn: dict[tuple[str, float, str, float], set[tuple[float, int]]] = {}
        self.interrupt_at: int | None = None
        monkeypatch.setattr(game, "play", self.play)

    def play(
        self, checkpoint: Checkpoint, plan: Plan, seeds: Iterable[int], task: Task, timing: Charged, **rest: Any
    ) -> ModeResult:
        assert (task.sim, task.max_steps, task.ticks_per_step) == ("pusht-drift", 300, 10)
        frame_ms = timing.durations_ns[plan.mode] / MS
        case = (str(plan), frame_ms, task.seam, task.blend_ms)
        self.drawn.setdefault(case, set()).add((timing.jitter, timing.seed))
        outcome, seams = ModeResult(), rest["seams"]
        for seed in seeds:
            self.played[(*case, seed)] += 1
            if self.interrupt_at is not None and self.played.total() > self.interrupt_at:
                raise KeyboardInterrupt
            outcome.episodes.append(EpisodeRecord(seed, self.won(seed, frame_ms, task), 10, holds=1))
            outcome.acted(2)
            seams.jumps[self.jump(seed, frame_ms, task)] += 1
            seams.disagreements[500] += 1
            seams.limited += seed % 2
        return outcome

    @staticmethod
    def won(seed: int, frame_ms: float, task: Task) -> bool:
        return 7 * seed % SEEDS < 9 - frame_ms / 100 - (task.seam == "ensemble")

    @staticmethod
    def jump(seed: int, frame_ms: float, task: Task) -> int:
        return seed + round(frame_ms) - round(task.blend_ms / 10)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def command(tmp_path: Path, *argv: str) -> tuple[int, dict[str, Any]]:
    code = cli.main(["bench", "seams", *argv, "--json", str(tmp_path / "it.json")])
    found: dict[str, Any] = json.loads((tmp_path / "it.json").read_text())
    return code, found


def test_a_row_for_each_latency_and_join_with_the_difference_to_switch(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "it.png"
    code, report = command(tmp_path, *SHORT, "--latency-ms=100,200", "--picture", str(picture))
    assert code == 0
    assert [(row["latency_ms"], row["join"]) for row in report["rows"]] == [(ms, j) for ms in (100, 200) for j in JOINS]
    guided = {row["join"]: row["plan"] for row in report["rows"]}
    assert (guided["switch"], guided["rtc"]) == ("quick", "quick,guide=rtc")
    for row in report["rows"]:
        seam = "switch" if row["join"] in ("inpaint", "rtc") else row["join"].split("-")[0]
        task = Task(seam=seam, blend_ms=float(row["join"].partition("-")[2] or 0))
        won = [world.won(seed, row["latency_ms"], task) for seed in range(SEEDS)]
        switched = [world.won(seed, row["latency_ms"], Task()) for seed in range(SEEDS)]
        assert row["success"] == sum(won) / SEEDS
        counts = Counter(zip(won, switched, strict=True))
        expected = paired_difference(*(counts[pair] for pair in ((1, 1), (1, 0), (0, 1), (0, 0))))
        assert (row["above_switch"], row["above_low"], row["above_high"]) == expected
        assert row["jump_max_px"] == world.jump(SEEDS - 1, row["latency_ms"], task) / 10
        assert row["disagreement_p99_px"] == 50.0
        assert (row["seams"], row["limited_share"], row["hold_share"]) == (SEEDS, 0.5, 0.1)
        assert row["staleness_ms"] == 200
        assert row["refused"] == ""
    assert report["summary"]["jump_max_px_seq_200_blend_50"] == (9 + 200 - 5) / 10
    assert report["summary"]["success_seq_100_ensemble"] == 0.7
    assert picture.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "pusht-drift, quick, 10 seeds, actuator at 100 Hz" in printed
    assert printed.count("blend-200") == 2


def test_a_request_takes_the_latency_in_every_mode(world: World, tmp_path: Path) -> None:
    """Auras has two frames of a half, back to back; seq keeps the grid of its plan."""
    argv = ["--plan=quick,pp_generation=2,frame_period_ms=400", "--mode=seq,auras", "--join=switch,rtc"]
    _, report = command(tmp_path, *SHORT[1:], *argv, "--latency-ms=200")
    assert {case[:2] for case in world.drawn} == {
        ("quick,frame_period_ms=400.0", 200.0),
        ("quick,frame_period_ms=400.0,guide=rtc", 200.0),
        ("quick,mode=auras,pp_generation=2", 100.0),
        ("quick,mode=auras,pp_generation=2,guide=rtc", 100.0),
    }
    assert [(row["mode"], row["join"]) for row in report["rows"]] == [
        (mode, join) for mode in ("seq", "auras") for join in ("switch", "rtc")
    ]
    assert all(row["above_switch"] == 0.0 for row in report["rows"])


def test_with_jitter_every_case_of_a_group_meets_the_same_latencies(world: World, tmp_path: Path) -> None:
    _, report = command(tmp_path, *SHORT, "--latency-ms=200", "--jitter=0.5")
    assert set(map(frozenset, world.drawn.values())) == {frozenset({(0.5, 0), (0.5, 4), (0.5, 8)})}
    assert {row["jitter"] for row in report["rows"]} == {0.5}


def test_an_interrupted_bench_keeps_what_there_is_and_goes_on(world: World, tmp_path: Path) -> None:
    argv = [*SHORT, "--latency-ms=100", "--work", str(tmp_path / "work.json")]
    world.interrupt_at = 40
    code, cut = command(tmp_path, *argv)
    assert code == 130
    assert "interrupted" in cut
    assert {row["episodes"] for row in cut["rows"]} == {4, 8}
    world.interrupt_at = None
    code, whole = command(tmp_path, *argv)
    assert code == 0
    assert {row["episodes"] for row in whole["rows"]} == {SEEDS}
    assert sum(times > 1 for times in world.played.values()) <= 4  # the group that was cut, and no other
    before = Counter(world.played)
    again = command(tmp_path, *argv)[1]
    assert again["rows"] == whole["rows"]
    assert world.played == before


def test_a_case_that_fails_is_named_and_the_others_are_played(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the bench, with nothing written."""
    right = world.play

    def broken(
        checkpoint: Checkpoint, plan: Plan, seeds: Iterable[int], task: Task, *rest: Any, **more: Any
    ) -> ModeResult:
        if task.seam == "ensemble":
            raise RuntimeError("the simulator ended")
        return right(checkpoint, plan, seeds, task, *rest, **more)

    monkeypatch.setattr(game, "play", broken)
    code, report = command(tmp_path, *SHORT, "--latency-ms=100", "--join=switch,ensemble,rtc")
    assert code == 1
    assert report["failed"] == ["ensemble, 100 ms, quick: the simulator ended"]
    assert [(row["join"], row["episodes"]) for row in report["rows"]] == [("switch", SEEDS), ("rtc", SEEDS)]


def test_without_minutes_nothing_is_played_and_that_is_said(world: World, tmp_path: Path) -> None:
    _, report = command(tmp_path, *SHORT, "--latency-ms=100", "--minutes=0")
    assert report["left_out"][0].startswith("switch, 100 ms, quick, seeds from 0 on")
    assert report["rows"] == []
    assert not world.played


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ("--jitter=0.1", "jitter"),
        ("--rate-hz=50", "rate_hz"),
        ("--ensemble-decay=0.5", "ensemble_decay"),
        ("--sim=pusht", "sim"),
    ],
)
def test_what_was_played_otherwise_is_refused_by_name(
    world: World, tmp_path: Path, other: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [*SHORT, "--latency-ms=100", "--join=switch", "--work", str(tmp_path / "work.json")]
    command(tmp_path, *argv)
    with pytest.raises(SystemExit, match="2"):
        command(tmp_path, *argv, other)
    assert f"was made with {named}" in capsys.readouterr().err


def test_without_switch_or_its_seeds_nothing_is_compared(world: World, tmp_path: Path) -> None:
    argv = ["--plan=quick", "--latency-ms=100", "--work", str(tmp_path / "work.json")]
    _, report = command(tmp_path, *argv, "--join=ensemble", "--episodes=2")
    assert [row["above_switch"] for row in report["rows"]] == [None]
    command(tmp_path, *argv, "--join=switch", "--episodes=1")
    _, report = command(tmp_path, *argv, "--join=ensemble", "--episodes=2")
    assert [row["above_switch"] for row in report["rows"]] == [None]
    _, report = command(tmp_path, *argv, "--join=switch,ensemble", "--episodes=2")
    assert None not in [row["above_switch"] for row in report["rows"]]


def test_a_latency_that_the_agent_would_refuse_is_played_and_marked(world: World, tmp_path: Path) -> None:
    _, report = command(tmp_path, *SHORT, "--latency-ms=250,300", "--join=switch")
    assert ["outlast the horizon" in row["refused"] for row in report["rows"]] == [False, True]


def test_what_is_reported_is_what_lockstep_plays(monkeypatch: pytest.MonkeyPatch, checkpoint: Checkpoint) -> None:
    """The real loop on a tiny policy; nothing planted but which steps are successes."""
    Tables(monkeypatch, {0: 3, 2: 9})
    argv = ["--plan=quick", "--episodes=3", "--max-steps=8", "--latency-ms=150", "--jitter=0.3", "--batch=2"]
    report = bench.run([*argv, "--sim=pusht", "--blend-ms=80", "--join=switch,blend-80,ensemble,inpaint"], say)
    assert [row["join"] for row in report.rows] == ["switch", "blend-80", "ensemble", "inpaint"]
    for row in report.rows:
        seam = {"blend-80": "blend", "ensemble": "ensemble"}.get(row["join"], "switch")
        task = Task("pusht", 8, seam=seam, blend_ms=80.0 if seam == "blend" else 0.0, ticks_per_step=10)
        found, outcomes = Seams(), []
        for group in ([0, 1], [2]):
            timing = Charged({"seq": 150 * MS}, 0.3, group[0])
            outcomes.append(really_play(checkpoint, Plan.parse(row["plan"]), group, task, timing, seams=found))
        outcome = ModeResult.join(outcomes)
        assert row["success"] == outcome.successes / 3
        assert row["seams"] == found.count > 5
        assert {name: row[f"{name}_px"] for name in found.figures()} == found.figures()
        assert row["hold_share"] == sum(each.holds for each in outcome.episodes) / outcome.steps
    jumps = {row["join"]: row["jump_median_px"] for row in report.rows}
    assert jumps["blend-80"] < jumps["switch"] / 3
    assert jumps["inpaint"] < jumps["switch"]


def test_where_nothing_was_joined_there_is_nothing_to_say(tmp_path: Path) -> None:
    """Two steps, of which the first chunk misses one. A latency that is said twice is one."""
    argv = ["--plan=quick", "--episodes=1", "--max-steps=2", "--latency-ms=100,100", "--join=switch"]
    _, report = command(tmp_path, *argv, "--picture", str(tmp_path / "it.png"))
    (row,) = report["rows"]
    assert (row["seams"], row["hold_share"]) == (0, 0.5)
    assert {row[name] for name in row if name.endswith("_px")} == {None}
    assert (tmp_path / "it.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--sim=kitchen"], "sim 'kitchen' is not known"),
        (["--episodes=0"], "episodes: must be at least 1"),
        (["--max-steps=1001"], "max_steps: must be in [1, 1000]"),
        (["--mode=par"], "mode: no 'par'"),
        (["--latency-ms=-1"], "latency_ms: must be in [0, 800)"),
        (["--latency-ms=800"], "latency_ms: must be in [0, 800)"),
        (["--jitter=1.5"], "jitter: must be in [0, 1]"),
        (["--join=glue"], "join: no 'glue'; known: switch, blend-50"),
        (["--blend-ms=-5"], "blend_ms: -5"),
        (["--blend-ms=nan"], "--blend-ms: expected numbers up to 1e+09, got nan"),
        (["--ensemble-decay=-1"], "ensemble_decay"),
        (["--rate-hz=15"], "rate_hz: a step of 100 ms must hold a whole number of ticks, not 1.5"),
        (["--rate-hz=5"], "rate_hz"),
        (["--plan=quick,pp_generation=65"], "pp_generation"),
        (["--plan=quick,guide=rtc"], "plan: guide: 'rtc' is one of the ways that are compared; see --join"),
        (["--work=nowhere/at/all.json"], "work: no folder"),
    ],
)
def test_options_that_cannot_be_used(
    world: World, argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "seams", "--plan=quick", *argv])
    assert said in capsys.readouterr().err
    assert not world.played


def test_help_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bench", "seams", "--help"])
    text = capsys.readouterr().out
    assert "--latency-ms" in text
    assert "auras bench seams --work" in text
