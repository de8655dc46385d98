"""The agent's parameters, and the plans and cores that follow from them. Read at each configure, then frozen."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from auras_ros.device import Offload
from auras_ros.nodes.agent.monitor_rules import MonitorRule, read_rules
from auras_ros.nodes.common.input_settings import (
    StampRule,
    camera_topics,
    check_joint_prefix,
    joint_prefix,
    joint_states_topic,
    receipt_latency_ms,
    stamps,
)
from auras_ros.parameters import ParameterError, core_numbers, parameter, remote_configuration
from auras_ros.pipeline.plan import Plan, PlanError
from auras_ros.repeated_lines import log_every_s
from auras_ros.topic_names import check_topic, read_camera_topics


@dataclass(frozen=True)
class AgentSettings:
    """Parameters of the agent. All but `autostart`, `log_every_s` and `remote_configuration` are read at the next
    configure and refused while it is active."""

    autostart: bool = parameter(False, "configure and activate at start; otherwise somebody else must do it")
    remote_configuration: bool = remote_configuration()
    checkpoint: str = parameter("pusht", "the policy: the name of a shipped one, or a folder", names_files=True)
    plan: str = parameter(
        "",
        "what frames run: a generation plan of the checkpoint (empty: its first), then the fields that differ from "
        "their defaults (docs/pipeline.md), such as quick,mode=auras,pp_generation=4,alpha=0.5",
    )
    seed: int = parameter(0, "seed of the noise", 0, 2**31 - 1)
    actuator: str = parameter("actuator", "name of the actuator node; no chunk is published while it is silent")
    actuator_timeout_ms: float = parameter(250.0, "the actuator counts as silent after this time", 100.0, 1000.0)
    max_age_ms: float = parameter(
        0.0, "greatest age of an action's observation when the next chunk takes over; 0: no limit", 0.0, 60000.0
    )
    fallback_plan: str = parameter(
        "", "plan to run when the first is overloaded, such as quick,frame_period_ms=400; empty: none"
    )
    prompt_limit_bytes: int = parameter(4096, "a longer prompt is refused", 1, 16384)
    monitors: str = parameter(
        "",
        "rules that pause the policy or set its prompt by what a task head answers to standing questions of the node "
        'vlm (docs/vlm-node.md): a JSON list such as [{"standing": "way", "label": "yes", "do": "pause"}]',
    )
    monitor_age_ms: float = parameter(
        1000.0, "an answer about an older image counts as none: without one to each rule's question the policy pauses",
        1.0, 60000.0,
    )  # fmt: skip
    camera_topics: tuple[str, ...] = camera_topics()
    joint_states_topic: str = joint_states_topic()
    joint_prefix: str = joint_prefix()
    resize_images: bool = parameter(
        True,
        "resize images of another size than the checkpoint's, with its own resize if it has one; false: refuse them",
    )
    stamps: str = stamps()
    receipt_latency_ms: float = receipt_latency_ms()
    camera_age_limit_ms: float = parameter(350.0, "no frame runs on an older camera image", 1.0, 60000.0)
    state_age_limit_ms: float = parameter(350.0, "no frame runs on older joint states", 1.0, 60000.0)
    sync_tolerance_ms: float = parameter(50.0, "how far apart the cameras' newest stamps may be", 0.0, 10000.0)
    stamp_ahead_ms: float = parameter(
        100.0, "how far a stamp may be ahead of this host's clock (cameras of other hosts); a later one is refused",
        1.0, 60000.0,
    )  # fmt: skip
    phase_lock: bool = parameter(
        True, "with a plan's frame_period_ms: frames keep in phase with the cameras and wait for an image that is due"
    )
    compressed: bool = parameter(False, "subscribe to .../image_raw/compressed instead of .../image_raw")
    log_every_s: float = log_every_s()
    device: str = parameter("cpu", "where the policy runs: cpu, cuda, or auto (cuda if there is a GPU)")
    dtype: str = parameter(
        "auto", "type of the weights: float32, bfloat16, float16, or auto (cpu: float32; cuda: as they are stored)"
    )
    max_memory_mb: float = parameter(
        0.0, "device memory that the weights may take, MB; the rest is copied in when it runs; 0: no limit", 0.0, 1e7
    )
    offload_folder: str = parameter("", "folder for the rest of the weights; empty: host memory", names_files=True)
    threads: int = parameter(1, "intra-op threads of each worker", 1, 64)
    cores: str = parameter("", "cores that the workers run on, such as 2,3; empty: any")

    REMOVED: ClassVar[dict[str, str]] = {
        each.name: f"it is a field of `plan`, such as `plan: quick,{each.name}=...`" for each in fields(Plan)[1:]
    } | {"workers": "it is `concurrency` in `plan`: `plan: quick,mode=par,concurrency=...`"}

    def plans(self) -> tuple[Plan, ...]:
        """The first plan, and the fallback plan if there is one. Raises PlanError."""
        first = Plan.parse(self.plan)
        if not self.fallback_plan:
            return (first,)
        try:
            return first, Plan.parse(self.fallback_plan)
        except PlanError as error:
            raise PlanError(f"fallback_{error}") from error

    def core_numbers(self) -> list[int] | None:
        """Raises ParameterError."""
        return core_numbers("agent", "cores", self.cores)

    def monitor_rules(self) -> tuple[MonitorRule, ...]:
        """Raises ParameterError."""
        try:
            return read_rules(self.monitors, self.prompt_limit_bytes)
        except ValueError as error:
            raise ParameterError(f"agent: {error}") from error

    def topics_of_cameras(self) -> dict[str, str]:
        """Camera -> topic, of those that `camera_topics` names. Raises ParameterError."""
        return read_camera_topics("agent", self.camera_topics)

    def stamp_rule(self) -> StampRule:
        """Raises ParameterError."""
        return StampRule.read("agent", self.stamps, self.receipt_latency_ms)

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
        self.monitor_rules()
        self.topics_of_cameras()
        check_topic("agent", "joint_states_topic", self.joint_states_topic)
        check_joint_prefix("agent", self.joint_prefix)
        self.stamp_rule()
