"""Common parts of benches that compare modes: their options, and one job for each subject and number of cores."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from auras_ros.bench.cores import add_cores, check_cores, words
from auras_ros.bench.kept import Ends, MeasureStep, run_parts
from auras_ros.bench.options import Options, add_device, add_windows, check_least, kind_of
from auras_ros.bench.pipeline_rate import Bench, Length
from auras_ros.evaluate.report import Report
from auras_ros.policies.family import LoadedPolicy

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """One subject on one number of cores. what: its name in the report's notes. ends: its deadlines."""

    what: str
    cores: int
    options: argparse.Namespace
    report: Report
    say: Progress
    ends: Ends

    @contextmanager
    def bench(self, policy: LoadedPolicy, most: int = 1) -> Iterator[Bench]:
        """A policy's executors on these cores, par with at most `most` workers; closed at the end of the block."""
        made = Bench(policy, self.options.device, self.options.seed, most=most, cores=self.cores)
        try:
            yield made
        finally:
            made.close()


Subjects = Mapping[str, Callable[[Job], None]]


def run_jobs(
    subjects: Subjects, options: argparse.Namespace, report: Report, say: Progress, **others: MeasureStep
) -> None:
    """Run every subject on the first number of cores (the fair one, in case time is short), then on the next one, then
    `others`."""
    torch.set_num_threads(1)

    def part(measure: Callable[[Job], None], what: str, cores: int) -> MeasureStep:
        return lambda ends: measure(Job(what, cores, options, report, say, ends))

    parts: dict[str, MeasureStep] = {}
    for cores in options.cores:
        for name, measure in subjects.items():
            what = f"{name} on {words(cores)}"
            parts[what] = part(measure, what, cores)
    run_parts(report, options.minutes, parts | others)


def add_job_options(options: Options, *, rounds: int = 5, minutes: float | None = 10.0, seconds: float = 0.5) -> None:
    add_device(options)
    add_windows(options, rounds=rounds, minutes=minutes, seconds=seconds)
    add_cores(options)


def add_seed(options: Options) -> None:
    options.add_argument("--seed", type=int, default=0, help="seed of observations, noise and the order of rounds (0)")


def check_job_options(parser: argparse.ArgumentParser, options: argparse.Namespace, **least: int) -> str:
    """Fill in cores and the length of a window; return `cpu` or `cuda`. Exits with status 2 if an option is invalid."""
    check_least(parser, options, rounds=1, chunks=1, seed=0, **least)
    kind = kind_of(options.device)
    options.cores = check_cores(parser, options.cores, kind)
    options.length = Length(options.chunks, options.seconds)
    return kind


def check_stages(parser: argparse.ArgumentParser, stages: int, steps: int) -> None:
    if stages > steps:
        parser.error(f"--pp-generation: {stages} stages for {steps} steps")
