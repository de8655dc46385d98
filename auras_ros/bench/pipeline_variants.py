"""What `auras bench pipeline` compares: the four modes, each in every variant that may be its fastest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from auras_ros.pipeline.plan import Plan

HEADLINE = 8  # pp_generation of the ratios
SKEWED_STAGES, SKEWS = 5, (0.5, 1.0)  # Auras figure 13


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
        """The fields that identify a row of the report."""
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


@dataclass(frozen=True)
class Comparison:
    """The sizes of one comparison. stages: pp_generation of the curve, ascending. threads: intra-op threads to try."""

    generation: str
    stages: tuple[int, ...]
    alpha: float
    workers: tuple[int, ...]
    threads: tuple[int, ...]
    cores: int

    @property
    def headline(self) -> int:
        """pp_generation of the ratios: 8 if it is measured, else the largest one."""
        return HEADLINE if HEADLINE in self.stages else self.stages[-1]

    def auras(self, stages: int, alpha: float | None = None, offset: int = 0) -> Plan:
        skew = self.alpha if alpha is None else alpha
        return Plan(self.generation, "auras", pp_generation=stages, alpha=skew, fetch_offset=offset)

    def candidates(self) -> dict[str, list[Variant]]:
        """The variants to try, by kind; the fastest of each kind is then compared. `beside` is auras with fetch_offset
        -1. `batched` is as many whole requests as auras has stages, begun together and run as one batch: auras should
        have the same rate, but fresher chunks.

        No variant has more threads than cores in total, except with one thread for each worker.
        """
        seq, dec = Plan(self.generation, "seq"), Plan(self.generation, "dec")
        par = [Plan(self.generation, "par", workers=count) for count in self.workers]
        auras, beside = self.auras(self.headline), self.auras(self.headline, offset=-1)
        batched = seq.as_mode("par", self.headline, together=True)
        kinds = {"seq": [seq], "dec": [dec], "par": par, "batched": [batched], "auras": [auras], "beside": [beside]}
        return {
            kind: [form for plan in plans for form in forms(plan, self.threads, self.cores)]
            for kind, plans in kinds.items()
        }

    def contest(self, best: dict[str, Variant], steps: int) -> list[Variant]:
        """The variants of the rounds: the best of each mode, par with one worker as control, the curve over the stages,
        and the skewed plans."""
        made = [best[kind] for kind in ("seq", "dec", "par", "batched", "beside") if kind in best]
        made += [control_of(best["seq"])] if "seq" in best else []
        if chosen := best.get("auras"):
            made += [replace(chosen, plan=self.auras(stages)) for stages in self.stages]
            skews = SKEWS if steps >= SKEWED_STAGES else ()
            made += [replace(chosen, plan=self.auras(SKEWED_STAGES, alpha)) for alpha in skews]
        return list(dict.fromkeys(made))


def forms(plan: Plan, threads: Sequence[int], cores: int) -> list[Variant]:
    """The plan with each of these numbers of intra-op threads for which there are enough cores: more threads than cores
    are far slower. With one thread each there may be more workers than cores, which take turns."""
    workers = {"par": 1 if plan.together else plan.workers, "dec": 2}.get(plan.mode, 1)
    beside = plan.mode == "auras" and (plan.fetch_offset < 0 or plan.pp_perception > 1)
    more = plan.pp_perception if beside else 0  # perception's own threads, one for each stage
    return [Variant(plan, count) for count in threads if count == 1 or workers * count + more <= cores]


def control_of(seq: Variant) -> Variant:
    """par with one worker: the same work as seq, one request after another. Any difference comes from the machine."""
    return replace(seq, plan=seq.plan.as_mode("par", 1))


def default_workers(cores: int, cuda: bool) -> tuple[int, ...]:
    """The numbers of workers with which `par` is tried."""
    return (1, 2, 4, 8, 16) if cuda else tuple(sorted({1, 2, 3, 4, cores}))
