"""The options of `auras bench pipeline`, checked."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import TypeVar

from auras_ros.bench.pipeline_rate import Length
from auras_ros.bench.pipeline_variants import Comparison, default_threads, default_workers
from auras_ros.device import make_device
from auras_ros.pipeline.plan import stage_steps
from auras_ros.policies.architectures import RECIPES

EXAMPLE = """
examples
  auras bench pipeline                                     dp-small and dp, on the GPU where there is one
  auras bench pipeline --policy dp-small --rounds 3        a first look
  auras bench pipeline --policy dp --device cuda --json dp.json
"""
Value = TypeVar("Value", int, float, str)


def parse(argv: list[str], description: str) -> argparse.Namespace:
    """Ends the process with status 2 and one line for options that cannot be used."""
    parser = argparse.ArgumentParser(
        prog="auras bench pipeline",
        description=description,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    some = f"some of {', '.join(RECIPES)}"
    parser.add_argument("--policy", type=listed(str), default=["dp-small", "dp"], help=f"{some} (default: dp-small,dp)")
    parser.add_argument(
        "--device", default="auto", choices=("auto", "cpu", "cuda"), help="default: a GPU if there is one"
    )
    parser.add_argument("--steps", type=int, default=100, help="DDPM steps of a chunk (default: 100)")
    parser.add_argument("--pp-generation", type=listed(int), default=list(range(1, 11)), help="default: 1,2,...,10")
    parser.add_argument("--alpha", type=float, default=0.0, help="skew of the curve's plans (default: 0)")
    parser.add_argument("--rounds", type=int, default=10, help="rounds that are compared (default: 10)")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no round later than this, each policy")
    parser.add_argument("--chunks", type=int, default=3, help="least chunks of a worker in a window (default: 3)")
    parser.add_argument("--seconds", type=float, default=1.0, help="least length of a window (default: 1)")
    parser.add_argument("--workers", type=listed(int), help="par's counts to try (default: 1 to 4; on a GPU 1 to 16)")
    parser.add_argument("--threads", type=listed(int), help="intra-op threads to try (default: 1,2; on a GPU 1)")
    parser.add_argument("--steady", type=int, default=600, help="chunks of the memory measurement; 0: none")
    parser.add_argument("--seed", type=int, default=0, help="of noise, observations and the rounds' order")
    options = parser.parse_args(argv)
    unknown = [name for name in options.policy if name not in RECIPES]
    if unknown:
        parser.error(f"--policy: '{unknown[0]}' is not known; there is {', '.join(RECIPES)}")
    for name, least in {"rounds": 1, "chunks": 1, "steps": 2}.items():
        if getattr(options, name) < least:
            parser.error(f"--{name} must be at least {least}")
    try:
        options.sizes = _sizes(options)
    except ValueError as error:
        parser.error(str(error))
    options.length = Length(options.chunks, options.seconds)
    return options


def _sizes(options: argparse.Namespace) -> Comparison:
    """Raises ValueError, naming the option or the plan's field, for what cannot be measured."""
    device = make_device(options.device)
    cuda, cores = device.tensors.type == "cuda", len(os.sched_getaffinity(0))
    device.close()
    stages = tuple(sorted(set(options.pp_generation)))
    workers = tuple(options.workers or default_workers(cores, cuda))
    threads = tuple(options.threads or default_threads(cores, cuda))
    if min(threads) < 1 or max(threads) > cores:
        raise ValueError(f"--threads: must be from 1 to the {cores} core(s) of this process, got {threads}")
    sizes = Comparison(f"ddpm{options.steps}", stages, options.alpha, workers, threads, cores)
    sizes.candidates()  # plans that cannot be are refused here, by the field
    for count in stages:
        stage_steps(options.steps, sizes.auras(count).pp_generation, options.alpha)
    return sizes


def listed(kind: type[Value]) -> Callable[[str], list[Value]]:
    """An argparse type: values with commas between them."""

    def parse(text: str) -> list[Value]:
        return [kind(part) for part in text.split(",")]

    return parse
