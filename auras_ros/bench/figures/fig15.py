"""`auras bench fig15`: speedup of auras over seq by the number of iterative steps (Auras figure 15).

Autoregressive: by action tokens. Images change with every frame, and no keys and values are kept between frames. seq
decodes with a KV cache; auras has one request for each token, merged into one forward. With fetch_offset 0 perception
and generation run one after the other; the paper's -1 runs them side by side.

Diffusion: by denoising steps, with --stages stages of auras, or one per step if there are fewer.

Both sides have the same cores, first one and then all. First it is checked that both give the same result. Rounds of
both are interleaved in random order, and a ratio is taken within a round. On a GPU autoregressive policies run in
bfloat16, as usual.

In addition to the figure: one static camera beside a moving one, auras with and without the previous frame's keys and
values (plan: reuse=exact). Both cameras are perceived in either case.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from auras_ros.bench.figures.fig15_show import PAPER, REUSE_ROW, STEPS_ROW, TOKENS_ROW, draw, table
from auras_ros.bench.options import add_job_options, add_seed, check_job_options, listed
from auras_ros.bench.policies import build, drawn, room, room_as_run
from auras_ros.measure.compare import measure
from auras_ros.measure.cores import suffix
from auras_ros.measure.executors import Bench
from auras_ros.measure.feed import Feed
from auras_ros.measure.job import Job, Progress, Subjects, run_jobs
from auras_ros.models.action_tokens import Rt2Tokens
from auras_ros.models.openvla import OpenVlaConfig, build_openvla
from auras_ros.models.presets import OPENVLAS, RT2S
from auras_ros.models.rt2 import Rt2Config, build_rt2
from auras_ros.pipeline.plan import MAX_STAGES, Plan
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.architectures import RECIPES
from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.vision_language import VisionLanguagePrefix, random_ids
from auras_ros.report.result import Report

__all__ = ["draw", "run", "table"]

HALVES = ("tokens", "diffusion", "reuse")
TOKENS = (1, 2, 4, 7, 14, 28, 56)
PREFIXES = (64, 256)
STEPS = (5, 10, 20, 40, 100)
HEADLINE = {7, 28}
MODELS: Mapping[str, Rt2Config | OpenVlaConfig] = {**RT2S, **OPENVLAS}
REUSE_TOKENS = 7
RATIO = {"ratio": "speedup", "low": "speedup_low", "high": "speedup_high"}  # within a round: median and quartiles


def vision_language_policy(
    model: str,
    prefix: int,
    tokens: int,
    cameras: int = 1,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> AutoregressivePolicy:
    """An RT-2 or OpenVLA of `models.presets` with random weights: `prefix` embeddings in total, most of them patches of
    one square picture for each camera, and one action of `tokens` channels. Raises ValueError."""
    side = int(((prefix - 1) // cameras) ** 0.5)
    if model not in MODELS or side < 1 or tokens < 1:
        raise ValueError(f"model '{model}', prefix {prefix}, tokens {tokens}: known models: {', '.join(MODELS)}")
    config = MODELS[model]
    with drawn(torch.device(device), dtype):
        if isinstance(config, OpenVlaConfig):
            px = side * config.dinov2.patch_px
            dinov2, siglip = (replace(each, image_px=px) for each in (config.dinov2, config.siglip))
            network, channels = build_openvla(replace(config, dinov2=dinov2, siglip=siglip)), 6
        else:
            px = side * config.vision.patch_px
            network, channels = build_rt2(replace(config, vision=replace(config.vision, image_px=px))), 3
    vocabulary = config.language.vocabulary
    before, after = random_ids(1, vocabulary, 1), random_ids(prefix - cameras * side * side - 1, vocabulary, 2)
    shape = Architecture(model, cameras, (px, px), 1, 0, 1, tokens, channels)
    codec = Rt2Tokens([-1.0] * tokens, [1.0] * tokens, first=vocabulary - 256)
    seeing = VisionLanguagePrefix(network, before, after, cameras)
    policy = AutoregressivePolicy(seeing, network.language, codec, shape)
    return policy.eval().requires_grad_(False)


def _policy(options: argparse.Namespace, prefix: int, tokens: int, cameras: int = 1) -> AutoregressivePolicy:
    where = room_as_run(options.device)
    return vision_language_policy(options.model, prefix, tokens, cameras, where["device"], where["dtype"])


def run(argv: list[str], progress: Progress) -> Report:
    options = _options(argv)
    report = Report("fig15")
    report.more["paper"] = PAPER
    run_jobs(_subjects(options), options, report, progress)
    return report


def _subjects(options: argparse.Namespace) -> Subjects:
    """The measurements by name."""
    found: dict[str, partial[None]] = {}
    for half in options.half:
        if half == "diffusion":
            found |= {f"{options.diffusion}, {n} steps": partial(_compare_steps, n) for n in options.steps}
            continue
        for prefix in options.prefix:
            what = f"{options.model}, prefix {prefix}"
            if half == "reuse":
                found[f"{what}, reuse"] = partial(_compare_reuse, prefix)
            else:
                found |= {f"{what}, {n} tokens": partial(_compare_tokens, prefix, n) for n in options.tokens}
    return found


def _compare_tokens(prefix: int, tokens: int, job: Job) -> None:
    """seq against auras with a stage for each token."""
    options = job.options
    plans = Plan(), Plan(mode="auras", pp_generation=tokens, fetch_offset=options.fetch_offset)
    named = {"compared": TOKENS_ROW, "model": options.model, "prefix": prefix, "iterations": tokens}
    key = f"auras_over_seq_{tokens}" if tokens in HEADLINE else ""
    ending = "" if prefix == options.prefix[0] else f"_prefix_{prefix}"
    with job.bench(_policy(options, prefix, tokens)) as bench:
        _measure(bench, job, plans, named, f"{key}{ending}" if key else "")


def _compare_steps(steps: int, job: Job) -> None:
    """seq against auras with --stages stages of denoising."""
    options = job.options
    kind = f"ddpm{steps}"
    plans = Plan(kind), Plan(kind, "auras", pp_generation=min(options.stages, steps))
    named = {"compared": STEPS_ROW, "model": options.diffusion, "prefix": None, "iterations": steps}
    with job.bench(build(options.diffusion, steps=steps, **room(options.device)).policy) as bench:
        _measure(bench, job, plans, named, f"auras_over_seq_steps_{steps}")


def _compare_reuse(prefix: int, job: Job) -> None:
    """auras without and with reuse of the static camera's keys and values, which come first in the prefix."""
    options = job.options
    policy = _policy(options, prefix, REUSE_TOKENS, cameras=2)
    plan = Plan(mode="auras", pp_generation=REUSE_TOKENS, fetch_offset=options.fetch_offset)
    named = {"compared": REUSE_ROW, "model": options.model, "prefix": prefix, "iterations": REUSE_TOKENS}
    ending = "" if prefix == options.prefix[0] else f"_prefix_{prefix}"
    plans = plan, replace(plan, reuse="exact")
    with job.bench(policy) as bench:
        bench.feed = one_still(policy, options.seed)
        _measure(bench, job, plans, named, f"reuse_over_none{ending}")


