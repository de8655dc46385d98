"""`auras bench fig11`: jobs that queue, how long each takes, and what is made of it.

Guards: a job skipped for a newer one, or done twice; a completion time that leaves out the waiting; what another stream
left behind counted; par held back; a ratio of the wrong rows.
"""

from __future__ import annotations

import json
import math
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from auras_ros.bench.figures import fig11
from auras_ros.bench.figures.stream import Completed, Queue, complete, saturate, spread_percent
from auras_ros.bench.kept import OVER
from auras_ros.bench.pipeline_rate import Bench, Length
from auras_ros.bench.pipeline_variants import Variant
from auras_ros.cli import main as cli
from auras_ros.pipeline.modes import Executor
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Worker

MS = 1_000_000
PLANS = ["ddpm4", "ddpm4,mode=par,workers=2", "ddpm4,mode=auras,pp_generation=3", "ddpm4,mode=auras,pp_perception=2"]


def test_jobs_are_taken_in_their_order_when_they_have_arrived(bench: Bench) -> None:
    queue = Queue(bench.feed, 100, 10, 3)
    assert queue(99) is None
    taken = [queue(now).origin.mono_ns for now in (100, 105, 131, 132, 500)]  # type: ignore[union-attr]
    assert taken == [100, 100, 110, 120, 120]  # where nobody waits the last one is still to be seen


def test_the_figures_of_a_run_are_plain_arithmetic() -> None:
    done = Completed(
        9, 5 * MS, tuple(range(9)), tuple(k * MS for k in (10, 10, 10, 20, 20, 20, 40, 40, 40)), (0, 10, 30, 40, 60)
    )
    fields = done.fields()
    assert fields["jct_ms"] == 20
    assert (fields["jct_ms_first"], fields["jct_ms_last"]) == (10, 40)
    assert fields["grows_ms"] == 30 / 6
    assert fields["rate_hz"] == pytest.approx(4e9 / 60)
    assert fields["spread_percent"] == pytest.approx(100 * 5 / 15)
    assert spread_percent((0, 10, 20, 30)) == 0
    assert spread_percent((0, 10)) is None
    assert Completed(3, MS, (), (), ()).fields()["jct_ms"] is None


@pytest.mark.parametrize("text", PLANS)
def test_every_mode_finishes_every_job_once(bench: Bench, text: str) -> None:
    """Twice on one executor, after a full one: what another stream left behind is not this one's."""
    executor = bench.prepare(Plan.parse(text))
    for jobs in (7, 5):
        assert len(saturate(executor, bench.feed, 6, 120.0)) == 6
        began_ns = time.monotonic_ns()
        done = complete(executor, bench.feed, 2 * MS, jobs, 120.0)
        assert len(done.jct_ns) == len(done.ended_ns) == jobs
        first_ns = done.arrived_ns[0]
        assert done.arrived_ns == tuple(range(first_ns, first_ns + 2 * MS * jobs, 2 * MS))
        assert first_ns >= began_ns
        assert all(jct_ns > 0 for jct_ns in done.jct_ns)


class Slow:
    """A worker whose work takes at least so long."""

    def __init__(self, worker: Worker, least_s: float) -> None:
        self._worker, self._least_s, self.name = worker, least_s, worker.name
        self.wants, self.begin, self.end = worker.wants, worker.begin, worker.end

    def run(self) -> None:
        threading.Event().wait(self._least_s)
        self._worker.run()


def slowed(executor: Executor, least_s: float) -> Executor:
    executor.workers = tuple(Slow(worker, least_s) for worker in executor.workers)
    return executor


