"""From a checkpoint folder to an executor that is ready for its first frame, and from observations to chunks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from auras_ros.action import Chunk
from auras_ros.checkpoints.dtype import runtime_dtype
from auras_ros.clock import SchedulerClock
from auras_ros.device import Device, Offload, Reasons, make_device
from auras_ros.device.memory import device_bytes
from auras_ros.loading.placement import place_policy
from auras_ros.observation import Observation
from auras_ros.pipeline.modes import Executor, make_executor
from auras_ros.pipeline.noise import noise_of
from auras_ros.pipeline.plan import Plan, PlanError, TooSlowError
from auras_ros.pipeline.request import Emission, Identity, Latched, ObservationOrigin, to_chunk
from auras_ros.pipeline.run_context import RunContext
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.family import LoadedPolicy
from auras_ros.policies.loaders.open import load
from auras_ros.policies.policy import PromptedPolicy

MEASURES = 3  # how often a frame's duration is measured before a plan is refused as too slow


@dataclass(frozen=True)
class PipelineSettings:
    """How a robot's policy runs, whatever its plan.

    seed: fixes every request's noise. host, session: who generated a chunk, and stamps: how the time of its inputs is
    known, for its provenance. device: cpu, cuda or auto. dtype: of the weights, see `dtype.runtime_dtype`. offload:
    None keeps all weights on the device. threads: intra-op threads of each worker. cores: see `RunContext`.
    """

    seed: int = 0
    host: str = ""
    session: str = ""
    device: str = "cpu"
    dtype: str = "auto"
    offload: Offload | None = None
    threads: int = 1
    cores: Sequence[int] | None = None
    stamps: str = ""


class Pipeline:
    """One robot's executor: observations in, chunks with their provenance out. device: made as `settings` say if it is
    not given."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        plan: Plan,
        settings: PipelineSettings,
        clock: SchedulerClock,
        device: Device | None = None,
    ) -> None:
        self.checkpoint, self.plan = checkpoint, (plan := plan.named(checkpoint.first_plan))
        self._policy = policy = checkpoint.policy(plan.generation)
        self._device = device = device or make_device(settings.device)
        self.placed = place_policy(policy, device.tensors, settings.offload)

        contract, like = checkpoint.contract, example(checkpoint)
        noise, self._horizon_ns = noise_of(policy, settings.seed), checkpoint.horizon * contract.dt_ns
        self.executor: Executor = make_executor(
            RunContext(policy, plan, noise, like, clock, device, settings.cores, contract, stale_ns=self._horizon_ns)
        )
        policy_name = f"{checkpoint.name}@{checkpoint.digest[:12]}"
        self._identity = Identity(settings.host, settings.session, str(plan), policy_name, settings.stamps)
        self._settings, self._clock = settings, clock

    def beside(self, plan: Plan) -> Pipeline:
        """The same policy, noise, identity and kind of device with another plan; not warmed up. Raises PlanError."""
        return Pipeline(self.checkpoint, plan, self._settings, self._clock, make_device(self._device.tensors.type))

    @property
    def uncaptured(self) -> Mapping[str, Reasons]:
        """Stages that are not captured, with the reasons; after `warm_up`."""
        return self._device.uncaptured

    def device_bytes(self) -> tuple[int, int]:
        """Device memory of this process: (in tensors, reserved from the driver); zeros on a CPU."""
        return device_bytes(self._device.tensors)

    def warm_up(self) -> None:
        """Run discarded frames on random values, then refuse a plan whose chunks would come too late (rule 9 of
        docs/pipeline.md). If it is too slow it is measured again, here and in a further call; the best time counts. The
        executor of a plan that is refused is closed."""

        def check() -> None:
            self.plan.check_horizon(self.plan.interval_ns(self.executor.frame_ns), self._horizon_ns)

        self.executor.warm_up()
        try:
            at_best(check, self.executor.warm_up)
        except PlanError:
            self.executor.close()
            raise

    def set_prompt(self, ids: Sequence[int]) -> None:
        """Set the prompt of every frame that begins later. The caller must start a new epoch before one does, so that
        no chunk of the old prompt is emitted. Raises ValueError if the policy cannot take it."""
        if not isinstance(self._policy, PromptedPolicy):
            raise ValueError("prompt: this policy takes none")
        self._policy.set_prompt(torch.tensor(list(ids), dtype=torch.int64))
        torch.zeros(1, device=self._device.tensors).item()  # frames run on other streams: wait until the copy is done

    @property
    def session(self) -> str:
        return self._settings.session

    def not_executed(self) -> None:
        """The robot does not execute what was published: do not continue the next chunk from it (guided plans)."""
        self.executor.continuity.cut()

    def latched(self, observation: Observation) -> Latched:
        return to_latched(observation, self.checkpoint)

    def chunk(self, emission: Emission) -> Chunk:
        return to_chunk(emission, self._identity)


