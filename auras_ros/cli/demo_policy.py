"""What the demo knows of a policy and its plans from the folder alone: no weights are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from auras_ros import resources
from auras_ros.checkpoints.manifest import MANIFEST, ROBOT, read_policy, read_robot
from auras_ros.nodes.actuator.settings import load_contract
from auras_ros.pipeline.plan import Plan

STAGES = 6  # with a request of 3.4 control periods: frames of about one, whose requests live well within a horizon
PERIOD_STEPS = 4  # control steps from one chunk of a quick plan to the next


@dataclass(frozen=True)
class DemoPolicy:
    """checkpoint: a name or a folder. contract: of its actions. cameras: that it sees, as far as its own files say.
    plans: name -> settings, the first is the default; empty where another library's files are alone."""

    checkpoint: str
    contract: Any
    cameras: tuple[str, ...]
    plans: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, checkpoint: str) -> DemoPolicy:
        """Raises ValueError (ContractError, CheckpointError) or OSError."""
        contract, folder = load_contract(checkpoint), resources.checkpoint(checkpoint)
        if not (folder / MANIFEST).is_file():
            return cls(checkpoint, contract, (), read_robot(folder / ROBOT).get("plans", {}))
        told = read_policy(folder / MANIFEST)
        cameras = told["observation"].get("cameras", ())
        return cls(checkpoint, contract, tuple(each["name"] for each in cameras), told["plans"])

    @property
    def denoises(self) -> bool:
        """Whether it has a plan `ddimN` for any number of steps N."""
        first = next(iter(self.plans.values()), {})
        return first.get("sampler") in ("ddim", "ddpm")

    @property
    def quickest(self) -> str:
        """The plan with the fewest steps, for machines that are too slow for others; empty: the first."""
        steps = {name: settings["steps"] for name, settings in self.plans.items() if "steps" in settings}
        return min(steps, key=lambda name: steps[name], default="")

    def steps(self, plan: str) -> int | None:
        """How many steps its generation has, if that is known."""
        found = self.plans.get(plan, {}).get("steps")
        return found if isinstance(found, int) else None

    def with_period(self, plan: Plan) -> Plan:
        """A generation plan alone gets a frame period, which is meant for whole requests only."""
        period_ms = float(PERIOD_STEPS * self.contract.dt_ms)
        return replace(plan, frame_period_ms=period_ms) if plan == Plan(plan.generation) else plan


def in_turn(generation: str, stages: int) -> dict[str, Plan]:
    """The plays of the same seeds: one request after another, and pipelined in so many stages."""
    seq = Plan(generation)
    return {"seq": seq, "auras": replace(seq, mode="auras", pp_generation=stages)}
