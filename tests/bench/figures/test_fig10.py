"""`auras bench fig10`: the pipeline bench under the paper's name, with reports of `auras eval` beside it.

Guards: another measurement than the pipeline's; success of the wrong clock beside the paper's; a mean that a policy
which never succeeds turns into nonsense.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from auras_ros.bench.figures import fig10
from auras_ros.bench.pipeline import command as pipeline
from auras_ros.cli import main as cli
from auras_ros.evaluate.outcome import EpisodeRecord, ModeResult
from auras_ros.evaluate.parts import EvaluationPart
from auras_ros.evaluate.settings import EvaluationSettings
from auras_ros.measure.executors import Bench
from auras_ros.report.result import Report

RATES = {"seq": 4.0, "dec": 3.0, "par": 6.0, "auras": 12.0}
QUICK = [
    "--steps=8", "--pp-generation=1,2,8", "--concurrency=1,2", "--threads=1", "--rounds=1", "--chunks=1", "--seconds=0",
    "--steady=0", "--device=cpu", "--cores=1",
]  # fmt: skip


def evaluated(path: Path, plan: str, wins: dict[str, int], clocks: tuple[str, ...] = ("paused",)) -> str:
    """A report of `auras eval` in which each mode solves so many of ten seeds."""
    settings = EvaluationSettings("planted@0", plan, clocks=clocks, durations_s={})
    outcomes = {
        (clock, one.name): ModeResult([EpisodeRecord(seed, seed < wins[one.plan.mode], 5) for seed in range(10)])
        for clock in clocks
        for one in settings.contenders()
    }
    EvaluationPart(settings, outcomes).report().write(path)
    return str(path)


def planted() -> Report:
    """What the pipeline bench would report."""
    more = {"cores": 1, "together": False, "staleness_ms": 80.0, "disturbed": False}
    rows = [
        {**row, "mode": mode, "variant": mode, "chunks_per_s": rate}
        for row in (
            {"policy": name, "measure": "rounds", "low": 1.0, "high": 9.0, "n": 3, **more} for name in ("dp", "dp-cnn")
        )
        for mode, rate in RATES.items()
    ]
    ratios = {
        "auras_over_seq_dp": 3.0,
        "auras_over_seq_dp_cnn": 2.0,
        "dec_over_seq_dp": 0.5,
        "dec_over_seq_dp_cnn": 1.0,
    }
    return Report("pipeline", rows, {"auras_over_seq": 3.0, **ratios, "par_over_seq_dp": 1.5})


def test_rates_and_success_stand_beside_the_papers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[str]] = []

    def run(argv: list[str], progress: object) -> Report:
        asked.append(argv)
        return planted()

    monkeypatch.setattr(pipeline, "run", run)
    forty = evaluated(tmp_path / "40.json", "ddpm40,pp_generation=4", {"seq": 8, "dec": 8, "par": 2, "auras": 6})
    hundred = evaluated(tmp_path / "100.json", "ddpm100,pp_generation=4", {"seq": 5, "dec": 5, "par": 0, "auras": 6})
    never = evaluated(tmp_path / "160.json", "ddpm160,pp_generation=4", {"seq": 0, "dec": 0, "par": 0, "auras": 1})
    path, picture = tmp_path / "10.json", tmp_path / "10.png"
    argv = ["--eval", f"{forty},{hundred},{never}", "--policy", "dp"]
    assert cli.main(["bench", "fig10", *argv, "--json", str(path), "--picture", str(picture)]) == 0
    assert asked == [["--policy", "dp"]]
    report = json.loads(path.read_text())
    assert report["name"] == "fig10"
    success = {(r["plan"], r["mode"]): r["success"] for r in report["rows"] if r["measure"] == "success"}
    assert success["ddpm40,pp_generation=4", "auras"] == 0.6
    assert success["ddpm100,pp_generation=4", "par"] == 0.0
    ours = {said["ours_is"]: said["ours"] for said in report["paper"] if said["ours_is"]}
    assert ours["mean_auras_over_seq"] == 2.5  # over the policies, as the paper's over models and GPUs
    assert ours["mean_dec_over_seq"] == 0.75
    assert ours["mean_par_over_seq"] == 1.5
    assert ours["mean_auras_over_par"] is None
    assert ours["auras_success_of_seq_percent"] == pytest.approx((75 + 120) / 2)
    assert ours["par_success_loss_percent"] == pytest.approx((75 + 100) / 2)
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = capsys.readouterr().out
    assert "ddpm160,pp_generation=4" in text
    assert "102.7 %" in text
    assert fig10.ACCURACY in text


def test_modes_may_have_been_played_apart_and_the_longer_play_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "run", lambda argv, progress: planted())
    files = []
    for name, modes, episodes, wins in (("few", ("seq", "par"), 4, 1), ("most", ("seq", "auras"), 8, 6)):
        settings = EvaluationSettings("planted@0", "ddpm40", modes=modes, clocks=("paused",))
        played = ModeResult([EpisodeRecord(seed, seed < wins, 5) for seed in range(episodes)])
        files.append(str(tmp_path / f"{name}.json"))
        outcomes = {("paused", one.name): played for one in settings.contenders()}
        EvaluationPart(settings, outcomes).report().write(Path(files[-1]))
    for order in (files, files[::-1]):
        report = fig10.run(["--eval", ",".join(order)], print)
        found = {row["mode"]: (row["success"], row["episodes"]) for row in report.rows if row["measure"] == "success"}
        assert found == {"seq": (0.75, 8), "par": (0.25, 4), "par-aligned": (0.25, 4), "auras": (0.75, 8)}
    assert report.summary["par_success_loss_percent"] == pytest.approx(100 * (1 - 0.25 / 0.75))


def test_the_paused_clock_is_the_papers(tmp_path: Path) -> None:
    path = tmp_path / "it.json"
    settings = EvaluationSettings("planted@0", "ddpm100", modes=("seq", "auras"))
    settings = settings.charging({"seq": 0.1, "auras": 0.1})
    wins = {("paused", "seq"): 8, ("paused", "auras"): 4, ("charged", "seq"): 2, ("charged", "auras"): 6}
    outcomes = {run: ModeResult([EpisodeRecord(s, s < count, 5) for s in range(10)]) for run, count in wins.items()}
    EvaluationPart(settings, outcomes).report().write(path)
    report = Report("fig10", fig10.success_rows(EvaluationPart.load(path)))
    fig10._sum_success(report)
    assert report.summary["auras_success_of_seq_percent"] == 50
    assert report.summary["auras_success_of_seq_percent_charged"] == 300


def test_it_is_the_pipelines_own_measurement(tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checks, its forms, its summary; the windows themselves are planted."""
    monkeypatch.setattr(Bench, "rate", lambda self, variant, length: RATES[variant.plan.mode])
    path, picture = tmp_path / "10.json", tmp_path / "10.png"
    outputs = ["--json", str(path), "--picture", str(picture)]
    assert cli.main(["bench", "fig10", "--policy", tiny, *QUICK, *outputs]) == 0
    report = json.loads(path.read_text())
    assert report["summary"]["mean_par_over_seq"] == report["summary"]["par_over_seq_tiny"] == 1.5
    assert report["summary"]["mean_auras_over_seq"] == report["summary"]["auras_over_seq_tiny"] == 3.0
    assert next(row for row in report["rows"] if row["measure"] == "check")["bit_equal"] == 1
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_rates_that_were_measured_before_are_taken_with_where_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "run", lambda argv, progress: pytest.fail("measured again"))
    rates = planted()
    rates.more["interrupted"] = "interrupted: whole rounds count"
    rates.write(tmp_path / "p.json")
    argv = ["bench", "fig10", "--rates", str(tmp_path / "p.json"), "--json", str(tmp_path / "10.json")]
    assert cli.main(argv) == 130  # as it was when they were measured
    before, report = (json.loads((tmp_path / name).read_text()) for name in ("p.json", "10.json"))
    assert report["summary"]["mean_dec_over_seq"] == 0.75
    assert report["summary"]["auras_over_seq"] == 3.0
    assert report["interrupted"] == "interrupted: whole rounds count"
    assert report["rates_of"] == {name: before[name] for name in ("command", "date", "hardware", "versions")}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"name": "fig11", "rows": [], "summary": {}}'])
def test_rates_of_what_is_no_report_of_the_pipeline(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "no.json").write_text(text)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "fig10", "--rates", str(tmp_path / "no.json")])
    assert "no.json: not a report of `auras bench pipeline`" in capsys.readouterr().err


def test_rates_are_measured_or_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "fig10", "--rates", str(tmp_path / "p.json"), "--rounds=2"])
    assert "with --rates nothing is measured, so --rounds=2 has no effect" in capsys.readouterr().err


def test_help_and_files_that_are_no_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bench", "fig10", "--help"])
    text = capsys.readouterr().out
    assert "--eval" in text
    assert "--pp-generation" in text
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "fig10", "--eval", str(tmp_path / "no.json")])
    assert "not a report of `auras eval`" in capsys.readouterr().err
