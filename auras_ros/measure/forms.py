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

    def __str__(self) -> str:
        plan = self.plan
        parts = [plan.mode]
        if plan.mode == "par":
            parts.append(f"batch {plan.concurrency}" if plan.together else f"concurrency {plan.concurrency}")
        if plan.mode == "auras":
            parts.append(f"stages {plan.pp_generation}")
        if plan.alpha:
            parts.append(f"alpha {plan.alpha:g}")
        if plan.fetch_offset:
            parts.append(f"offset {plan.fetch_offset}")
        return ", ".join([*parts, *([f"threads {self.threads}"] if self.threads > 1 else [])])

    def fields(self) -> dict[str, Any]:
        """The fields that identify a row of the report."""
        names = ("mode", "pp_generation", "alpha", "fetch_offset", "concurrency", "together")
        return {**{name: getattr(self.plan, name) for name in names}, "threads": self.threads}


def forms(plan: Plan, threads: Sequence[int], cores: int) -> list[Variant]:
    """The plan with each of these numbers of intra-op threads for which there are enough cores: more threads than cores
    are far slower. With one thread each there may be more workers than cores, which take turns."""
    workers = {"par": 1 if plan.together else plan.concurrency, "dec": 2}.get(plan.mode, 1)
    beside = plan.mode == "auras" and (plan.fetch_offset < 0 or plan.pp_perception > 1)
    more = plan.pp_perception if beside else 0  # perception's own threads, one for each stage
    return [Variant(plan, count) for count in threads if count == 1 or workers * count + more <= cores]


def control_of(seq: Variant) -> Variant:
    """par with one worker: the same work as seq, one request after another. Any difference comes from the machine."""
    return replace(seq, plan=seq.plan.as_mode("par", 1))


def default_concurrency(cores: int, cuda: bool) -> tuple[int, ...]:
    """The numbers of workers with which `par` is tried."""
    return (1, 2, 4, 8, 16) if cuda else tuple(sorted({1, 2, 3, 4, cores}))
