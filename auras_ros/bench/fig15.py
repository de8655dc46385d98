"""`auras bench fig15`: auras over seq with the number of action tokens (Auras figure 15, autoregressive).

Images change with every frame, and no key or value is kept from one frame to the next. seq decodes with a KV cache, as
anybody would; auras has one request for each token, merged into one forward. Both perceive in the same way. It is
checked first that both give the same tokens; rounds of both are interleaved in random order; ratios are of medians.
With fetch_offset 0 both have one thread; the paper's -1 perceives beside generation, on a CPU with a second thread,
which seq does not have. On a GPU weights are bfloat16, as such policies are run there.

Then, apart from the figure, a camera that stands still beside one that moves: auras with and without the keys and
values of the frame before (plan: reuse=exact). Perception is done for both cameras all the same.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import torch

from auras_ros.bench.feed import Feed
from auras_ros.bench.figures.policies import drawn
from auras_ros.bench.figures.rounds import check_same, room_as_run
from auras_ros.bench.options import add_device, amount, check_least, listed
from auras_ros.bench.pipeline_rate import Bench, Length
from auras_ros.bench.pipeline_variants import Variant
from auras_ros.evaluate.report import Report
from auras_ros.models.action_tokens import Rt2Tokens
from auras_ros.models.openvla import OpenVlaConfig, build_openvla
from auras_ros.models.presets import OPENVLAS, RT2S
from auras_ros.models.rt2 import Rt2Config, build_rt2
from auras_ros.pipeline.plan import MAX_STAGES, Plan
from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.diffusion import Architecture
from auras_ros.policies.vision_language import VisionLanguagePrefix, random_ids

TOKENS = (1, 2, 4, 7, 14, 28, 56)
PREFIXES = (64, 256)
HEADLINE = {7, 28}
MODELS: Mapping[str, Rt2Config | OpenVlaConfig] = {**RT2S, **OPENVLAS}
REUSE_TOKENS = 7
PAPER = "proportional to the number of tokens (section 6.5; figure 15 has no numbers in the text)"
Progress = Callable[[str], None]


def vision_language_policy(
    model: str,
    prefix: int,
    tokens: int,
    cameras: int = 1,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> AutoregressivePolicy:
    """An RT-2 or OpenVLA of `models.presets` with random weights: `prefix` embeddings in all, most of them patches of
    one picture a camera, as square as they come, and one action of `tokens` channels. Raises ValueError."""
    side = int(((prefix - 1) // cameras) ** 0.5)
    if model not in MODELS or side < 1 or tokens < 1:
        raise ValueError(f"model '{model}', prefix {prefix}, tokens {tokens}: there is {', '.join(MODELS)}")
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
    policy = AutoregressivePolicy(
        VisionLanguagePrefix(network, before, after, cameras), network.language, codec, 1, tokens, shape
    )
    return policy.eval().requires_grad_(False)


def _policy(options: argparse.Namespace, prefix: int, tokens: int, cameras: int = 1) -> AutoregressivePolicy:
    where = room_as_run(options.device)
    return vision_language_policy(options.model, prefix, tokens, cameras, where["device"], where["dtype"])


def run(argv: list[str], progress: Progress) -> Report:
    options = _options(argv)
    torch.set_num_threads(1)
    report = Report("fig15")
    report.more["paper"] = PAPER
    try:
        for prefix in options.prefix:
            for tokens in options.tokens:
                _compare(prefix, tokens, options, report, progress)
        for prefix in options.prefix:
            _compare_reuse(prefix, options, report, progress)
    except KeyboardInterrupt:
        report.more["interrupted"] = "what was finished counts"
    return report


def _compare(prefix: int, tokens: int, options: argparse.Namespace, report: Report, progress: Progress) -> None:
    """seq against auras with a stage for each token."""
    bench = Bench(_policy(options, prefix, tokens), options.device, options.seed, most=1)
    plans = Plan(), Plan(mode="auras", pp_generation=tokens, fetch_offset=options.fetch_offset)
    check_same(bench, *plans)
    ratio = _measure(bench, plans, f"prefix {prefix}, {tokens} tokens", options, report, progress)
    if ratio is not None:
        report.rows[-1] |= {"compared": "auras over seq", "prefix": prefix, "tokens": tokens}
        if tokens in HEADLINE:
            name = f"auras_over_seq_{tokens}"
            report.summary[name if prefix == options.prefix[0] else f"{name}_prefix_{prefix}"] = ratio


def _compare_reuse(prefix: int, options: argparse.Namespace, report: Report, progress: Progress) -> None:
    """auras without and with the static camera's keys and values, which come first in the prefix."""
    policy = _policy(options, prefix, REUSE_TOKENS, cameras=2)
    bench = Bench(policy, options.device, options.seed, most=1)
    bench.feed = one_still(policy, options.seed)
    plan = Plan(mode="auras", pp_generation=REUSE_TOKENS, fetch_offset=options.fetch_offset)
    plans = plan, replace(plan, reuse="exact")
    ratio = _measure(bench, plans, f"prefix {prefix}, reuse", options, report, progress)
    if ratio is not None:
        report.rows[-1] |= {"compared": "reuse over none", "prefix": prefix, "tokens": REUSE_TOKENS}
        report.summary["reuse_over_none" if prefix == options.prefix[0] else f"reuse_over_none_prefix_{prefix}"] = ratio


