"""`auras bench ros`: what the wire and the actuator's clock cost on this machine.

Interval error: |time between two ticks of the actuator - its period|, in its own process at 100 Hz, while an agent
beside it denoises without a pause: the 100-step plan, or on a machine that is too slow for it a shorter one, which is
said. Measured twice, with SCHED_FIFO asked for and without.
Image latency: from publish to callback, 640x480x3 raw, between two processes on this host.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO, Any

from auras_ros import resources
from auras_ros.bench.kept import attempt
from auras_ros.bench.options import amount, check_least
from auras_ros.bench.ros_image import measure_image_latency, on_loopback
from auras_ros.evaluate.cores import available
from auras_ros.evaluate.durations import measure_durations
from auras_ros.evaluate.report import Report
from auras_ros.nodes.supervisor import Supervisor
from auras_ros.pipeline.load import load
from auras_ros.pipeline.plan import Plan, PlanError
from auras_ros.ros import Node, QoSProfile, init, spin_once, try_shutdown
from auras_ros.ros.msg import DiagnosticArray, String

START_S = 60.0
CHECKPOINT = "pusht"  # of the config that is run
PLANS = ("ddpm100", "quick")  # the first never pauses where an image comes each 100 ms; the other is for slow machines
TIMED, ROOM = 3, 1.4  # frames; how many times longer one may take beside the actuator and the simulator
LAST_LINES = 12  # of the processes' output, beside an error


Progress = Callable[[str], None]


def run(argv: list[str], progress: Progress) -> Report:
    parser = argparse.ArgumentParser(prog="auras bench ros", description=__doc__)
    parser.add_argument("--seconds", type=amount, default=32.0, help="how long each interval measurement lasts")
    parser.add_argument("--messages", type=int, default=300, help="images sent")
    some = f"the first of {', '.join(PLANS)} that this machine can run"
    parser.add_argument("--plan", help=f"what the agent computes meanwhile ({some})")
    options = parser.parse_args(argv)
    check_least(parser, options, seconds=1, messages=1)
    report = Report("ros")
    try:
        plan = options.plan or _chosen(report, progress)
        for priority in (50, 0):
            with attempt(report, f"interval error with plan {plan}, {'with' if priority else 'without'} FIFO"):
                _intervals(priority, plan, options, report, progress)
        with attempt(report, "image latency"):
            _images(options, report, progress)
    except KeyboardInterrupt:
        report.more["interrupted"] = "interrupted: what was finished counts"
    return report


def _intervals(priority: int, plan: str, options: argparse.Namespace, report: Report, progress: Progress) -> None:
    progress(f"interval error, SCHED_FIFO {'asked for' if priority else 'not asked for'} ...")
    with on_loopback():  # it publishes actions: never into a robot's network by accident
        row = _interval_error(priority, options.seconds, plan, progress)
    suffix = "" if priority else "_without_fifo"
    for figure in ("p50", "p99", "max"):
        report.summary[f"interval_error_ms_{figure}{suffix}"] = row[figure]
    report.summary[f"interval_n{suffix}"] = row["n"]
    report.rows.append({"measure": "interval_error_ms", "plan": plan, "cores": available(), **row})


def _images(options: argparse.Namespace, report: Report, progress: Progress) -> None:
    progress("image latency ...")
    image = measure_image_latency(messages=options.messages)
    report.rows.append({"measure": "image_latency_ms", "cores": available(), **image})
    report.summary |= {name: value for name, value in image.items() if name.startswith("image_latency_ms")}
    report.summary["image_n"] = image["messages"]


def _chosen(report: Report, progress: Progress) -> str:
    """The first of PLANS whose chunks last, with room for a busy moment; the report says which, and why. A plan whose
    chunks are used up before the next one comes is one that the agent refuses."""
    checkpoint = load(resources.checkpoint(CHECKPOINT))
    for name in PLANS:
        progress(f"how long a frame of {name} takes here ...")
        plan, horizon_ns = Plan(name), checkpoint.horizon * checkpoint.contract.dt_ns
        took = measure_durations(checkpoint, {name: plan}, rounds=1, frames=TIMED)[name].seconds
        try:
            plan.check_horizon(plan.interval_ns(round(ROOM * took * 1e9)), horizon_ns)
        except PlanError as error:
            said = f"{name} takes {1e3 * took:.0f} ms a frame, too long here: {error}"
        else:
            said = f"plan {name}: {1e3 * took:.0f} ms a frame"
        report.more.setdefault("chose", []).append(said)
        if said.startswith("plan "):
            return name
    return PLANS[-1]  # and it is for the agent to say why not


def _interval_error(priority: int, seconds: float, plan: str, progress: Progress) -> dict[str, Any]:
    """Run bridge, actuator and a busy agent; the actuator's own statistics after `seconds` of armed ticks."""
    overrides: dict[str, dict[str, Any]] = {
        "actuator": {"realtime_priority": priority},
        "agent": {"plan": plan, "frame_period_ms": 0.0},
    }
    config = resources.find("config", "pusht.yaml")
    init(args=[])
    node = Node("bench_ros")
    newest: dict[str, Any] = {}
    chunks: list[float] = []
    count = lambda _: chunks.append(time.monotonic())  # noqa: E731
    node.create_subscription(DiagnosticArray, "provenance", count, QoSProfile(depth=10))
    node.create_subscription(String, "actuator/state", lambda m: newest.update(json.loads(m.data)), QoSProfile(depth=1))
    try:
        with _told() as log, Supervisor(config, log=log, parameters=overrides) as supervisor:
            begin_s = _wait_until_armed(node, supervisor, newest)
            while (left_s := begin_s + seconds - time.monotonic()) > 0:
                spin_once(node, timeout_sec=0.1)
                if news := supervisor.poll():
                    raise RuntimeError(f"a process ended during the measurement: {'; '.join(news)}")
                progress(f"interval error, priority {priority}: {left_s:.0f} s to go")
    finally:
        node.destroy_node()
        try_shutdown()
    if newest.get("state") != "armed":
        raise RuntimeError(f"the actuator was {newest.get('state')} at the end: {newest.get('reason')}")
    during = sum(at_s >= begin_s for at_s in chunks)
    facts = {"scheduling": newest["scheduling"], "skipped_ticks": newest["skipped_ticks"]}
    return {**newest["interval_error_ms"], **facts, "chunks_per_s": during / seconds}


@contextmanager
def _told() -> Iterator[IO[str]]:
    """Where processes write what nobody reads, unless something goes wrong: then a RuntimeError ends with it."""
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            yield log
        except RuntimeError as error:
            log.seek(0)
            raise RuntimeError("\n".join([str(error), *log.read().splitlines()[-LAST_LINES:]])) from error


def _wait_until_armed(node: Node, supervisor: Supervisor, newest: dict[str, Any]) -> float:
    """The time at which the actuator was first heard to be armed, s. Raises RuntimeError after a while."""
    end_s = time.monotonic() + START_S
    while newest.get("state") != "armed":
        if time.monotonic() > end_s:
            raise RuntimeError(f"the actuator was not armed within {START_S:g} s; try: auras run config/pusht.yaml")
        supervisor.poll()
        spin_once(node, timeout_sec=0.1)
    return time.monotonic()
