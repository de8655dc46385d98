"""The plans that are searched: stages of perception and generation, fetch_offset, and the skew.

The search is hierarchical, as in Auras 4.3.2: first the numbers of stages, with work spread evenly, then the skew alpha
of the best plans. This module runs nothing; it lists the plans that a policy can have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from auras_ros.evaluate.settings import SettingsError
from auras_ros.pipeline.modes import check_plan, family_offset
from auras_ros.pipeline.plan import MAX_STAGES, Plan, PlanError, stage_steps
from auras_ros.policies.policy import Policy


@dataclass(frozen=True)
class Space:
    """Raises SettingsError, naming the field.

    base: what all plans have in common (generation plan, frame period, batched, merge, emit, reuse). fetch_offset:
    empty means the family's own: -1 for autoregressive policies, 0 for others (Auras 4.3.1). longest: how many frames a
    request may live, the paper's bound on L = pp_perception + pp_generation (here minus 1 + fetch_offset).
    """

    base: Plan
    pp_perception: tuple[int, ...] = (1, 2, 3)
    pp_generation: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 10)
    fetch_offset: tuple[int, ...] = ()
    alpha: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0, 1.5)
    longest: int = 12

    def __post_init__(self) -> None:
        if self.base.mode != "auras":
            raise SettingsError(f"space: mode: only plans of mode auras have stages to tune, got {self.base.mode}")
        stages = (1, MAX_STAGES)
        bounds = {"pp_perception": stages, "pp_generation": stages, "fetch_offset": (-1, 0), "alpha": (0, 10)}
        for name, (low, high) in bounds.items():
            values = getattr(self, name)
            if len(set(values)) < len(values) or any(not low <= value <= high for value in values):
                raise SettingsError(f"space: {name}: expected each once and in [{low}, {high}], got {listed(values)}")
        if not self.pp_perception or not self.pp_generation:
            raise SettingsError("space: pp_perception and pp_generation: expected at least one value of each")
        if self.longest < 1:
            raise SettingsError(f"space: longest: must be at least 1 frame, got {self.longest}")

    def offsets(self, policy: Policy) -> tuple[int, ...]:
        """The values of fetch_offset that are tried."""
        return self.fetch_offset or (family_offset(policy),)

    def grid(self, policy: Policy) -> list[Plan]:
        """All plans with evenly spread work that this policy can have and that are not too long. Raises SettingsError
        if there are none, with the first reason."""
        kept, refused = [], ""
        for perceive, generate, offset in product(self.pp_perception, self.pp_generation, self.offsets(policy)):
            plan = replace(self.base, pp_perception=perceive, pp_generation=generate, fetch_offset=offset, alpha=0.0)
            try:
                self.check(policy, plan)
            except PlanError as error:
                refused = refused or str(error)
                continue
            kept.append(plan)
        if not kept:
            raise SettingsError(f"space: no plan is left: {refused}")
        return kept

    def check(self, policy: Policy, plan: Plan) -> None:
        """Raise PlanError if the policy cannot run the plan, or a request would live too long."""
        check_plan(policy, plan)
        if plan.latency_frames > self.longest:
            raise PlanError(f"plan: {plan}: a request lives {plan.latency_frames} frames, the bound is {self.longest}")

    def skewed(self, policy: Policy, plan: Plan) -> Iterator[Plan]:
        """The same stages with each alpha that spreads the steps differently."""
        seen = {stage_steps(policy.steps, plan.pp_generation, plan.alpha)}
        for alpha in self.alpha:
            spread = stage_steps(policy.steps, plan.pp_generation, alpha)
            if spread not in seen:
                seen.add(spread)
                yield replace(plan, alpha=alpha)

    def to_dict(self) -> dict[str, Any]:
        """Flat, for a report and for comparing spaces."""
        named = {**vars(self), "base": str(self.base)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in named.items()}


def listed(values: Sequence[float]) -> str:
    """As a command line argument."""
    return ",".join(f"{value:g}" for value in values) or "none"
