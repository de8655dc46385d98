"""The options of `auras bench pipeline`, checked."""

from __future__ import annotations

import argparse

from auras_ros.bench.options import add_job_options, add_seed, check_job_options, listed
from auras_ros.bench.pipeline.sizes import Comparison
from auras_ros.measure.cores import threads_tried
from auras_ros.measure.forms import default_concurrency
from auras_ros.pipeline.plan import stage_steps
from auras_ros.policies.architectures import RECIPES

EXAMPLE = """
examples
  auras bench pipeline                                     dp-small and dp, on the GPU if there is one
  auras bench pipeline --policy dp-small --rounds 3        a quick estimate
  auras bench pipeline --policy dp --device cuda --json dp.json
"""


def parse(argv: list[str], description: str) -> argparse.Namespace:
    """Exits with status 2 and one line if an option is invalid."""
    parser = argparse.ArgumentParser(
        prog="auras bench pipeline",
        description=description,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    some = f"some of {', '.join(RECIPES)}"
    parser.add_argument("--policy", type=listed(str), default=["dp-small", "dp"], help=f"{some} (default: dp-small,dp)")
    parser.add_argument("--steps", type=int, default=100, help="DDPM steps of a chunk (default: 100)")
    parser.add_argument("--pp-generation", type=listed(int), default=list(range(1, 11)), help="default: 1,2,...,10")
    parser.add_argument("--alpha", type=float, default=0.0, help="skew of the curve's plans (default: 0)")
    add_job_options(parser, rounds=10, minutes=30.0, seconds=1.0)
    parser.add_argument(
        "--concurrency", type=listed(int), help="par's concurrency to try (default: 1 to 4; on a GPU 1 to 16)"
    )
    parser.add_argument(
        "--threads", type=listed(int), help="numbers of intra-op threads to try (1,2,4,... up to all cores)"
    )
    parser.add_argument("--steady", type=int, default=600, help="chunks of the memory measurement; 0: skip it (600)")
    add_seed(parser)
    options = parser.parse_args(argv)
    unknown = [name for name in options.policy if name not in RECIPES]
    if unknown:
        parser.error(f"--policy: '{unknown[0]}' is not known; known: {', '.join(RECIPES)}")
    kind = check_job_options(parser, options, steps=2, steady=0)
    try:
        options.sizes = {cores: _sizes(options, cores, kind) for cores in options.cores}
    except ValueError as error:
        parser.error(str(error))
    return options


def _sizes(options: argparse.Namespace, cores: int, kind: str) -> Comparison:
    """Raises ValueError, naming the option or the plan's field, if it is invalid."""
    stages = tuple(sorted(set(options.pp_generation)))
    workers = tuple(options.concurrency or default_concurrency(cores, kind == "cuda"))
    if options.threads and not 1 <= min(options.threads) <= max(options.threads) <= max(options.cores):
        raise ValueError(f"--threads: from 1 to the {max(options.cores)} of --cores, got {options.threads}")
    threads = tuple(count for count in options.threads or threads_tried(cores, kind) if count <= cores) or (1,)
    sizes = Comparison(f"ddpm{options.steps}", stages, options.alpha, workers, threads, cores)
    sizes.candidates()  # refuses invalid plans, by the field
    for count in stages:
        stage_steps(options.steps, sizes.auras(count).pp_generation, options.alpha)
    return sizes