def test_waiting_counts_and_more_workers_wait_less(bench: Bench) -> None:
    """Jobs come every 2 ms and take 30 ms each: the k-th waits for those before it, two at a time for two workers."""
    jobs, work_ms = 9, 30
    for workers in (1, 2):
        executor = slowed(bench.make(Plan("ddpm4", "par", workers=workers)), work_ms / 1e3)
        done = complete(executor, bench.feed, 2 * MS, jobs, 120.0)
        executor.close()
        for k, jct_ns in enumerate(done.jct_ns):
            assert jct_ns / MS >= (k // workers + 1) * work_ms - 2 * k - 1
        assert (done.fields()["grows_ms"] or 0) > 0


def test_a_stream_that_takes_too_long_ends_with_what_it_has(bench: Bench) -> None:
    for limit_s in (0.5, 4.0, 20.0):  # a busy machine may not get to the first
        executor = slowed(bench.make(Plan("ddpm4")), 0.05)
        done = complete(executor, bench.feed, MS, 1000, limit_s)
        executor.close()
        if done.jct_ns:
            break
    assert 0 < len(done.jct_ns) < 1000
    assert done.fields()["finished"] == len(done.jct_ns)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_fails_ends_the_stream(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = bench.prepare(Plan("ddpm4"))

    def fail() -> None:
        raise ArithmeticError("broken on purpose")

    monkeypatch.setattr(executor.workers[0], "run", fail)
    with pytest.raises(RuntimeError, match="ddpm4: a worker failed"):
        complete(executor, bench.feed, MS, 5, 60.0)


def test_the_report_is_what_was_measured(tmp_path: Path, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates and times are planted; which stream is run at which input is the command's own."""
    rates = {"seq": 10.0, "par": 8.0, "auras": 50.0}

    def rate(self: Bench, variant: Variant, length: Length) -> float:
        return rates[variant.plan.mode] * variant.plan.workers

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
    argv = ["--policy", tiny, "--workers=1,3", "--jobs=4", "--steps=4", "--pp-generation=2", "--rounds=2"]
    argv += ["--device=cpu", "--cores=1", "--json", str(path), "--picture", str(picture)]
    assert cli.main(["bench", "fig11", *argv]) == 0
    report = json.loads(path.read_text())
    par, interval_ns = "ddpm4,mode=par,workers=2", round(1.05e9 / 50)
    assert [(plan, at) for plan, _, at in asked] == [
        ("ddpm4", round(1.05e9 / 10)),
        ("ddpm4,mode=par,workers=3", round(1.05e9 / 16)),
        ("ddpm4,mode=par,workers=3", interval_ns),
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
    assert (summary["best_par_over_seq"], summary["best_par_workers"]) == (pytest.approx(2.4), 3)
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
        if variant.plan.together or variant.plan.workers > 1:
            return 0.1
        return rates[variant.plan.mode].pop(0)

    monkeypatch.setattr(Bench, "rate", rate)
    monkeypatch.setattr(fig11, "saturate", lambda *given: (0, 1, 2))
    monkeypatch.setattr(fig11, "complete", lambda *given: Completed(3, MS, (0,), (MS,), (0, 1, 2)))
    argv = ["--workers=1,2", "--jobs=3", "--steps=4", "--pp-generation=2", "--rounds=3", "--device=cpu", "--cores=1"]
    report = fig11.run(["--policy", tiny, *argv], lambda text: None)
    assert report.summary["auras_over_best_par"] == 2.0


def test_streams_that_there_is_no_time_for_are_left_out(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were failures, and the bench ended with status 1."""
    monkeypatch.setattr(Bench, "rate", lambda self, variant, length: 2.0)
    monkeypatch.setattr(fig11, "time", SimpleNamespace(monotonic=lambda: math.inf))
    path = tmp_path / "11.json"
    argv = ["--workers=1,2", "--steps=4", "--pp-generation=2", "--device=cpu", "--cores=1", "--json", str(path)]
    assert cli.main(["bench", "fig11", "--policy", tiny, *argv]) == 0
    report = json.loads(path.read_text())
    assert "failed" not in report
    assert [each.endswith(f": {OVER}") for each in report["left_out"]] == [True] * 9


def test_it_really_runs(tiny: str) -> None:
    argv = ["--workers=1,2", "--jobs=3", "--steps=4", "--pp-generation=2", "--rounds=1", "--seconds=0", "--chunks=1"]
    report = fig11.run(["--policy", f"{tiny},rt2-tiny", *argv, "--device=cpu", "--cores=1"], lambda text: None)
    assert [row["finished"] for row in report.rows if row["measure"] == "jct"] == [3] * 8
    assert all(row["outputs"] == 3 for row in report.rows if row["measure"] == "rate")
    assert "completion time, OpenVLA, seq (section 6.3)" in fig11.table(report)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--policy=gpt"], "'gpt' is not known"),
        (["--workers=0"], "workers"),
        (["--jct-workers=99"], "workers"),
        (["--jobs=2"], "--jobs must be at least 3"),
        (["--limit=0"], "--limit above 0"),
        (["--steps=5"], "8 stages for 5 steps"),
    ],
)
def test_options_that_cannot_be_used(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        fig11.run([*argv, "--device=cpu", "--cores=1"], print)
    assert said in capsys.readouterr().err
