"""`auras bench phase`: how much fresher actions are when frames keep in phase with the camera.

Runs the processes of a config over topics, alternately without the agent's `phase_lock` and with it, on the same seeds.
What the lock wins follows from the phase of the camera that it finds, so that is set and not left to chance: frames
begin with an image, and then the table's steps and images are shifted (the table's `shift_ms`). A shift of 10 ms has
each image come just after the tick of a frame that does not wait for it, which then runs on one of 90 ms before.
Staleness: from an image's stamp to the publishing of its chunk. Image age: from the stamp to the latch. The lock can
only reduce the part of it that is not transport (stamp to receipt, measured here beside the agent).
"""

from __future__ import annotations

import json
import time
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from auras_ros import resources
from auras_ros.bench.options import add_minutes, amount, bench_parser, check_least, listed, refusing
from auras_ros.bench.processes import running, set_on_table
from auras_ros.live.chunk_times import values_of
from auras_ros.live.loop import Spin, listening, wait_until_armed
from auras_ros.live.referee.measures import Rises
from auras_ros.measure.cores import available
from auras_ros.measure.minutes import Ends, MeasureStep, run_parts
from auras_ros.nodes.common.qos import IMAGES
from auras_ros.report.result import Report, Say
from auras_ros.ros import Node, QoSProfile
from auras_ros.ros.image import stamp_ns
from auras_ros.ros.msg import DiagnosticArray, Image, ParameterType, ParameterValue, String
from auras_ros.ros.srv import SetParameters

MOST_SHIFT_MS = 99.0  # of a table that shows an image each 100
SETTLE_S = 4.0  # from arming and the shift to the start of the measurement
LEAST_CHUNKS = 10
LOCK = (False, True)
SHOWN = ("staleness_ms_p50", "staleness_ms_p90", "image_age_ms_p90", "excess_periods_p90", "chunks_per_s")


def run(argv: list[str], progress: Say) -> Report:
    parser = bench_parser("phase", __doc__)
    parser.add_argument("--config", type=listed(str), default=["pusht.yaml", "demo.yaml"], help="names or files")
    parser.add_argument("--shifts", type=listed(float), default=[10.0, 50.0, 90.0], help="of images, ms (10,50,90)")
    parser.add_argument("--seeds", type=int, default=2, help="number of seeds, each without and with the lock (2)")
    parser.add_argument("--seconds", type=amount, default=20.0, help="measured seconds of each episode (20)")
    add_minutes(parser, 30.0)
    options = parser.parse_args(argv)
    check_least(parser, options, seeds=1, seconds=5)
    if not all(0 <= each <= MOST_SHIFT_MS for each in options.shifts):
        parser.error(f"--shifts must be in [0, {MOST_SHIFT_MS:g}], got {options.shifts}")
    with refusing(parser, FileNotFoundError, what="--config: "):
        configs = [resources.config(each) for each in options.config]
    report = Report("phase")

    def play(config: Path, shift_ms: float, seed: int, lock: bool, what: str, ends: Ends) -> None:
        progress(f"{what} ...")
        played = {"config": config.name, "shift_ms": shift_ms, "seed": seed, "phase_lock": lock}
        figures = _episode(config, shift_ms, seed, lock, options.seconds, ends.hard_s)
        report.rows.append(played | {"cores": available()} | figures)

    parts: dict[str, MeasureStep] = {}
    for seed, shift_ms, config, second in product(range(options.seeds), options.shifts, configs, LOCK):
        lock = second ^ (seed % 2 == 1)  # alternates which of the two comes first
        what = f"{config.name}, shift {shift_ms:g} ms, seed {seed}, phase_lock {'on' if lock else 'off'}"
        parts[what] = partial(play, config, shift_ms, seed, lock, what)
    run_parts(report, options.minutes, parts)
    report.summary |= summarised(report.rows)
    return report


