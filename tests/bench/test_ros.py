"""`auras bench ros` as a user runs it, cut short: every figure is there, measured, and says what it was measured on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from auras_ros.bench import ros

FIGURES = ("p50", "p99", "max")
COMMAND = "import sys; from auras_ros.cli.main import main; sys.exit(main())"


@pytest.mark.parametrize("arguments", [["--seconds", "0"], ["--seconds", "-1"], ["--messages", "0"]])
def test_what_measures_nothing_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ros.run(arguments, print)
    assert arguments[0] in capsys.readouterr().err


def test_what_a_process_said_stands_beside_the_error() -> None:
    def end() -> None:
        with ros._told() as log:
            subprocess.run(["echo", "the last words"], stdout=log, check=True)
            raise RuntimeError("it ended")

    with pytest.raises(RuntimeError, match=r"\Ait ended\nthe last words\Z"):
        end()


@pytest.mark.slow
def test_the_report_holds_every_figure_and_what_it_depends_on(tmp_path: Path, ros_domain_id: int) -> None:
    path = tmp_path / "ros.json"
    short = ["--seconds", "2", "--messages", "20", "--plan", "quick"]  # a busy machine is too slow for a hundred steps
    arguments = ["bench", "ros", *short, "--json", str(path)]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        env={**os.environ, "ROS_DOMAIN_ID": str(ros_domain_id)},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(path.read_text())
    summary = report["summary"]
    assert summary["image_n"] == 20
    for suffix in ("", "_without_fifo"):
        assert summary[f"interval_n{suffix}"] > 100
        p50, p99, most = (summary[f"interval_error_ms_{figure}{suffix}"] for figure in FIGURES)
        assert 0 < p50 <= p99 <= most
    p50, p99, most = (summary[f"image_latency_ms_{figure}"] for figure in FIGURES)
    assert 0 < p50 <= p99 <= most
    with_fifo, without = (row for row in report["rows"] if row["measure"] == "interval_error_ms")
    assert min(with_fifo["chunks_per_s"], without["chunks_per_s"]) > 0  # the agent was at work
    assert without["scheduling"].startswith("other")
    assert with_fifo["scheduling"].startswith("fifo") or "not permitted" in with_fifo["scheduling"]
    assert report["hardware"]["cores"] >= 1
    assert "interval_error_ms_p99" in done.stdout
