"""What `auras bench pipeline` compares: the four modes, each in every variant that may be its fastest."""

from __future__ import annotations

from dataclasses import dataclass, replace

from auras_ros.measure.forms import Variant, control_of, forms
from auras_ros.pipeline.plan import Plan

HEADLINE = 8  # pp_generation of the ratios
SKEWED_STAGES, SKEWS = 5, (0.5, 1.0)  # Auras figure 13


@dataclass(frozen=True)
class Comparison:
    """The sizes of one comparison. stages: pp_generation of the curve, ascending. threads: intra-op threads to try."""

    generation: str
    stages: tuple[int, ...]
    alpha: float
    concurrencies: tuple[int, ...]
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
        par = [Plan(self.generation, "par", concurrency=count) for count in self.concurrencies]
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
