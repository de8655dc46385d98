"""The forms that a plan may run in: how many intra-op threads its workers have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from auras_ros.pipeline.plan import Plan


@dataclass(frozen=True)
class Variant:
    """A plan, and the intra-op threads that each of its workers may use."""

    plan: Plan
    threads: int = 1

    @property
    def label(self) -> str:
        plan = self.plan
        parts = [plan.mode]
        if plan.mode == "par":
            parts.append(f"batch {plan.workers}" if plan.together else f"workers {plan.workers}")
        if plan.mode == "auras":
            parts.append(f"stages {plan.pp_generation}")
        if plan.alpha:
            parts.append(f"alpha {plan.alpha:g}")
        if plan.fetch_offset:
            parts.append(f"offset {plan.fetch_offset}")
        return ", ".join([*parts, *([f"threads {self.threads}"] if self.threads > 1 else [])])

    def fields(self) -> dict[str, Any]:
        """What names a row of the report."""
        plan = self.plan
        return {
            "mode": plan.mode,
            "pp_generation": plan.pp_generation,
            "alpha": plan.alpha,
            "fetch_offset": plan.fetch_offset,
            "workers": plan.workers,
            "together": plan.together,
            "threads": self.threads,
        }


def forms(plan: Plan, threads: Sequence[int], cores: int) -> list[Variant]:
    """The plan with each of these numbers of intra-op threads that its workers and lanes leave room for: more threads
    than cores are slower by far. With one each it may have more workers than cores, which take turns."""
    workers = {"par": 1 if plan.together else plan.workers, "dec": 2}.get(plan.mode, 1)
    beside = plan.mode == "auras" and (plan.fetch_offset < 0 or plan.pp_perception > 1)
    more = plan.pp_perception if beside else 0  # perception's own threads, one each
    return [Variant(plan, count) for count in threads if count == 1 or workers * count + more <= cores]


def control_of(seq: Variant) -> Variant:
    """par of one worker: the work of seq, one request after another. What it differs by is the machine's doing."""
    return replace(seq, plan=seq.plan.as_mode("par", 1))


def default_workers(cores: int, cuda: bool) -> tuple[int, ...]:
    """How many requests at a time `par` is tried with."""
    return (1, 2, 4, 8, 16) if cuda else tuple(sorted({1, 2, 3, 4, cores}))
