"""Options that Nova's benches on a virtual clock share: profile, rates, requests, seeds, processes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from auras_ros.bench.nova import a6000
from auras_ros.bench.nova.contenders import DeviceSetup
from auras_ros.bench.nova.runs import LEAST_SEEDS
from auras_ros.bench.options import add_minutes, add_seed, amount, bench_parser, check_least, listed, refusing
from auras_ros.engine.profile import read_profile
from auras_ros.measure.cores import available

RATES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def run_options(
    name: str, description: str | None, argv: Sequence[str], minutes: float, rates: tuple[float, ...] = RATES
) -> argparse.Namespace:
    """Of a bench that has no options beside these, with its `setup`. Exits with status 2, naming what is invalid."""
    parser = bench_parser(name, description)
    add_runs(parser, rates)
    add_minutes(parser, minutes)
    add_seed(parser)
    options = parser.parse_args(argv)
    check_runs(parser, options)
    return options


def add_runs(parser: argparse.ArgumentParser, rates: tuple[float, ...] = RATES, seeds: int = 10) -> None:
    known = f"({','.join(map(str, rates))})"
    asked = f"requests a second; with a file: of 1 / the time of vision and prefill alone {known}"
    parser.add_argument("--profile", default="a6000", help="of a device: a6000 (the paper's), or a file (a6000)")
    parser.add_argument("--rates", type=listed(float), default=list(rates), help=asked)
    parser.add_argument("--requests", type=int, default=500, help="of a trace (500)")
    parser.add_argument("--seeds", type=int, default=seeds, help=f"traces at each rate ({seeds})")
    parser.add_argument("--tbt-ms", type=amount, help="bound on the time between tokens for Nova's plan (80 on a6000)")
    parser.add_argument("--processes", type=int, default=available(), help="that simulate at once (a core each)")


def check_runs(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Reads the `setup` too. Exits with status 2, naming the option, if one is invalid."""
    check_least(parser, options, requests=2, seeds=LEAST_SEEDS, processes=1, seed=0)
    if bad := [rate for rate in options.rates if not 0 < rate < 100]:
        parser.error(f"--rates: from above 0 to 100, got {bad[0]:g}")
    options.rates = sorted(set(options.rates))
    with refusing(parser, ValueError, what="--profile: "):
        options.setup = read_setup(options)


def read_setup(options: argparse.Namespace) -> DeviceSetup:
    """Also fills in `rate_hz`, which the rates are multiples of. Without a bound on the time between tokens it is as
    many decodes alone as the paper's. Raises ValueError for a file that is no profile, or a bound that no split
    keeps."""
    paper = a6000.profile()
    profile = paper if options.profile == "a6000" else read_profile(Path(options.profile))
    options.rate_hz = 1.0 if profile == paper else 1e3 / (profile.vision + profile.prefill[profile.prompt])
    setup = DeviceSetup(profile, options.tbt_ms or a6000.TBT_BOUND_MS / paper.decode * profile.decode)
    setup.plan()
    return setup
