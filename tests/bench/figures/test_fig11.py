"""`auras bench fig11`: rates and streams side by side in one report.

Guards: a stream run at another input than its row says; par held back; a ratio of the wrong rows.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from auras_ros.bench.figures import fig11
from auras_ros.cli import main as cli
from auras_ros.measure.executors import Bench
from auras_ros.measure.forms import Variant
from auras_ros.measure.minutes import OVER
from auras_ros.measure.stream import Completed
from auras_ros.measure.window import Length
from auras_ros.pipeline.modes import Executor

MS = 1_000_000


def test_the_report_is_what_was_measured(tmp_path: Path, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates and times are planted; which stream is run at which input is the command's own."""
    rates = {"seq": 10.0, "par": 8.0, "auras": 50.0}

    def rate(self: Bench, variant: Variant, length: Length) -> float:
        return rates[variant.plan.mode] * variant.plan.concurrency

    asked: list[tuple[str, int, int]] = []

    def planted(
        executor: Executor, feed: object, interval_ns: int, jobs: int, limit_s: float, threads: int
    ) -> Completed:
        asked.append((str(executor.plan), len(executor.workers), interval_ns))
        return Completed(jobs, interval_ns, (0,) * jobs, (len(asked) * MS,) * jobs, (0, 10, 20, 30))

    monkeypatch.setattr(Bench, "rate", rate)
    monkeypatch.setattr(fig11, "complete", planted)
    monkeypatch.setattr(
        fig11, "saturate", lambda executor, *rest: (0, 1, 3) if len(executor.workers) > 1 else (0, 1, 2)
    )
    path, picture = tmp_path / "11.json", tmp_path / "11.png"
    argv = ["--policy", tiny, "--concurrency=1,3", "--jobs=4", "--steps=4", "--pp-generation=2", "--rounds=2"]
    argv += ["--device=cpu", "--cores=1", "--json", str(path), "--picture", str(picture)]
    assert cli.main(["bench", "fig11", *argv]) == 0
    report = json.loads(path.read_text())
    par, interval_ns = "ddpm4,mode=par,concurrency=2", round(1.05e9 / 50)
    assert [(plan, at) for plan, _, at in asked] == [
        ("ddpm4", round(1.05e9 / 10)),
        ("ddpm4,mode=par,concurrency=3", round(1.05e9 / 16)),
        ("ddpm4,mode=par,concurrency=3", interval_ns),
        ("ddpm4,mode=auras,pp_generation=2", interval_ns),
    ]
    assert [workers for _, workers, _ in asked] == [1, 2, 2, 1]  # the first two of three workers
    jct = [(row["plan"], row["input"], row["jct_ms"]) for row in report["rows"] if row["measure"] == "jct"]
    assert jct == [
        ("ddpm4", "just fit", 1),
        (par, "just fit", 2),
        (par, "aligned", 3),
        ("ddpm4,mode=auras,pp_generation=2", "aligned", 4),
    ]
    summary = report["summary"]
    assert summary["auras_over_seq"] == summary["auras_over_seq_tiny"] == 5
    assert (summary["best_par_over_seq"], summary["best_par_concurrency"]) == (pytest.approx(2.4), 3)
    assert summary["auras_over_best_par"] == pytest.approx(50 / 24)
    assert summary["batched_over_seq"] == pytest.approx(8 * 2 / 10)  # as many at a time as auras has stages
    assert {row["cores"] for row in report["rows"]} == {1}
    assert summary["jct_par_just_fit_over_seq"] == 2
    assert summary["spread_percent_par"] == pytest.approx(100 / 3)
    assert summary["spread_percent_auras"] == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_auras_over_the_best_par_is_the_median_of_those_within_a_round(
    tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine is slow in one round, for all: a ratio of medians would have said 4."""
    rates = {"seq": [1.0, 1.0, 5.0], "par": [1.0, 1.0, 5.0], "auras": [2.0, 4.0, 10.0]}

    def rate(self: Bench, variant: Variant, length: Length) -> float:
        if variant.plan.together or variant.plan.concurrency > 1:
            return 0.1
        return rates[variant.plan.mode].pop(0)

    monkeypatch.setattr(Bench, "rate", rate)
    monkeypatch.setattr(fig11, "saturate", lambda *given: (0, 1, 2))
    monkeypatch.setattr(fig11, "complete", lambda *given: Completed(3, MS, (0,), (MS,), (0, 1, 2)))
    argv = [
        "--concurrency=1,2",
        "--jobs=3",
        "--steps=4",
        "--pp-generation=2",
        "--rounds=3",
        "--device=cpu",
        "--cores=1",
    ]
    report = fig11.run(["--policy", tiny, *argv], lambda text: None)
    assert report.summary["auras_over_best_par"] == 2.0


def test_streams_that_there_is_no_time_for_are_left_out(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were failures, and the bench ended with status 1."""
    monkeypatch.setattr(Bench, "rate", lambda self, variant, length: 2.0)
    monkeypatch.setattr(fig11, "time", SimpleNamespace(monotonic=lambda: math.inf))
    path = tmp_path / "11.json"
    argv = ["--concurrency=1,2", "--steps=4", "--pp-generation=2", "--device=cpu", "--cores=1", "--json", str(path)]
    assert cli.main(["bench", "fig11", "--policy", tiny, *argv]) == 0
    report = json.loads(path.read_text())
    assert "failed" not in report
    assert [each.endswith(f": {OVER}") for each in report["left_out"]] == [True] * 9


def test_it_really_runs(tiny: str) -> None:
    argv = [
        "--concurrency=1,2",
        "--jobs=3",
        "--steps=4",
        "--pp-generation=2",
        "--rounds=1",
        "--seconds=0",
        "--chunks=1",
    ]
    report = fig11.run(["--policy", f"{tiny},rt2-tiny", *argv, "--device=cpu", "--cores=1"], lambda text: None)
    assert [row["finished"] for row in report.rows if row["measure"] == "jct"] == [3] * 8
    assert all(row["outputs"] == 3 for row in report.rows if row["measure"] == "rate")
    assert "completion time, OpenVLA, seq (section 6.3)" in fig11.table(report)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--policy=gpt"], "'gpt' is not known"),
        (["--concurrency=0"], "concurrency"),
        (["--jct-concurrency=99"], "concurrency"),
        (["--jobs=2"], "--jobs must be at least 3"),
        (["--limit=0"], "--limit above 0"),
        (["--steps=5"], "8 stages for 5 steps"),
    ],
)
def test_options_that_cannot_be_used(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        fig11.run([*argv, "--device=cpu", "--cores=1"], print)
    assert said in capsys.readouterr().err