def one_still(policy: AutoregressivePolicy, seed: int, different: int = 8) -> Feed:
    """Random observations with a constant picture of the first camera."""
    random_ = torch.Generator().manual_seed(seed)
    examples = [policy.example(1, random_) for _ in range(different)]
    for images, _ in examples:
        images[:, :, 0] = examples[0][0][:, :, 0]
    return Feed(examples)


def _measure(bench: Bench, job: Job, plans: tuple[Plan, Plan], named: dict[str, Any], key: str) -> None:
    """Measure both plans in interleaved rounds, add a row, and the speedup of the second plan under `key`."""
    base, other = plans
    measured = measure(bench, job, plans)
    if other not in measured:
        return
    found, first = measured.figures(other, base), measured.figures(base, base)
    dtype = str(next(bench.policy.parameters()).dtype).removeprefix("torch.")
    job.report.rows.append(
        {
            **named,
            "device": bench.device.type,
            "cores": bench.cores,
            "dtype": dtype,
            "base": str(base),
            "other": str(other),
            "base_threads": first["threads"],
            "other_threads": found["threads"],
            "base_per_s": first["rate_hz"],
            "other_per_s": found["rate_hz"],
            **{name: found[kept] for name, kept in RATIO.items()},
            "staleness_ms_base": first["staleness_ms"],
            "staleness_ms_other": found["staleness_ms"],
            "rounds": found["rounds"],
            "disturbed": found["disturbed"] or first["disturbed"],
        }
    )
    if key:
        job.report.summary[f"{key}{suffix(bench.cores, job.options.cores)}"] = found["speedup"]


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="auras bench fig15", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--half", type=listed(str), default=list(HALVES), help=f"some of {','.join(HALVES)} (all)")
    parser.add_argument("--model", choices=list(MODELS), default="rt2-small", help="autoregressive model (rt2-small)")
    parser.add_argument("--prefix", type=listed(int), default=list(PREFIXES), help="lengths of the prefix (64,256)")
    parser.add_argument("--tokens", type=listed(int), default=list(TOKENS), help="action tokens (1,2,4,7,14,28,56)")
    parser.add_argument("--diffusion", choices=list(RECIPES), default="dp-small", help="diffusion policy (dp-small)")
    parser.add_argument("--steps", type=listed(int), default=list(STEPS), help="denoising steps (5,10,20,40,100)")
    parser.add_argument("--stages", type=int, default=10, help="auras' stages of denoising (10)")
    parser.add_argument(
        "--fetch-offset", type=int, choices=(-1, 0), default=0, help="auras' offset for tokens (0; the paper's is -1)"
    )
    add_job_options(parser, minutes=30.0)
    add_seed(parser)
    options = parser.parse_args(argv)
    if not 1 <= min(options.tokens) <= max(options.tokens) <= MAX_STAGES:
        parser.error(f"--tokens: a plan has 1 to {MAX_STAGES} stages")
    if min(options.prefix) < 2:
        parser.error("--prefix must be at least 2")
    if "reuse" in options.half and min(options.prefix) < 3:
        parser.error("--prefix must be at least 3 for the two cameras of --half reuse")
    if min(options.steps) < 2:
        parser.error("--steps must be at least 2")
    if not 1 <= options.stages <= MAX_STAGES:
        parser.error(f"--stages: a plan has 1 to {MAX_STAGES}, got {options.stages}")
    if unknown := [half for half in options.half if half not in HALVES]:
        parser.error(f"--half: '{unknown[0]}' is not known; known: {', '.join(HALVES)}")
    check_job_options(parser, options)
    return options
