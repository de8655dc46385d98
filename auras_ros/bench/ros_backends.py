"""`auras bench ros --backends dds,rclpy`: the same measurements on each ROS, in alternation.

Each turn is `auras bench ros` in a process of its own, because a process chooses its ROS once. The rounds alternate, so
that a machine that gets busier disturbs all alike. The summary has the median over the rounds of each backend's figure
and the worst of its losses. Needs a Python that has both: `make test-rclpy` makes .venv-jazzy and .venv-kilted.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from auras_ros.measure.minutes import CUT, OverError, attempt
from auras_ros.report.result import Report, Say
from auras_ros.ros.backend import VARIABLE

BACKENDS = ("dds", "rclpy")
# Counted, and never to be averaged away. Everything else is a duration.
COUNTED = ("skipped_ticks", "lost")
LEAST_S = 20.0  # less is no measurement
LAST_LINES = 3


def compare(backends: Sequence[str], rounds: int, words: Sequence[str], minutes: float, progress: Say) -> Report:
    """Run `auras bench ros` with these words on each backend, round after round. A turn that fails is named."""
    report = Report("ros")
    end_s = time.monotonic() + 60 * minutes
    turns = [(number, backend) for number in range(rounds) for backend in backends]
    figures: dict[str, dict[str, list[float]]] = {backend: {} for backend in backends}
    for left, (number, backend) in zip(range(len(turns), 0, -1), turns, strict=True):
        share_s = (end_s - time.monotonic()) / left
        with attempt(report, f"{backend}, round {number + 1}"):
            if share_s < LEAST_S:
                raise OverError(CUT)
            progress(f"{backend}, round {number + 1} of {rounds} ...")
            result = _turn(backend, [*words, "--minutes", f"{share_s / 60:.2f}"])
            for row in result["rows"]:
                report.rows.append({"backend": backend, "round": number + 1, **row})
            for name, value in {**result["summary"], **_counts(result["rows"])}.items():
                figures[backend].setdefault(name, []).append(value)
            for kind in ("failed", "left_out"):
                for text in result.get(kind, ()):
                    report.more.setdefault(kind, []).append(f"{backend}, round {number + 1}: {text}")
            report.more.setdefault("backends", {})[backend] = result["backend"]
    for backend, measured in figures.items():
        for name, values in measured.items():
            worst = name.startswith(COUNTED)
            report.summary[f"{name}_{backend}"] = max(values) if worst else statistics.median(values)
    return report


def _turn(backend: str, words: Sequence[str]) -> dict[str, Any]:
    """The JSON object of one run. Raises RuntimeError with its last words."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ros.json"
        command = [sys.executable, "-m", "auras_ros.cli.main", "bench", "ros", *words, "--json", str(path)]
        environment = os.environ | {VARIABLE: backend}
        ran = subprocess.run(
            command, check=False, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if not path.exists():
            last = " ".join((ran.stderr or ran.stdout).splitlines()[-LAST_LINES:])
            raise RuntimeError(f"auras bench ros ended with status {ran.returncode}: {last}")
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return result


def _counts(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """What was lost or skipped, which a single run has in its rows."""
    counts: dict[str, float] = {}
    for row in rows:
        if "skipped_ticks" in row:
            suffix = "" if row["scheduling"].startswith("fifo") else "_without_fifo"
            counts[f"skipped_ticks{suffix}"] = row["skipped_ticks"]
        if "lost" in row:
            counts["lost_images"] = row["lost"]
    return counts
