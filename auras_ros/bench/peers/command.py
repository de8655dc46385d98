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
from pathlib import Path

import torch

from auras_ros.bench.options import add_device, add_windows, amount, check_least
from auras_ros.bench.peers import environment, generate, lerobot
from auras_ros.bench.peers.lerobot_shapes import SAMPLERS, SHAPES
from auras_ros.bench.peers.process import PeerError
from auras_ros.bench.peers.show import draw, table
from auras_ros.device.make import kind_of
from auras_ros.measure.cores import available, on_cores
from auras_ros.measure.minutes import Ends, MeasureStep, run_parts
from auras_ros.pipeline.plan import MAX_STAGES, PlanError
from auras_ros.report.result import Report, Say

__all__ = ["draw", "run", "table"]

PARTS = (lerobot.PART, generate.PART)
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
    report = Report("peers")
    refused: dict[str, str] = {}
    try:
        python = _python(parser, options, progress) if lerobot.PART in options.only else None
    except environment.SetupError as error:
        parser.error(str(error))
    if why := _why_not(options, python, refused):
        parser.error(why)
    if refused:
        report.more["not_run"] = refused

    def first(ends: Ends) -> None:
        assert python is not None
        try:
            lerobot.measure(python, options, ends, report, progress)
        except (lerobot.PeerUnusableError, PlanError) as error:  # before anything is measured
            parser.error(str(error))
        except PeerError as error:  # the reason, a process's last lines, as one line
            raise PeerError("; ".join(line.strip() for line in str(error).splitlines())) from error

    def second(ends: Ends) -> None:
        generate.measure(options, ends, report, progress)

    parts: dict[str, MeasureStep] = {lerobot.PART: first, generate.PART: second}
    with on_cores(options.cores):
        wanted = {name: part for name, part in parts.items() if name in options.only and name not in refused}
        run_parts(report, options.minutes, wanted)
    return report


def _python(parser: argparse.ArgumentParser, options: argparse.Namespace, progress: Say) -> Path | None:
    """The Python of LeRobot's environment; None if none was given."""
    if options.setup is not None:
        return environment.setup(options.setup, progress)
    python: Path | None = options.lerobot_python
    if python is not None and not (python.is_file() and os.access(python, os.X_OK)):
        parser.error(f"--lerobot-python: {python} is not a program")
    return python


def _why_not(options: argparse.Namespace, python: Path | None, refused: dict[str, str]) -> str | None:
    """Fill `refused` with the parts that cannot run and why. Returns the reasons if no requested part can run."""
    if lerobot.PART in options.only and python is None:
        refused[lerobot.PART] = "it needs --setup DIR, which makes an environment for it, or --lerobot-python PATH"
    if generate.PART in options.only and importlib.util.find_spec(generate.PART) is None:
        refused[generate.PART] = "the package is not installed: pip install 'auras_ros[transformers]'"
    if len(refused) < len(options.only):
        return None
    return "; ".join(f"{part}: {why}" for part, why in refused.items())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="auras bench peers",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--setup", type=Path, metavar="DIR", help="folder of LeRobot's environment, made if missing")
    where.add_argument("--lerobot-python", type=Path, metavar="PATH", help="the Python of an existing environment")
    parser.add_argument("--only", choices=PARTS, help="one part (both)")
    add_device(parser)
    parser.add_argument("--shape", choices=list(SHAPES), help="published on a GPU, small on a CPU")
    parser.add_argument("--sampler", default="ddpm100", choices=list(SAMPLERS), help="LeRobot's (ddpm100)")
    parser.add_argument("--pp-generation", type=int, default=10, help="auras' stages of denoising (10)")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="only LeRobot's eager policy")
    add_windows(parser, rounds=10, minutes=20.0, seconds=1.0)
    parser.add_argument("--limit", type=amount, default=LIMIT_S, help=f"timeout of LeRobot's answers, s ({LIMIT_S:g})")
    parser.add_argument("--seed", type=int, default=0, help="of weights, observations, noise and the order (0)")
    return parser


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exits with status 2 for impossible numbers."""
    check_least(parser, options, rounds=1, chunks=1, seed=0, pp_generation=1)
    if not options.limit > 0:
        parser.error("--limit must be above 0")
    if options.pp_generation > MAX_STAGES:
        parser.error(f"--pp-generation: a plan has 1 to {MAX_STAGES} stages, got {options.pp_generation}")
    options.only = (options.only,) if options.only else PARTS
    shape = options.shape or ("published" if kind_of(options.device) == "cuda" else "small")
    options.cores = available() if kind_of(options.device) == "cuda" else 1
    options.shape = dict.fromkeys(PARTS, shape)