def one_still(policy: AutoregressivePolicy, seed: int, different: int = 8) -> Feed:
    """Random observations of which the first camera's picture is always the same."""
    random_ = torch.Generator().manual_seed(seed)
    examples = [policy.example(1, random_) for _ in range(different)]
    for images, _ in examples:
        images[:, :, 0] = examples[0][0][:, :, 0]
    return Feed(examples)


def _measure(
    bench: Bench,
    plans: tuple[Plan, Plan],
    what: str,
    options: argparse.Namespace,
    report: Report,
    progress: Progress,
) -> float | None:
    """Interleaved rounds of both plans as a row; how much quicker the second is. Closes the bench."""
    variants, order = [Variant(plan) for plan in plans], random.Random(options.seed)
    rates: dict[Variant, list[float]] = {variant: [] for variant in variants}
    end_s = time.monotonic() + options.seconds
    try:
        for number in range(options.rounds):
            if number and time.monotonic() > end_s:
                break
            for variant in order.sample(variants, 2):
                progress(f"{what}: round {number + 1} of {options.rounds}, {variant.label}")
                rates[variant].append(bench.rate(variant, Length(chunks=3, seconds=0.5)))
    finally:
        bench.close()
    base, other = (rates[variant] for variant in variants)
    if not (median(base) and median(other)):
        report.more[what] = "no two chunks in one window: too slow to be measured here"
        return None
    ratios = [second / first for first, second in zip(base, other, strict=True)]
    ratio = median(other) / median(base)
    spread = {"ratio": ratio, "low": min(ratios), "high": max(ratios), "rounds": len(ratios)}
    dtype = str(next(bench.policy.parameters()).dtype).removeprefix("torch.")
    names = {"model": options.model, "dtype": dtype, "base": str(plans[0]), "other": str(plans[1])}
    report.rows.append({**names, "base_per_s": median(base), "other_per_s": median(other), **spread})
    return ratio


def table(report: Report) -> str:
    """A line a comparison."""
    lines = [
        f"paper: {PAPER}",
        "compared         prefix  tokens  base /s  other /s  ratio  (least to most of the rounds)",
    ]
    lines += [_line(row) for row in report.rows]
    return "\n".join([*lines, *(f"{name} {value:.2f}" for name, value in report.summary.items())])


def _line(row: dict[str, Any]) -> str:
    what = f"{row['compared']:15}  {row['prefix']:6}  {row['tokens']:6}"
    rates = f"{row['base_per_s']:7.2f}  {row['other_per_s']:8.2f}  {row['ratio']:5.2f}"
    return f"{what}  {rates}  ({row['low']:.2f} to {row['high']:.2f}, {row['rounds']} rounds)"


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="auras bench fig15", description=__doc__)
    parser.add_argument("--model", choices=list(MODELS), default="rt2-small", help="sizes of the networks (rt2-small)")
    parser.add_argument("--prefix", type=listed(int), default=list(PREFIXES), help="embeddings before them (64,256)")
    parser.add_argument("--tokens", type=listed(int), default=list(TOKENS), help="action tokens (1,2,4,7,14,28,56)")
    parser.add_argument("--rounds", type=int, default=5, help="of both modes, for each number of tokens (5)")
    parser.add_argument("--seconds", type=amount, default=60.0, help="begin no further round after this long (60)")
    parser.add_argument("--fetch-offset", type=int, choices=(-1, 0), default=0, help="of auras (0); the paper's is -1")
    add_device(parser)
    parser.add_argument("--seed", type=int, default=0, help="of observations and the order of rounds")
    options = parser.parse_args(argv)
    if not 1 <= min(options.tokens) <= max(options.tokens) <= MAX_STAGES:
        parser.error(f"--tokens: a plan has 1 to {MAX_STAGES} stages")
    if min(options.prefix) < 2:
        parser.error("--prefix must be at least 2")
    check_least(parser, options, rounds=1, seed=0)
    return options
