"""`auras bench ros`: the timing of the actuator's ticks and the latency of images on this machine.

Interval error: |time between two ticks of the actuator - its period|, in its own process at 100 Hz, while an agent
beside it denoises without a pause. The agent runs the 100-step plan, or a shorter one if the machine is too slow for
it; the report names the plan. Measured twice, with SCHED_FIFO requested and without. Beside it a process that only
wakes at that rate and priority says how late the machine itself is ("bare").
Image latency: from publish to callback, 640x480x3 raw, between two processes on this host.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from typing import Any

from auras_ros import resources
from auras_ros.bench.options import add_minutes, amount, bench_parser, check_least, listed
from auras_ros.bench.processes import running
from auras_ros.bench.ros_backends import BACKENDS, compare
from auras_ros.bench.ros_image import RATE_HZ, measure_image_latency
from auras_ros.live.loop import listening, wait_until_armed
from auras_ros.measure.cores import available
from auras_ros.measure.durations import measure_durations, refusal
from auras_ros.measure.minutes import Ends, MeasureStep, run_parts
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.loaders.open import load
from auras_ros.report.result import Report, Say
from auras_ros.ros import BACKEND, QoSProfile
from auras_ros.ros.msg import DiagnosticArray, String
from auras_ros.ros.supported import in_use

CHECKPOINT = "pusht"  # of the config that is run
PLANS = ("ddpm100", "quick")  # the first never pauses with an image every 100 ms; the other is for slow machines
POLL_S = 0.5  # the shortest measurement, and the margin kept before the time limit
LATE_S = 20.0  # the process beside it starts later than it should on a busy machine
TIMED, ROOM = 3, 1.4  # frames timed; how many times longer one may take beside the actuator and the simulator


def run(argv: list[str], progress: Say) -> Report:
    parser = bench_parser("ros", __doc__)
    parser.add_argument("--seconds", type=amount, default=32.0, help="duration of each interval measurement")
    parser.add_argument("--messages", type=int, default=300, help="images to send")
    some = f"the first of {', '.join(PLANS)} that this machine can run"
    parser.add_argument("--plan", help=f"the agent's plan during the measurement ({some})")
    parser.add_argument(
        "--backends", type=listed(str, BACKENDS), metavar="dds,rclpy", help="measure each of them, in alternation"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of --backends")
    add_minutes(parser, 10.0)
    options = parser.parse_args(argv)
    check_least(parser, options, seconds=1, messages=1, rounds=1)
    if options.backends:
        chosen = Report("ros")
        plan = options.plan or _chosen(chosen, progress)  # once, so that every turn runs the same
        words = ["--seconds", str(options.seconds), "--messages", str(options.messages), "--plan", plan]
        report = compare(options.backends, options.rounds, words, options.minutes, progress)
        report.more |= chosen.more
        return report
    report = Report("ros")
    report.more["backend"] = described()
    parts: dict[str, MeasureStep] = {
        "interval error with FIFO": partial(_intervals, 50, options, report, progress),
        "interval error without FIFO": partial(_intervals, 0, options, report, progress),
        "image latency": partial(_images, options, report, progress),
    }
    run_parts(report, options.minutes, parts)
    return report


def described() -> str:
    """The ROS that this process uses, with its version."""
    if BACKEND == "dds":
        return f"our layer, Cyclone DDS {metadata.version('cyclonedds')}"
    return str(in_use())


def _intervals(priority: int, options: argparse.Namespace, report: Report, progress: Say, ends: Ends) -> None:
    options.plan = options.plan or _chosen(report, progress)
    progress(f"interval error, SCHED_FIFO {'requested' if priority else 'not requested'} ...")
    row = _interval_error(priority, options.seconds, options.plan, ends.hard_s)
    suffix = "" if priority else "_without_fifo"
    for figure in ("p50", "p99", "max"):
        report.summary[f"interval_error_ms_{figure}{suffix}"] = row[figure]
        report.summary[f"bare_interval_error_ms_{figure}{suffix}"] = row[f"bare_{figure}"]
    report.summary[f"interval_n{suffix}"] = row["n"]
    report.rows.append({"measure": "interval_error_ms", "plan": options.plan, "cores": available(), **row})


def _images(options: argparse.Namespace, report: Report, progress: Say, ends: Ends) -> None:
    progress("image latency ...")
    room = round(RATE_HZ * (ends.hard_s - time.monotonic()))
    image = measure_image_latency(messages=max(1, min(options.messages, room)))
    report.rows.append({"measure": "image_latency_ms", "cores": available(), **image})
    report.summary |= {name: value for name, value in image.items() if name.startswith("image_latency_ms")}
    report.summary["image_n"] = image["messages"]


def _chosen(report: Report, progress: Say) -> str:
    """The first of PLANS that is fast enough here, with a margin of ROOM; the report names it and the reason. The agent
    refuses a plan whose chunks are used up before the next one comes."""
    checkpoint = load(resources.checkpoint(CHECKPOINT))
    for name in PLANS:
        progress(f"duration of a frame of {name} on this machine ...")
        plan, horizon_ns = Plan(name), checkpoint.horizon * checkpoint.contract.dt_ns
        took = measure_durations(checkpoint, {name: plan}, rounds=1, frames=TIMED)[name].seconds
        chose = report.more.setdefault("chose", [])
        why = refusal(plan, round(ROOM * took * 1e9), horizon_ns)
        if not why:
            chose.append(f"plan {name}: {1e3 * took:.0f} ms a frame")
            return name
        chose.append(f"{name} takes {1e3 * took:.0f} ms a frame, too long here: plan: {why}")
    return PLANS[-1]  # the agent refuses it with the reason


def _interval_error(priority: int, seconds: float, plan: str, end_s: float) -> dict[str, Any]:
    """Run bridge, actuator and a busy agent; returns the actuator's own statistics after `seconds` of armed ticks, or
    fewer if end_s comes first."""
    overrides: dict[str, dict[str, Any]] = {
        "actuator": {"realtime_priority": priority},
        "agent": {"plan": plan},
    }
    config = resources.find("config", "pusht.yaml")
    newest: dict[str, Any] = {}
    chunks: list[float] = []
    with listening("bench_ros") as node:
        depth = QoSProfile(depth=10)
        node.create_subscription(DiagnosticArray, "provenance", lambda _: chunks.append(time.monotonic()), depth)
        node.create_subscription(String, "actuator/state", lambda m: newest.update(json.loads(m.data)), depth)
        with running(node, config, overrides, end_s) as spin:
            wait_until_armed(spin, lambda: str(newest.get("state")), config)
            begin_s = time.monotonic()
            length_s = max(POLL_S, min(seconds, end_s - begin_s - POLL_S))
            with _bare_ticks(priority, length_s) as bare:
                spin(lambda: False, length_s)
            took_s = time.monotonic() - begin_s
    if newest.get("state") != "armed":
        raise RuntimeError(f"the actuator was {newest.get('state')} at the end: {newest.get('reason')}")
    during = sum(at_s >= begin_s for at_s in chunks)
    facts = {"scheduling": newest["scheduling"], "skipped_ticks": newest["skipped_ticks"]}
    machine = {f"bare_{figure}": bare[figure] for figure in ("p50", "p99", "max", "skipped")}
    return {**newest["interval_error_ms"], **facts, "chunks_per_s": during / took_s, **machine}


@contextmanager
def _bare_ticks(priority: int, seconds: float) -> Iterator[dict[str, float]]:
    """Runs them meanwhile; the figures are in what is yielded, at the end."""
    figures: dict[str, float] = {}
    above = priority + 1 if priority else 0  # as the actuator's tick thread
    command = [sys.executable, "-m", "auras_ros.bench.bare_ticks", str(above), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield figures
            said, _ = process.communicate(timeout=LATE_S)
        finally:
            process.kill()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[1:3])} ended with status {process.returncode}")
    figures |= json.loads(said)
