"""`auras bench peers`: LeRobot's DiffusionPolicy and transformers' `generate` compared with our seq and auras.

All run with the same random weights, after a check that all compute the same. A rate is that of whole requests
(observation in, chunk out) with an observation always available, on one thread each, in interleaved rounds. LeRobot
runs in its own environment, which --setup makes with pip or --lerobot-python names; transformers is an extra of this
package.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from auras_ros.bench.options import (
    add_device,
    add_minutes,
    add_seed,
    add_windows,
    amount,
    bench_parser,
    check_least,
    refusing,
)
from auras_ros.bench.peers import environment, generate, lerobot
from auras_ros.bench.peers.lerobot_shapes import SAMPLERS, SHAPES
from auras_ros.bench.peers.process import PeerError
from auras_ros.bench.peers.show import draw, table
from auras_ros.device.make import kind_of
from auras_ros.measure.compare import Job
from auras_ros.measure.cores import available, on_cores
from auras_ros.measure.minutes import MeasureStep, run_parts
from auras_ros.measure.window import Length
from auras_ros.own_environment import SetupError
from auras_ros.pipeline.plan import MAX_STAGES, PlanError
from auras_ros.report.result import Report, Say

__all__ = ["draw", "run", "table"]

PARTS = (lerobot.PART, generate.PART)
WINDOW_S = 600.0  # of one window at most: a published policy on one core
LIMIT_S = 1800.0  # to compile the published U-Net takes minutes on a slow machine
EXAMPLE = """
examples
  auras bench peers --setup out/lerobot                 make LeRobot's environment (once), then run both parts
  auras bench peers --lerobot-python PATH --only lerobot
  auras bench peers --only transformers --rounds 3
"""


def run(argv: list[str], progress: Say) -> Report:
    parser = _parser()
    options = parser.parse_args(argv)
    _check(parser, options)
    torch.set_num_threads(1)
    report, parts, refused = Report("peers"), dict[str, MeasureStep](), dict[str, str]()

    def part(name: str, measure: Callable[[Job], None]) -> None:
        parts[name] = lambda ends: measure(Job(name, options.cores, options, report, progress, ends))

    if lerobot.PART in options.only:
        python = _python(parser, options, progress)
        if python is not None:
            part(lerobot.PART, partial(_measure_lerobot, parser, python))
        else:
            refused[lerobot.PART] = "it needs --setup DIR, which makes an environment for it, or --lerobot-python PATH"
    if generate.PART in options.only:
        if importlib.util.find_spec(generate.PART) is not None:
            part(generate.PART, generate.measure)
        else:
            refused[generate.PART] = "the package is not installed: pip install 'auras_ros[transformers]'"
    if not parts:
        parser.error("; ".join(f"{name}: {why}" for name, why in refused.items()))
    if refused:
        report.more["not_run"] = refused
    with on_cores(options.cores):
        run_parts(report, options.minutes, parts)
    return report


def _measure_lerobot(parser: argparse.ArgumentParser, python: Path, job: Job) -> None:
    try:
        with refusing(parser, lerobot.PeerUnusableError, PlanError):  # before anything is measured
            lerobot.measure(python, job)
    except PeerError as error:  # the reason, a process's last lines, as one line
        raise PeerError("; ".join(line.strip() for line in str(error).splitlines())) from error


def _python(parser: argparse.ArgumentParser, options: argparse.Namespace, progress: Say) -> Path | None:
    """The Python of LeRobot's environment; None if none was given."""
    python: Path | None = options.lerobot_python
    if options.setup is not None:
        with refusing(parser, SetupError):
            python = environment.setup(options.setup, progress)
    elif python is not None and not (python.is_file() and os.access(python, os.X_OK)):
        parser.error(f"--lerobot-python: {python} is not a program")
    return python


def _parser() -> argparse.ArgumentParser:
    parser = bench_parser("peers", __doc__, EXAMPLE)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--setup", type=Path, metavar="DIR", help="folder of LeRobot's environment, made if missing")
    where.add_argument("--lerobot-python", type=Path, metavar="PATH", help="the Python of an existing environment")
    parser.add_argument("--only", choices=PARTS, help="one part (both)")
    add_device(parser)
    parser.add_argument("--shape", choices=list(SHAPES), help="published on a GPU, small on a CPU")
    parser.add_argument("--sampler", default="ddpm100", choices=list(SAMPLERS), help="LeRobot's (ddpm100)")
    parser.add_argument("--pp-generation", type=int, default=10, help="auras' stages of denoising (10)")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="only LeRobot's eager policy")
    add_windows(parser, rounds=10, seconds=1.0)
    add_minutes(parser, 20.0)
    parser.add_argument("--limit", type=amount, default=LIMIT_S, help=f"timeout of LeRobot's answers, s ({LIMIT_S:g})")
    add_seed(parser)
    return parser


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exits with status 2 for impossible numbers."""
    check_least(parser, options, rounds=1, chunks=1, seed=0, pp_generation=1)
    if not options.limit > 0:
        parser.error("--limit must be above 0")
    if options.pp_generation > MAX_STAGES:
        parser.error(f"--pp-generation: a plan has 1 to {MAX_STAGES} stages, got {options.pp_generation}")
    options.only = (options.only,) if options.only else PARTS
    on_gpu = kind_of(options.device) == "cuda"
    options.shape = options.shape or ("published" if on_gpu else "small")
    options.cores = available() if on_gpu else 1
    options.length = Length(options.chunks, options.seconds, WINDOW_S)
