"""`auras bench pipeline`: chunks per second of the four modes, side by side on this machine (Auras figure 10).

First it is checked that auras in one stage gives what seq gives, bit for bit, and how far batched rows are off. Then
every mode's forms (threads, par's workers) are tried, and the best of each is compared in interleaved rounds of random
order, with the curve over pp_generation and the skewed plans. Real threads, random observations always at hand, no
camera limit; warm-up never counts.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median

import torch

from auras_ros.bench.feed import random_feed
from auras_ros.bench.pipeline_checks import batched_difference, check_equal
from auras_ros.bench.pipeline_options import parse
from auras_ros.bench.pipeline_rate import Bench
from auras_ros.bench.pipeline_steady import growth
from auras_ros.bench.pipeline_summary import rate_row, summary, table
from auras_ros.bench.pipeline_variants import Comparison, Variant
from auras_ros.evaluate.report import Report
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.architectures import make_policy

__all__ = ["contest", "run", "table", "trial"]

TRIAL_ROUNDS = 3
SWITCH_S = 0.0005  # par's workers hand the interpreter over more often than it does by itself: a fifth more for them
STEADY_PLANS = ("ddim4", "ddim4,mode=dec", "ddim4,mode=par,workers=2", "ddim4,mode=auras,pp_generation=4")
STEADY_STEPS = 4  # a short plan: memory is a matter of frames, not of steps
Progress = Callable[[str], None]
Rates = dict[Variant, list[float]]


def run(argv: list[str], progress: Progress) -> Report:
    options = parse(argv, __doc__ or "")
    torch.set_num_threads(1)
    sys.setswitchinterval(SWITCH_S)
    report = Report("pipeline")
    for name in options.policy:
        try:
            started_s = time.monotonic()
            _compare(name, options, report, progress)
            report.summary[f"seconds_{name.replace('-', '_')}"] = time.monotonic() - started_s
        except KeyboardInterrupt:
            report.more["interrupted"] = f"while {name} was compared; whole rounds count"
            return report
    if options.steady > 0:
        try:
            _steady(options, report, progress)
        except KeyboardInterrupt:
            report.more["interrupted"] = "while memory was measured"
    return report


def _compare(name: str, options: argparse.Namespace, report: Report, progress: Progress) -> None:
    """Check, try, compare one policy; rows and ratios go to the report, those of whole rounds when interrupted too."""
    sizes: Comparison = options.sizes
    progress(f"{name}: building, checking that the modes compute the same ...")
    policy = make_policy(name, seed=0, steps=options.steps)
    bench = Bench(policy, options.device, options.seed, most=max(sizes.workers))
    base = {"policy": name, "device": bench.device.type, "steps": options.steps}
    rates: Rates = {}
    try:
        check_equal(bench, sizes.generation)
        stages = sizes.headline
        differ = {"pp_generation": stages, "batched_difference": batched_difference(bench, sizes.generation, stages)}
        size = sum(part.numel() for part in policy.parameters()) / 1e6
        report.rows.append({**base, "measure": "check", "bit_equal": 1, "million": size, **differ})
        trials, best = trial(bench, name, options, progress)
        report.rows += [rate_row(base, "trial", variant, rates) for variant, rates in trials.items()]
        order = random.Random(options.seed)
        for so_far in contest(bench, name, sizes.contest(best, options.steps), options, order, progress):
            rates = so_far
    finally:
        bench.close()
        if rates:
            report.rows += [rate_row(base, "rounds", variant, values) for variant, values in rates.items()]
            report.summary |= summary(name, rates, sizes.headline, first=name == options.policy[0])


def trial(
    bench: Bench, name: str, options: argparse.Namespace, progress: Progress
) -> tuple[dict[Variant, list[float]], dict[str, Variant]]:
    """A few rounds of every form of every mode: all rates, and the quickest form of each.

    A form that gave less than half of its mode's best in the first round is not tried again: two threads beside a
    busy neighbour can be 25 times slower than one.
    """
    candidates = options.sizes.candidates()
    order = random.Random(options.seed)
    rates: dict[Variant, list[float]] = {form: [] for forms in candidates.values() for form in forms}
    going = list(rates)
    rounds = min(TRIAL_ROUNDS, options.rounds)
    for number in range(rounds):
        for variant in order.sample(going, len(going)):
            progress(f"{name}: trying {variant.label} ({number + 1} of {rounds})")
            rates[variant].append(bench.rate(variant, options.length))
        going = [form for forms in candidates.values() for form in _hopeful(forms, rates)]
    return rates, {
        mode: max(_hopeful(forms, rates), key=lambda f: median(rates[f])) for mode, forms in candidates.items()
    }


def _hopeful(forms: list[Variant], rates: dict[Variant, list[float]]) -> list[Variant]:
    best = max(rates[form][0] for form in forms)
    return [form for form in forms if rates[form][0] >= best / 2]


def contest(
    bench: Bench,
    name: str,
    variants: list[Variant],
    options: argparse.Namespace,
    order: random.Random,
    progress: Progress,
) -> Iterator[Rates]:
    """Rounds of all variants, each in a new random order, until there are enough or the minutes are over. After each
    round: the rates of all rounds so far."""
    for variant in variants:
        progress(f"{name}: warming up {variant.label}")
        bench.prepare(variant.plan)
    rates: Rates = {variant: [] for variant in variants}
    end_s = time.monotonic() + options.minutes * 60
    for number in range(options.rounds):
        if number and time.monotonic() > end_s:
            break
        new: dict[Variant, float] = {}
        for variant in order.sample(variants, len(variants)):
            progress(f"{name}: round {number + 1} of {options.rounds}, {variant.label}")
            new[variant] = bench.rate(variant, options.length)
            if not new[variant]:
                raise RuntimeError(f"{name}: {variant.label}: no two chunks in {options.length.limit_s:g} s")
        rates = {variant: [*rates[variant], new[variant]] for variant in variants}
        yield rates


def _steady(options: argparse.Namespace, report: Report, progress: Progress) -> None:
    """Memory growth of each mode's frame loop, with the first policy and a short plan."""
    name = options.policy[0]
    policy = make_policy(name, seed=0, sampler="ddim", steps=STEADY_STEPS)
    bench = Bench(policy, options.device, options.seed, most=2)
    feed, grown = random_feed(policy, options.seed), []
    try:
        for plan in map(Plan.parse, STEADY_PLANS):
            progress(f"{name}: memory of {options.steady} chunks, {plan.mode}")
            grown.append(growth(bench.prepare(plan), feed, options.steady, bench.device))
            report.rows.append({"policy": name, "measure": "memory", "mode": plan.mode, **grown[-1].fields()})
    finally:
        bench.close()
    report.summary["python_bytes_per_chunk_worst"] = max(each.python_bytes_per_chunk for each in grown)
    report.summary["resident_bytes_per_chunk_worst"] = max(each.resident_bytes_per_chunk for each in grown)
