"""`auras bench phase`: how much fresher actions are when frames keep in phase with the camera.

Runs the processes of a config over topics, alternately without the agent's `phase_lock` and with it, on the same seeds.
Staleness: from an image's stamp to the publishing of its chunk. Image age: from the stamp to the latch. The lock can
only reduce the part of it that is not transport (stamp to receipt, measured here beside the agent).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from itertools import pairwise, product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from auras_ros import resources
from auras_ros.bench.kept import Ends, MeasureStep, run_parts
from auras_ros.bench.options import add_minutes, amount, check_least, listed
from auras_ros.bench.processes import listening, running, wait_until_armed
from auras_ros.evaluate.cores import available
from auras_ros.evaluate.report import Report
from auras_ros.ros import Node, QoSProfile, ReliabilityPolicy
from auras_ros.ros.image import stamp_ns
from auras_ros.ros.msg import DiagnosticArray, Image, String

SETTLE_S = 4.0  # from arming to the start of the measurement
LEAST_CHUNKS = 10
LOCK = (False, True)
SHOWN = ("staleness_ms_p50", "staleness_ms_p90", "image_age_ms_p90", "excess_periods_p90", "chunks_per_s")
CAMERA = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)

Progress = Callable[[str], None]


def run(argv: list[str], progress: Progress) -> Report:
    parser = argparse.ArgumentParser(prog="auras bench phase", description=__doc__)
    parser.add_argument("--config", type=listed(str), default=["pusht.yaml", "demo.yaml"], help="names or files")
    parser.add_argument("--seeds", type=int, default=4, help="number of seeds, each without and with the lock (4)")
    parser.add_argument("--seconds", type=amount, default=20.0, help="measured seconds of each episode (20)")
    add_minutes(parser, 30.0)
    options = parser.parse_args(argv)
    check_least(parser, options, seeds=1, seconds=5)
    configs = [resources.find("config", each) if "/" not in each else Path(each) for each in options.config]
    report = Report("phase")

    def part(config: Path, seed: int, lock: bool, what: str) -> MeasureStep:
        def play(ends: Ends) -> None:
            progress(f"{what} ...")
            played = {"config": config.name, "seed": seed, "phase_lock": lock, "cores": available()}
            report.rows.append(played | _episode(config, seed, lock, options.seconds, ends.hard_s))

        return play

    parts: dict[str, MeasureStep] = {}
    for seed, config, second in product(range(options.seeds), configs, LOCK):
        lock = second ^ (seed % 2 == 1)  # alternates which of the two comes first
        what = f"{config.name}, seed {seed}, phase_lock {'on' if lock else 'off'}"
        parts[what] = part(config, seed, lock, what)
    run_parts(report, options.minutes, parts)
    report.summary |= summarised(report.rows)
    return report


def summarised(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The summary. Gains are taken between pairs of one config and seed, at the median and at the 90th percentile; of
    several configs the smallest gain counts."""
    found: dict[str, float] = {}
    off, on = ({(row["config"], row["seed"]): row for row in rows if row["phase_lock"] is lock} for lock in LOCK)
    pairs = [(off[key], on[key]) for key in on if key in off]
    for figure in ("p50", "p90") if pairs else ():
        gains: dict[str, list[float]] = {}
        for without, row in pairs:
            gain_ms = without[f"staleness_ms_{figure}"] - row[f"staleness_ms_{figure}"]
            gains.setdefault(Path(row["config"]).stem, []).append(gain_ms)
        found |= {f"staleness_gain_ms_{figure}_{name}": median(each) for name, each in gains.items()}
        found[f"staleness_gain_ms_{figure}"] = min(median(each) for each in gains.values())
        found["pairs"] = len(pairs)
    for suffix, played in (("off", off), ("on", on)):
        for figure in SHOWN if played else ():
            found[f"{figure}_{suffix}"] = median(row[figure] for row in played.values())
    return found


def measured(
    chunks: list[dict[str, int]], images: list[tuple[int, int]], missed: int, seconds: float
) -> dict[str, float]:
    """The row of one episode. chunks: times from each provenance; images: (stamp, receipt) of each, ns, one clock."""
    if len(chunks) < LEAST_CHUNKS or len(images) < LEAST_CHUNKS:
        raise RuntimeError(f"{len(chunks)} chunks and {len(images)} images in {seconds:g} s are too few")
    staleness = [(chunk["published_ns"] - chunk["origin_mono_ns"]) / 1e6 for chunk in chunks]
    age = [(chunk["latched_ns"] - chunk["origin_mono_ns"]) / 1e6 for chunk in chunks]
    transport_ms = median((receipt - stamp) / 1e6 for stamp, receipt in images)
    period_ms = median(later[0] - earlier[0] for earlier, later in pairwise(images)) / 1e6
    figures = {"staleness_ms": staleness, "image_age_ms": age}
    row = {f"{name}_p{at}": float(np.percentile(values, at)) for name, values in figures.items() for at in (50, 90)}
    row |= {"transport_ms_p50": transport_ms, "camera_period_ms": period_ms}
    row["excess_periods_p90"] = (row["image_age_ms_p90"] - transport_ms) / period_ms
    return {**row, "chunks_per_s": len(chunks) / seconds, "missed_ticks": missed, "n": len(chunks)}


class _Listener:
    """The messages of one episode."""

    def __init__(self, node: Node) -> None:
        self.chunks: list[dict[str, int]] = []
        self.images: list[tuple[int, int]] = []
        self.missed, self.state = 0, ""
        self._counted = 0
        node.create_subscription(DiagnosticArray, "provenance", self._on_chunk, QoSProfile(depth=10))
        node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, QoSProfile(depth=10))
        node.create_subscription(Image, "camera/top/image_raw", self._on_image, CAMERA)
        node.create_subscription(String, "actuator/state", self._on_state, QoSProfile(depth=1))

    def _on_chunk(self, message: Any) -> None:
        values = {pair.key: pair.value for pair in message.status[0].values}
        self.chunks.append({name: int(values[name]) for name in ("origin_mono_ns", "latched_ns", "published_ns")})

    def _on_diagnostics(self, message: Any) -> None:
        for status in message.status:
            if status.name == "agent: frames":
                counted = int(next((pair.value for pair in status.values if pair.key == "missed_ticks"), 0))
                again = counted < self._counted  # another plan took over, and counts from 0
                self.missed += counted if again else counted - self._counted
                self._counted = counted

    def _on_image(self, message: Any) -> None:
        self.images.append((stamp_ns(message), time.time_ns()))

    def _on_state(self, message: Any) -> None:
        self.state = json.loads(message.data)["state"]

    def forget(self) -> int:
        """Drop the messages so far. Returns the number of ticks that were missed until now."""
        self.chunks.clear()
        self.images.clear()
        return self.missed


def _episode(config: Path, seed: int, lock: bool, seconds: float, end_s: float) -> dict[str, float]:
    overrides: dict[str, dict[str, Any]] = {
        "agent": {"phase_lock": lock},
        "actuator": {"arm_on_start": True},
        "pusht": {"seed": seed},
    }
    with listening("bench_phase") as node:
        listener = _Listener(node)
        with running(node, config, overrides, end_s) as spin:
            wait_until_armed(spin, lambda: listener.state, config)
            spin(lambda: False, SETTLE_S)
            missed = listener.forget()
            spin(lambda: False, seconds)
            return measured(listener.chunks, listener.images, listener.missed - missed, seconds)