def summarised(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Gains are of pairs of one config, shift and seed: the median of a shift's, of its median chunk and of its oldest
    tenth. Of several configs the smallest counts. `staleness_gain_ms_p50` is that of the smallest shift, for which the
    lock is there, `..._mean` the mean over the shifts: what is won of a phase that nobody chose."""
    found: dict[str, float] = {}
    off, on = ({_key(row): row for row in rows if row["phase_lock"] is lock} for lock in LOCK)
    pairs = [(off[key], on[key]) for key in on if key in off]
    for figure in ("p50", "p90") if pairs else ():
        name, gains = f"staleness_gain_ms_{figure}", _gains(pairs, f"staleness_ms_{figure}")
        smallest = {config: each[min(each)] for config, each in gains.items()}
        means = {config: mean(each.values()) for config, each in gains.items()}
        for config, each in gains.items():
            found |= {f"{name}_{config}_{shift_ms:g}ms": gain_ms for shift_ms, gain_ms in each.items()}
        found |= {f"{name}_{config}": gain_ms for config, gain_ms in smallest.items()}
        found |= {name: min(smallest.values()), f"{name}_mean": min(means.values())}
        found["pairs"] = len(pairs)
    for suffix, played in (("off", off), ("on", on)):
        for figure in SHOWN if played else ():
            found[f"{figure}_{suffix}"] = median(row[figure] for row in played.values())
    return found


def _key(row: dict[str, Any]) -> tuple[str, float, int]:
    return row["config"], row["shift_ms"], row["seed"]


def _gains(pairs: list[tuple[dict[str, Any], dict[str, Any]]], figure: str) -> dict[str, dict[float, float]]:
    """Config -> shift -> the median of what the pairs gained, ms."""
    found: dict[str, dict[float, list[float]]] = {}
    for without, row in pairs:
        shifts = found.setdefault(Path(row["config"]).stem, {})
        shifts.setdefault(row["shift_ms"], []).append(without[figure] - row[figure])
    return {config: {at: median(each) for at, each in sorted(shifts.items())} for config, shifts in found.items()}


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
        self.missed_ticks, self.state = Rises(), ""
        node.create_subscription(DiagnosticArray, "provenance", self._on_chunk, QoSProfile(depth=10))
        node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, QoSProfile(depth=10))
        node.create_subscription(Image, "camera/top/image_raw", self._on_image, IMAGES)
        node.create_subscription(String, "actuator/state", self._on_state, QoSProfile(depth=1))

    def _on_chunk(self, message: Any) -> None:
        values = values_of(message.status[0])
        self.chunks.append({name: int(values[name]) for name in ("origin_mono_ns", "latched_ns", "published_ns")})

    def _on_diagnostics(self, message: Any) -> None:
        for status in message.status:
            if status.name == "agent: frames":
                self.missed_ticks.watch({"": values_of(status).get("missed_ticks", 0)})

    def _on_image(self, message: Any) -> None:
        self.images.append((stamp_ns(message), time.time_ns()))

    def _on_state(self, message: Any) -> None:
        self.state = json.loads(message.data)["state"]

    def forget(self) -> int:
        """Drop the messages so far. Returns the number of ticks that were missed until now."""
        self.chunks.clear()
        self.images.clear()
        return self.missed_ticks.total()


def _episode(config: Path, shift_ms: float, seed: int, lock: bool, seconds: float, end_s: float) -> dict[str, float]:
    overrides: dict[str, dict[str, Any]] = {
        "agent": {"phase_lock": lock},
        "actuator": {"arm_on_start": True},
        "pusht": {"seed": seed},
    }
    with listening("bench_phase") as node:
        listener = _Listener(node)
        table = node.create_client(SetParameters, "pusht/set_parameters")
        with running(node, config, overrides, end_s) as spin:
            wait_until_armed(spin, lambda: listener.state, config)
            _shift(spin, table, shift_ms)
            spin(lambda: False, SETTLE_S)
            missed = listener.forget()
            spin(lambda: False, seconds)
            return measured(listener.chunks, listener.images, listener.missed_ticks.total() - missed, seconds)


def _shift(spin: Spin, table: Any, shift_ms: float) -> None:
    """Frames have begun, with an image: from now on images come so much later."""
    value = ParameterValue(type=ParameterType.PARAMETER_DOUBLE, double_value=shift_ms)
    set_on_table(spin, table, "shift_ms", value, f"{shift_ms:g}")
