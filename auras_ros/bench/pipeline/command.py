"""`auras bench pipeline`: chunks per second of the four modes, side by side on this machine (Auras figure 10).

First it is checked that auras in one stage gives the same as seq (bit for bit; on a GPU within a thousandth of the
action range, and the row has the difference), and how much batched rows differ. Then every mode's variants (threads,
par's workers) are tried, and the best of each is compared in interleaved rounds of random order, with the curve over
pp_generation and the skewed plans. All of them have the same cores: first one, then all (--cores). Real threads, random
observations that are always available, no camera limit; warm-up never counts.

par with one worker does the same work as seq. It is measured in every round as a control: if it is faster or slower
than seq, or windows of one plan differ, something else used the machine, and the rows are marked.

Skew on a GPU: the steps of a frame run one after another, with one launch for all rows that still have steps left. A
frame of 100 steps over five stages has 20 of them at alpha 0 and 64 at alpha 1, so if the launches take the time and
not the work in them, alpha 1 approaches 20/64 of alpha 0's rate.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing
from functools import partial

from auras_ros.bench.options import add_job_options, add_steps, bench_parser, check_job_options, listed, refusing
from auras_ros.bench.pipeline.show import draw, table
from auras_ros.bench.pipeline.sizes import Comparison
from auras_ros.bench.pipeline.summary import rate_rows, summary
from auras_ros.measure.compare import Job, Rates, disturbed, run_jobs
from auras_ros.measure.cores import suffix, threads_tried
from auras_ros.measure.executors import Bench
from auras_ros.measure.feed import random_feed
from auras_ros.measure.forms import Variant, default_concurrency
from auras_ros.measure.memory import growth_per_chunk
from auras_ros.measure.minutes import Ends, MeasureStep, OverError
from auras_ros.measure.rounds import Rounds
from auras_ros.measure.same import batched_difference, check_equal, equal_fields
from auras_ros.pipeline.plan import Plan, stage_steps
from auras_ros.policies.architectures import RECIPES, make_policy
from auras_ros.report.result import Report, Say

__all__ = ["draw", "run", "table"]

SWITCH_S = 0.0005  # par's workers pass on the interpreter lock more often than by default: they become a fifth faster
STEADY_PLANS = ("ddim4", "ddim4,mode=dec", "ddim4,mode=par,concurrency=2", "ddim4,mode=auras,pp_generation=4")
STEADY_STEPS = 4  # a short plan: memory depends on frames, not on steps


EXAMPLE = """
examples
  auras bench pipeline                                     dp-small and dp, on the GPU if there is one
  auras bench pipeline --policy dp-small --rounds 3        a quick estimate
  auras bench pipeline --policy dp --device cuda --json dp.json
"""


def run(argv: list[str], progress: Say) -> Report:
    options = _options(argv)
    sys.setswitchinterval(SWITCH_S)
    report = Report("pipeline")
    memory: dict[str, MeasureStep] = {}
    if options.steady > 0:
        memory["memory"] = partial(_steady, options, report, progress)
    run_jobs({name: partial(_compare, name) for name in options.policy}, options, report, progress, **memory)
    return report


def _compare(name: str, job: Job) -> None:
    """Check, try and compare one policy; add rows and ratios to the report, also those of complete rounds if
    interrupted."""
    what, options, report, sizes = job.what, job.options, job.report, job.options.sizes[job.cores]
    job.say(f"{what}: building, checking that the modes compute the same ...")
    policy = make_policy(name, seed=0, steps=options.steps)
    bench = Bench(policy, options.device, options.seed, most=max(sizes.concurrencies), cores=sizes.cores)
    base = {"policy": name, "device": bench.device.type, "cores": bench.cores, "steps": options.steps}
    rounds = Rounds(what, bench.rate, options, job.ends, job.say)
    began_s = time.monotonic()
    trials: Rates = {}
    best: dict[str, Variant] = {}
    try:
        equal = equal_fields(check_equal(bench, sizes.generation))
        stages = sizes.headline
        differ = {"pp_generation": stages, "batched_difference": batched_difference(bench, sizes.generation, stages)}
        size = sum(part.numel() for part in policy.parameters()) / 1e6
        report.rows.append({**base, "measure": "check", **equal, "million": size, **differ})
        trials, best = rounds.trial(sizes.candidates())
        rounds.contest(sizes.contest(best, options.steps), lambda form: bench.prepare(form.plan))
    finally:
        bench.close()
        rounds.tell(report)
        for measure, found in (("trial", trials), ("rounds", rounds.rates)):
            said = disturbed(found, best.get("seq"))
            report.rows += rate_rows({**base, "measure": measure}, found, best.get("seq"), bench.staleness_ms, said)
            report.disturb(f"{what}, {measure}", said.values())
        if rounds.rates:
            ending = suffix(sizes.cores, options.cores)  # of a summary's keys
            endings = [f"_{name.replace('-', '_')}{ending}", *([ending] if name == options.policy[0] else [])]
            report.summary |= summary(rounds.rates, best, sizes, endings)
            report.summary[f"seconds{endings[0]}"] = time.monotonic() - began_s


def _steady(options: argparse.Namespace, report: Report, progress: Say, ends: Ends) -> None:
    """Memory growth of each mode's frame loop, with the first policy and a short plan."""
    name = options.policy[0]
    policy = make_policy(name, seed=0, sampler="ddim", steps=STEADY_STEPS)
    feed = random_feed(policy, options.seed)
    with closing(Bench(policy, options.device, options.seed, most=2)) as bench:
        for plan in map(Plan.parse, STEADY_PLANS):
            if time.monotonic() >= ends.hard_s:
                raise OverError
            progress(f"{name}: memory of {options.steady} chunks, {plan.mode}")
            growth = growth_per_chunk(bench.prepare(plan), feed, options.steady, bench.device, ends.hard_s)
            where = {"policy": name, "measure": "memory", "mode": plan.mode, "cores": bench.cores}
            report.rows.append({**where, **vars(growth)})
            for kind in ("python", "resident"):
                grown = [row[f"{kind}_bytes_per_chunk"] for row in report.rows if row["measure"] == "memory"]
                report.summary[f"{kind}_bytes_per_chunk_worst"] = max(grown)


def _options(argv: list[str]) -> argparse.Namespace:
    """Exits with status 2 and one line if an option is invalid."""
    parser = bench_parser("pipeline", __doc__, EXAMPLE)
    add = parser.add_argument
    some = f"some of {', '.join(RECIPES)} (default: dp-small,dp)"
    add("--policy", type=listed(str, RECIPES), default=["dp-small", "dp"], help=some)
    add_steps(parser)
    add("--pp-generation", type=listed(int), default=list(range(1, 11)), help="default: 1,2,...,10")
    add("--alpha", type=float, default=0.0, help="skew of the curve's plans (default: 0)")
    add_job_options(parser, rounds=10, minutes=30.0, seconds=1.0)
    add("--concurrency", type=listed(int), help="par's concurrency to try (default: 1 to 4; on a GPU 1 to 16)")
    add("--threads", type=listed(int), help="numbers of intra-op threads to try (1,2,4,... up to all cores)")
    add("--steady", type=int, default=600, help="chunks of the memory measurement; 0: skip it (600)")
    options = parser.parse_args(argv)
    kind = check_job_options(parser, options, steps=2, steady=0)
    with refusing(parser, ValueError):
        options.sizes = {cores: _sizes(options, cores, kind) for cores in options.cores}
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
