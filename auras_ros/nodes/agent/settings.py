"""The agent's parameters, and the plans and cores that follow from them. Read at each configure, then frozen."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from auras_ros.device import Offload
from auras_ros.parameters import ParameterError, parameter
from auras_ros.pipeline.plan import MAX_STAGES, Plan, PlanError


@dataclass(frozen=True)
class AgentSettings:
    """Parameters of the agent. All but `autostart` are read at the next configure and refused while it is active."""

    autostart: bool = parameter(False, "configure and activate at start; otherwise somebody else must do it")
    checkpoint: str = parameter("pusht", "the policy: the name of a shipped one, or a folder")
    plan: str = parameter(
        "", "a generation plan of the checkpoint (empty: its first), or a whole plan such as quick,mode=auras,alpha=0.5"
    )
    mode: str = parameter("seq", "schedule of perception and generation: seq, dec, par or auras")
    pp_perception: int = parameter(1, "auras: perception stages", 1, MAX_STAGES)
    pp_generation: int = parameter(1, "auras: generation stages, one request each", 1, MAX_STAGES)
    fetch_offset: int = parameter(0, "auras: generate from this frame's context (0) or the previous one's (-1)", -1, 0)
    alpha: float = parameter(0.0, "auras: skew of the generation steps towards the last stage", 0.0, 10.0)
    batched: bool = parameter(True, "auras: the rows of a frame share one call of the network")
    merge: str = parameter("step", "auras, tokens: one forward for each token (step), or one for a frame (frame)")
    emit: str = parameter(
        "newest", "auras, tokens: emit all as they are in the last frame (newest), or as each was taken (own)"
    )
    reuse: str = parameter("none", "auras, tokens: keep the previous frame's keys and values: none, exact, approximate")
    guide: str = parameter(
        "none", "seq, dec, auras, denoising: how a chunk continues the active one: none, inpaint, rtc"
    )
    concurrency: int = parameter(1, "par: requests at a time", 1, MAX_STAGES)
    together: bool = parameter(False, "par: these requests begin together and run as one batch")
    seed: int = parameter(0, "seed of the noise", 0, 2**31 - 1)
    actuator: str = parameter("actuator", "name of the actuator node; no chunk is published while it is silent")
    actuator_timeout_ms: float = parameter(250.0, "the actuator counts as silent after this time", 100.0, 1000.0)
    frame_period_ms: float = parameter(
        0.0, "grid of frame starts (par: interval between requests); 0: as soon as there is work", 0.0, 10000.0
    )
    max_age_ms: float = parameter(
        0.0, "greatest age of an action's observation when the next chunk takes over; 0: no limit", 0.0, 60000.0
    )
    fallback_plan: str = parameter(
        "", "plan to run when the first is overloaded, such as quick,frame_period_ms=400; empty: none"
    )
    prompt_limit_bytes: int = parameter(4096, "a longer prompt is refused", 1, 16384)
    camera_age_limit_ms: float = parameter(350.0, "no frame runs on an older camera image", 1.0, 60000.0)
    state_age_limit_ms: float = parameter(350.0, "no frame runs on older joint states", 1.0, 60000.0)
    sync_tolerance_ms: float = parameter(50.0, "how far apart the cameras' newest stamps may be", 0.0, 10000.0)
    stamp_ahead_ms: float = parameter(
        100.0, "how far a stamp may be ahead of this host's clock (cameras of other hosts); a later one is refused",
        1.0, 60000.0,
    )  # fmt: skip
    phase_lock: bool = parameter(
        True, "with frame_period_ms: frames keep in phase with the cameras and wait for an image that is due"
    )
    compressed: bool = parameter(False, "subscribe to .../image_raw/compressed instead of .../image_raw")
    device: str = parameter("cpu", "where the policy runs: cpu, cuda, or auto (cuda if there is a GPU)")
    dtype: str = parameter(
        "auto", "type of the weights: float32, bfloat16, float16, or auto (cpu: float32; cuda: as they are stored)"
    )
    max_memory_mb: float = parameter(
        0.0, "device memory that the weights may take, MB; the rest is copied in when it runs; 0: no limit", 0.0, 1e7
    )
    offload_folder: str = parameter("", "folder for the rest of the weights; empty: host memory")
    threads: int = parameter(1, "intra-op threads of each worker", 1, 64)
    cores: str = parameter("", "cores that the workers run on, such as 2,3; empty: any")

    def plans(self) -> tuple[Plan, ...]:
        """The first plan, and the fallback plan if there is one. Raises PlanError."""
        first = Plan(**self._fields_of_plan())
        if not self.fallback_plan:
            return (first,)
        try:
            return first, Plan.parse(self.fallback_plan)
        except PlanError as error:
            raise PlanError(f"fallback_{error}") from error

    def _fields_of_plan(self) -> dict[str, Any]:
        """The fields that `plan` names, and the parameters for the others. Raises PlanError if both set a field."""
        named = Plan.read(self.plan)
        for each in fields(Plan)[1:]:
            own = getattr(self, each.name)
            if each.name in named and own not in (each.default, named[each.name]):
                raise PlanError(f"plan: {each.name}: {named[each.name]} in plan, but {own} as a separate parameter")
            named.setdefault(each.name, own)
        return named

    def core_numbers(self) -> list[int] | None:
        """Raises ParameterError."""
        try:
            return [int(part) for part in self.cores.split(",")] if self.cores.strip() else None
        except ValueError:
            raise ParameterError(f"agent: cores: expected core numbers such as 2,3, got {self.cores!r}") from None

    def offload(self) -> Offload | None:
        """Raises ParameterError, or DeviceError by name."""
        folder = Path(self.offload_folder).expanduser() if self.offload_folder else None
        if self.max_memory_mb == 0:
            if folder is not None:
                raise ParameterError("agent: offload_folder: without max_memory_mb all weights are on the device")
            return None
        return Offload(self.max_memory_mb, folder)

    def check(self) -> None:
        """Check what does not need the checkpoint. Raises PlanError or ParameterError."""
        self.plans()
        self.core_numbers()
