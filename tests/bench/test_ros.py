"""`auras bench ros` as a user runs it, cut short: every figure is there, measured, and says what it was measured on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from auras_ros.bench import ros, ros_backends
from auras_ros.cli import main as cli
from auras_ros.measure.durations import FrameDuration
from auras_ros.measure.minutes import CUT, OverError
from auras_ros.report.result import Report


@pytest.mark.parametrize("arguments", [["--seconds", "0"], ["--seconds", "-1"], ["--messages", "0"]])
def test_what_measures_nothing_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ros.run(arguments, print)
    assert arguments[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "chosen", "said"),
    [
        ({"ddpm100": 0.355, "quick": 0.03}, "ddpm100", ["plan ddpm100: 355 ms a frame"]),
        (
            {"ddpm100": 0.623, "quick": 0.05},
            "quick",
            ["ddpm100 takes 623 ms a frame, too long here: plan: ", "plan quick: 50 ms"],
        ),
        ({"ddpm100": 9.0, "quick": 0.9}, "quick", ["ddpm100 takes 9000 ms", "quick takes 900 ms"]),
    ],
)
def test_the_plan_is_one_that_the_machine_can_run(
    seconds: dict[str, float], chosen: str, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine where 100 steps take 623 ms the bench refused to start."""

    def measured(checkpoint: object, plans: dict[str, object], **rest: object) -> dict[str, FrameDuration]:
        return {name: FrameDuration(seconds[name], 3) for name in plans}

    monkeypatch.setattr(ros, "measure_durations", measured)
    report = Report("ros")
    assert ros._chosen(report, lambda text: None) == chosen
    assert len(report.more["chose"]) == len(said)
    assert all(line.startswith(start) for line, start in zip(report.more["chose"], said, strict=True))


PLANTED = {
    "p50": 0.1,
    "p99": 0.2,
    "max": 0.3,
    "n": 100,
    "bare_p50": 0.01,
    "bare_p99": 0.02,
    "bare_max": 0.03,
    "bare_skipped": 0,
}


def test_what_fails_is_named_and_the_rest_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that ends under load ended the bench, with nothing written."""

    def interval(priority: int, seconds: float, plan: str, end_s: float) -> dict[str, object]:
        if priority:
            raise RuntimeError("a process ended during the measurement: agent, status 2\nits last words")
        return dict(PLANTED)

    image = {"messages": 20, "image_latency_ms_p50": 1.0}
    monkeypatch.setattr(ros, "_interval_error", interval)
    monkeypatch.setattr(ros, "measure_image_latency", lambda messages: image)
    report = ros.run(["--plan", "quick"], lambda text: None)
    assert report.more["failed"] == [
        "interval error with FIFO: a process ended during the measurement: agent, status 2"
    ]
    assert [row["measure"] for row in report.rows] == ["interval_error_ms", "image_latency_ms"]
    assert report.summary["interval_error_ms_p50_without_fifo"] == 0.1
    assert all(row["cores"] >= 1 for row in report.rows)


def test_when_the_minutes_are_over_what_was_not_measured_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def interval(priority: int, seconds: float, plan: str, end_s: float) -> dict[str, object]:
        if priority:
            return dict(PLANTED)
        raise OverError

    monkeypatch.setattr(ros, "_interval_error", interval)
    monkeypatch.setattr(ros, "measure_image_latency", lambda messages: {"messages": messages})
    report = ros.run(["--plan=quick", "--minutes=0.15"], lambda text: None)
    assert report.more["left_out"] == [f"interval error without FIFO: {CUT}"]
    assert "failed" not in report.more
    assert [row["measure"] for row in report.rows] == ["interval_error_ms", "image_latency_ms"]
    assert report.rows[1]["messages"] <= 270  # of 300, in the nine seconds that there are
    report = ros.run(["--plan=quick", "--minutes=0"], lambda text: None)
    assert [each.partition(":")[0] for each in report.more["left_out"]] == [
        "interval error with FIFO", "interval error without FIFO", "image latency"
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("ros_domain_id")
def test_the_report_holds_every_figure_and_what_it_depends_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Live, without FIFO; the other half differs by a parameter of the actuator, and is planted. A machine that stands
    still for longer than the actuator's lease has it disarmed, and the bench says so: then it is played again."""
    right = ros._interval_error
    planted = {**PLANTED, "scheduling": "fifo 50", "chunks_per_s": 2.0}
    monkeypatch.setattr(ros, "_interval_error", lambda fifo, *given: planted if fifo else right(fifo, *given))
    path = tmp_path / "ros.json"
    short = ["--seconds=3", "--messages=20", "--plan=quick"]  # a busy machine is too slow for a hundred steps
    assert any(cli.main(["bench", "ros", *short, "--json", str(path)]) == 0 for _ in range(3))
    report = json.loads(path.read_text())
    summary = report["summary"]
    assert summary["image_n"] == 20
    assert summary["interval_n_without_fifo"] > 100
    figures = (
        ("interval_error_ms", "_without_fifo"),
        ("bare_interval_error_ms", "_without_fifo"),
        ("image_latency_ms", ""),
    )
    for name, end in figures:
        p50, p99, most = (summary[f"{name}_{figure}{end}"] for figure in ("p50", "p99", "max"))
        assert 0 < p50 <= p99 <= most
    _, without = (row for row in report["rows"] if row["measure"] == "interval_error_ms")
    assert without["chunks_per_s"] > 0  # the agent was at work
    assert without["scheduling"].startswith("other")
    assert report["hardware"]["cores"] >= 1
    assert "interval_error_ms_p99" in capsys.readouterr().out


# -- several backends -------------------------------------------------------------------------------------


def test_backends_are_measured_in_alternation_and_losses_are_not_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[str] = []

    def turn(backend: str, words: list[str]) -> dict[str, Any]:
        played.append(backend)
        skipped = 7 if len(played) == 1 else 0
        row = {"measure": "interval_error_ms", "scheduling": "fifo 51", "skipped_ticks": skipped}
        figure = float(len(played))
        return {"rows": [row], "summary": {"interval_error_ms_p99": figure}, "backend": f"{backend} of today"}

    monkeypatch.setattr(ros_backends, "_turn", turn)
    report = ros.run(["--backends", "dds,rclpy", "--rounds", "3", "--plan", "quick"], lambda text: None)
    assert played == ["dds", "rclpy"] * 3
    assert report.summary["interval_error_ms_p99_dds"] == 3.0
    assert report.summary["interval_error_ms_p99_rclpy"] == 4.0
    assert (report.summary["skipped_ticks_dds"], report.summary["skipped_ticks_rclpy"]) == (7, 0)
    assert [row["round"] for row in report.rows] == [1, 1, 2, 2, 3, 3]
    assert report.more["backends"] == {"dds": "dds of today", "rclpy": "rclpy of today"}


def test_a_turn_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    report = ros.run(["--backends", "rclpy", "--rounds", "1", "--plan", "quick"], lambda text: None)
    assert report.more["failed"] == ["rclpy, round 1: auras bench ros ended with status 1: "]
    assert report.rows == []


def test_another_backend_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ros.run(["--backends", "zenoh"], print)
    assert "'zenoh' is not known; known: dds, rclpy" in capsys.readouterr().err
