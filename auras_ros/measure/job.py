"""One job for each subject and number of cores of a bench that compares modes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from auras_ros.measure.cores import words
from auras_ros.measure.executors import Bench
from auras_ros.measure.minutes import Ends, MeasureStep, run_parts
from auras_ros.policies.family import LoadedPolicy
from auras_ros.report.result import Report, Say


@dataclass(frozen=True)
class Job:
    """One subject on one number of cores. what: its name in the report's notes. ends: its deadlines."""

    what: str
    cores: int
    options: argparse.Namespace
    report: Report
    say: Say
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


def run_jobs(subjects: Subjects, options: argparse.Namespace, report: Report, say: Say, **others: MeasureStep) -> None:
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
