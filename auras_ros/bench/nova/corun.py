"""`auras bench nova-corun`: decode beside vision and beside prefill, for each split of the device (Nova V-B, figures 8
and 9), and the profile that Nova's schedulers plan by.

The engine of a model folder runs one kind of forward at a time, alone or beside decodes of `--rows` requests, in
interleaved rounds. The gain is the time that the same forwards take one kind after the other, each alone in its
quickest form (on a CPU that may be fewer cores than all), over the time that they take together: medians of the rounds'
ratios with their quartiles, gaps between forwards included. Latencies are those of whole forwards. Without a partition
both stages may use the whole device. On a GPU two single matrix products follow (table IV, figure 4).
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from auras_ros import resources
from auras_ros.bench.nova import linears
from auras_ros.bench.nova.corun_rows import corun_rows, corun_summary, stage_summary
from auras_ros.bench.nova.corun_show import NOTE, PAPER, draw, table
from auras_ros.bench.options import add_device, add_minutes, add_seed, bench_parser, check_least, refusing
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.device import DeviceError, make_device
from auras_ros.device.cores import in_own_thread
from auras_ros.device.make import kind_of
from auras_ros.engine.build import make_partitions
from auras_ros.engine.probing import Prober, Round
from auras_ros.engine.profiling import open_prober, profile_of, rounds, trials, trials_alone
from auras_ros.measure.cores import available, on_cores
from auras_ros.measure.minutes import Ends, MeasureStep, OverError, attempt, run_parts
from auras_ros.report.result import Report, Say, hardware, unwritable
from auras_ros.report.table import Row

__all__ = ["draw", "run", "table"]
DEFAULT = "pusht-vlm"


def run(argv: list[str], progress: Say) -> Report:
    options = _options(argv)
    report = Report("nova-corun", more={"note": NOTE})
    parts: dict[str, MeasureStep] = {"corun": partial(_measure, report, options, progress)}
    if options.device == "cuda":
        parts["linears"] = partial(_measure_linears, report, options, progress)
    run_parts(report, options.minutes, parts)
    report.more["paper"] = [each.row(report.summary) for each in PAPER]
    return report


def _options(argv: list[str]) -> argparse.Namespace:
    parser = bench_parser("nova-corun", __doc__)
    parser.add_argument("folder", nargs="?", default=DEFAULT, help=f"of a vision-language model ({DEFAULT})")
    parser.add_argument("--profile", type=Path, help="write the profile here, for the option stage_profile")
    add_device(parser)
    parser.add_argument("--cores", type=int, default=available(), help="that are divided (all; with a GPU all)")
    parser.add_argument("--rows", type=int, default=4, help="requests that decode beside (4)")
    parser.add_argument("--probes", type=int, default=4, help="images and prompts each time (4)")
    parser.add_argument("--image-px", type=int, default=336, help="side of their images (336)")
    parser.add_argument("--rounds", type=int, default=10, help="interleaved rounds, after one that warms up (10)")
    add_minutes(parser, 10.0)
    add_seed(parser)
    options = parser.parse_args(argv)
    check_least(parser, options, cores=1, rows=2, probes=1, image_px=1, rounds=1, seed=0)
    with refusing(parser, DeviceError):
        options.device = kind_of(options.device)
    if not (2 if options.device == "cpu" else available()) <= options.cores <= available():
        what = "two cores at least" if options.device == "cpu" else "all cores"
        parser.error(f"--cores: {what}, of the {available()} of this process, got {options.cores}")
    if options.profile and (why := unwritable(options.profile)):
        parser.error(f"--profile: {why}")
    with refusing(parser, FileNotFoundError, CheckpointError, what="folder: "):
        options.folder = resources.checkpoint(options.folder)
        if not (options.folder / "config.json").is_file():
            raise FileNotFoundError(f"{options.folder}: no config.json")
    return options


def _measure(report: Report, options: argparse.Namespace, say: Say, ends: Ends) -> None:
    with ExitStack() as kept:
        device = make_device(options.device)
        kept.callback(device.close)
        kept.enter_context(on_cores(options.cores))
        checkpoint = in_own_thread(partial(open_vlm, options.folder, device=options.device))
        partitions = make_partitions(device)
        prober = open_prober(
            checkpoint, device, partitions, rows=options.rows, probes=options.probes, image_px=options.image_px,
            seed=options.seed,
        )  # fmt: skip
        kept.callback(prober.close)
        where = {"model": checkpoint.name, "device": options.device, "cores": options.cores, "of": partitions.units}
        todo = trials(partitions.sizes, options.rows, options.probes, prober.engine.length - 1)
        if options.device == "cpu":
            todo += trials_alone(partitions.sizes, options.rows, options.probes)
        found = list[Round]()
        try:
            for each in rounds(prober, todo, options.rounds, random.Random(options.seed), _before(ends, options, say)):
                found.append(each)
                if time.monotonic() > ends.soft_s:
                    break
        finally:
            if found:
                _finish(report, options, found, where, prober)


def _before(ends: Ends, options: argparse.Namespace, say: Say) -> Callable[[int], None]:
    said = set[int]()

    def before(number: int) -> None:
        if time.monotonic() > ends.hard_s:
            raise OverError
        if number not in said:
            said.add(number)
            say(f"round {number} of {options.rounds}" if number else "warming up")

    return before


def _finish(
    report: Report, options: argparse.Namespace, found: Sequence[Round], where: dict[str, Any], prober: Prober
) -> None:
    rows = corun_rows(found, options.rows)
    report.rows += [{**where, **row} for row in rows]
    report.summary |= corun_summary(rows)
    with attempt(report, "profile"):
        profile = profile_of(
            found, device=_device_name(where), model=where["model"], units=where["of"], prompt=prober.prompt,
            rows=options.rows,
        )  # fmt: skip
        report.more["profile"] = asdict(profile)
        report.summary |= stage_summary(profile)
        if options.profile:
            profile.write(options.profile)


def _device_name(where: Row) -> str:
    machine = hardware()
    return str(machine["gpu"]) if where["device"] == "cuda" else f"{machine['cpu']}, {where['cores']} cores"


def _measure_linears(report: Report, options: argparse.Namespace, say: Say, ends: Ends) -> None:
    sizes = linears.LinearSizes()
    with ExitStack() as kept:
        device = make_device(options.device)
        kept.callback(device.close)
        partitions = make_partitions(device)
        kept.callback(partitions.close)
        prepared = linears.PreparedLinears(device, partitions, sizes)
        found = list[linears.Took]()
        order = random.Random(options.seed)
        for each in linears.rounds(prepared, options.rounds, order, _before(ends, options, say)):
            found.append(each)
            if time.monotonic() > ends.soft_s:
                break
    rows = linears.linear_rows(found, options.cores)
    report.rows += [{"device": options.device, "of": partitions.units, **row} for row in rows]
    report.summary |= linears.linear_summary(rows, sizes)