def at_best(check: Callable[[], None], measure: Callable[[], None]) -> None:
    """Run `check`; while it raises TooSlowError, run `measure` and check again. Raises TooSlowError in the end: a
    machine that was busy for a moment is not too slow."""
    for _ in range(MEASURES - 1):
        try:
            check()
        except TooSlowError:
            measure()
        else:
            return
    check()


def load_pipeline(
    folder: Path,
    plan: Plan,
    settings: PipelineSettings,
    clock: SchedulerClock,
    progress: Callable[[str], None] = lambda step: None,
) -> Pipeline:
    """Load, check (golden sample included) and warm up. Raises CheckpointError, PlanError or DeviceError by name.

    progress: called with the name of each step as it begins.
    """
    torch.set_num_threads(settings.threads)
    progress("loading")
    device = make_device(settings.device)
    checkpoint = load(folder, settings.dtype, device.tensors.type)
    progress("warm-up")
    pipeline = Pipeline(checkpoint, plan, settings, clock, device)
    pipeline.warm_up()
    return pipeline


def executor_on(
    device: str, checkpoint: Checkpoint, policy: LoadedPolicy, plan: Plan, seed: int, spaced: bool = True
) -> Executor:
    """The executor of one of a checkpoint's policies. The policy is moved to `device` (cpu, cuda or auto), its weights
    in the type in which an agent would run them there. seed, spaced: of its noise, see `RunContext`. Raises
    DeviceError."""
    where = make_device(device)
    place_policy(policy, where.tensors, None, runtime_dtype(checkpoint.asked, where.tensors.type, checkpoint.stored))
    noise, like, contract = noise_of(policy, seed), example(checkpoint), checkpoint.contract
    return make_executor(RunContext(policy, plan, noise, like, device=where, contract=contract, spaced=spaced))


def example(checkpoint: Checkpoint, batch: int = 1, seed: int = 0) -> Latched:
    """A random observation of this checkpoint's shapes, with zeros as the state in channel order."""
    images, state = checkpoint.trained.architecture.example(batch, torch.Generator().manual_seed(seed))
    reference = None if checkpoint.spec.state is None else np.zeros((batch, len(checkpoint.contract.names)))
    return Latched(images, state, ObservationOrigin(0, 0, reference))


def to_latched(observation: Observation, checkpoint: Checkpoint) -> Latched:
    """One environment's observation in the executor's form, with the state in channel order as reference."""
    reference = _reference(observation, checkpoint)
    return Latched(
        images=torch.from_numpy(observation.images)[None],
        state=torch.from_numpy(observation.state)[None],
        origin=ObservationOrigin(observation.origin_stamp_ns, observation.origin_mono_ns, reference),
    )


def _reference(observation: Observation, checkpoint: Checkpoint) -> NDArray[np.float64] | None:
    spec = checkpoint.spec.state
    if spec is None:
        return None
    at = dict(zip(spec.names, observation.position, strict=True))
    return np.array([[at.get(name, np.nan) for name in checkpoint.contract.names]])
