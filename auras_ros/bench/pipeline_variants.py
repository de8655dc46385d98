"""What `auras bench pipeline` compares: the four modes, each in every form that might be its quickest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from auras_ros.pipeline.plan import Plan

HEADLINE = 8  # pp_generation of the ratios
SKEWED_STAGES, SKEWS = 5, (0.5, 1.0)  # Auras figure 13


@dataclass(frozen=True)
class Variant:
    """A plan, and the intra-op threads that each of its strands may use."""

    plan: Plan
    threads: int = 1

    @property
    def label(self) -> str:
        plan = self.plan
        parts = [plan.mode]
        if plan.mode == "par":
            parts.append(f"workers {plan.workers}")
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
            "threads": self.threads,
        }


@dataclass(frozen=True)
class Comparison:
    """The sizes of one comparison. stages: pp_generation of the curve, rising. threads: intra-op counts to try."""

    generation: str
    stages: tuple[int, ...]
    alpha: float
    workers: tuple[int, ...]
    threads: tuple[int, ...]
    cores: int

    @property
    def headline(self) -> int:
        """pp_generation of the ratios: 8, or the most that was asked for."""
        return HEADLINE if HEADLINE in self.stages else self.stages[-1]

    def auras(self, stages: int, alpha: float | None = None, offset: int = 0) -> Plan:
        skew = self.alpha if alpha is None else alpha
        return Plan(self.generation, "auras", pp_generation=stages, alpha=skew, fetch_offset=offset)

    def candidates(self) -> dict[str, list[Variant]]:
        """By mode, what is tried first; the quickest of each stands for it. `beside` is auras with fetch_offset -1.

        Workers never have more threads in all than there are cores: that is slower by far, not quicker.
        """
        seq, dec = Plan(self.generation, "seq"), Plan(self.generation, "dec")
        par = [Plan(self.generation, "par", workers=count) for count in self.workers]
        auras, beside = self.auras(self.headline), self.auras(self.headline, offset=-1)
        return {
            "seq": [Variant(seq, threads) for threads in self.threads],
            "dec": [Variant(dec, threads) for threads in self.threads],
            "par": [Variant(p, t) for p in par for t in self.threads if t == 1 or p.workers * t <= self.cores],
            "auras": [Variant(auras, threads) for threads in self.threads],
            "beside": [Variant(beside, threads) for threads in self.threads],
        }

    def contest(self, best: dict[str, Variant], steps: int) -> list[Variant]:
        """What the rounds compare: the best of each mode, the curve over the stages, and the skewed plans."""
        chosen = best["auras"]
        curve = [Variant(self.auras(stages), chosen.threads) for stages in self.stages]
        skewed = [self.auras(SKEWED_STAGES, alpha) for alpha in SKEWS] if steps >= SKEWED_STAGES else []
        others = [best[mode] for mode in ("seq", "dec", "par", "beside")]
        return list(dict.fromkeys([*others, *curve, *(replace(chosen, plan=plan) for plan in skewed)]))


def default_workers(cores: int, cuda: bool) -> tuple[int, ...]:
    """How many requests at a time `par` is tried with."""
    return (1, 2, 4, 8, 16) if cuda else tuple(sorted({1, 2, 3, 4, cores}))


def default_threads(cores: int, cuda: bool) -> Sequence[int]:
    """Intra-op threads: they mean nothing where the work is a graph on a GPU."""
    return (1,) if cuda or cores < 2 else (1, 2)
