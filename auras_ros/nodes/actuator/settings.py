"""The actuator's parameters, and the action contract that it enforces."""

from __future__ import annotations

from dataclasses import dataclass

from auras_ros import resources
from auras_ros.action import SEAMS, Contract, ContractError
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.identity import checkpoint_digest
from auras_ros.checkpoints.manifest import MANIFEST, ROBOT, read_policy, read_robot
from auras_ros.nodes.common.input_settings import check_joint_prefix, joint_prefix, joint_states_topic
from auras_ros.parameters import ParameterError, parameter
from auras_ros.repeated_lines import log_every_s
from auras_ros.topic_names import check_topic

ARRAY, TWIST, TWIST_UNSTAMPED = "array", "twist", "twist_unstamped"
COMMANDS = (ARRAY, TWIST, TWIST_UNSTAMPED)
MIN_SILENCE_MS = 250.0  # two challenges may be lost, and a busy machine be late


@dataclass(frozen=True)
class ActuatorSettings:
    """Parameters of the actuator. Raises ParameterError for an unknown value."""

    checkpoint: str = parameter(
        "pusht",
        "checkpoint whose action contract is enforced: a name or a folder; it arms only an agent that runs the same",
        names_files=True,
    )
    agent: str = parameter("agent", "name of the agent node whose ~/chunk and ~/heartbeat are taken")
    rate_hz: float = parameter(100.0, "commands a second", 10.0, 200.0)
    agent_timeout_ms: float = parameter(100.0, "hold when the agent's heartbeat is older than this", 40.0, 1000.0)
    seam: str = parameter("blend", "how two chunks are joined: blend, switch or ensemble")
    blend_ms: float = parameter(50.0, "length of the seam between two chunks", 0.0, 1000.0)
    ensemble_decay: float = parameter(0.01, "weight exp(-decay * i) of the i-th oldest chunk's prediction", 0.0, 10.0)
    hold_after_ms: float = parameter(0.0, "keep the last command this long after the last valid action", 0.0, 1000.0)
    max_chunk_age_ms: float = parameter(1600.0, "no action is executed when its observation is older", 1.0, 60000.0)
    clip_tolerance: float = parameter(
        0.02, "clip values that exceed a limit by at most this share of the channel's range", 0.0, 0.2
    )
    arm_on_start: bool = parameter(
        False, "arm once agent and joint states are there, unless somebody stopped or disarmed; for simulators"
    )
    measured_start: bool = parameter(True, "arm from the position in joint_states (joints named like channels)")
    place_tolerance: float = parameter(
        0.1,
        "while armed, disarm if joint_states are further from what the commands explain than this share of a channel's "
        "range (0.1 at most after a silence), and hold if they are silent for 500 ms; 0, or without measured_start: "
        "disabled; grippers, increments and rates are never checked",
        0.0,
        1.0,
    )
    joint_states_topic: str = joint_states_topic()
    joint_prefix: str = joint_prefix()
    command: str = parameter(
        ARRAY,
        "what is published on action: array (Float64MultiArray), twist (TwistStamped) or twist_unstamped (Twist)",
    )
    joint_trajectory: bool = parameter(False, "publish the checked horizon of each chunk as a JointTrajectory too")
    action_topic: str = parameter("action", "topic of the commands: set it to the controller's, or remap it")
    trajectory_topic: str = parameter(
        "joint_trajectory", "topic of the trajectories: set it to the controller's, or remap it"
    )
    emergency_stops: tuple[str, ...] = parameter(
        ("emergency_stop",), "topics of the emergency stop, one for each button: True on any of them stops"
    )
    require_emergency_stop: bool = parameter(
        False, "refuse arming without a live button on each of emergency_stops, and stop when one falls silent"
    )
    emergency_stop_max_silence_ms: float = parameter(
        500.0,
        "a required button that says nothing for longer than this stops the robot (at least 250); 0: buttons say "
        "changes only, and their silence counts as released",
        0.0,
        10000.0,
    )
    emergency_stop_key_file: str = parameter(
        "",
        "file of 32 bytes (mode 0600) that the buttons have too: then only signed words of required buttons count",
        names_files=True,
    )
    require_robot_description: bool = parameter(
        False, "refuse arming until robot_description has given the limits of every position-controlled joint"
    )
    log_every_s: float = log_every_s()
    realtime_priority: int = parameter(50, "SCHED_FIFO priority of this process; 0 asks for none", 0, 90)
    lock_memory: bool = parameter(True, "keep this process's memory from being paged out, if permitted")

    def __post_init__(self) -> None:
        for name, value, known in (("command", self.command, COMMANDS), ("seam", self.seam, SEAMS)):
            if value not in known:
                raise ParameterError(f"actuator: {name}: must be one of {', '.join(known)}, got {value!r}")
        for name in ("action_topic", "trajectory_topic", "joint_states_topic"):
            check_topic("actuator", name, getattr(self, name))
        check_joint_prefix("actuator", self.joint_prefix)
        self._check_emergency_stop()

    def _check_emergency_stop(self) -> None:
        """Raises ParameterError."""
        silence_ms = self.emergency_stop_max_silence_ms
        if not self.emergency_stops or len(set(self.emergency_stops)) != len(self.emergency_stops):
            raise ParameterError(f"actuator: emergency_stops: expected different topics, got {self.emergency_stops!r}")
        for topic in self.emergency_stops:
            check_topic("actuator", "emergency_stops", topic)
        if 0.0 < silence_ms < MIN_SILENCE_MS:
            raise ParameterError(
                f"actuator: emergency_stop_max_silence_ms: must be 0 or at least {MIN_SILENCE_MS:g}, got {silence_ms:g}"
            )
        if self.emergency_stop_key_file and not (self.require_emergency_stop and silence_ms):
            raise ParameterError(
                "actuator: emergency_stop_key_file: needs require_emergency_stop: true and "
                "emergency_stop_max_silence_ms above 0, because signed words answer challenges all the time"
            )

    @property
    def period_ns(self) -> int:
        """Time between two ticks."""
        return round(1e9 / self.rate_hz)

    @property
    def command_topics(self) -> tuple[str, ...]:
        """The topics of commands, on which only the actuator may publish."""
        return (self.action_topic, self.trajectory_topic) if self.joint_trajectory else (self.action_topic,)


def load_digest(checkpoint: str) -> str:
    """The digest of a checkpoint, which the agent's must equal. Raises ContractError or OSError."""
    try:
        return checkpoint_digest(resources.checkpoint(checkpoint))
    except CheckpointError as error:
        raise ContractError(str(error)) from error


def load_contract(checkpoint: str) -> Contract:
    """The action contract in a checkpoint's policy.json, or in the robot.json of another library's folder. Reads no
    weights. Raises ContractError or OSError."""
    folder = resources.checkpoint(checkpoint)
    foreign = not (folder / MANIFEST).is_file() and (folder / ROBOT).is_file()
    path = folder / (ROBOT if foreign else MANIFEST)
    try:
        manifest = read_robot(path) if foreign else read_policy(path)
    except CheckpointError as error:
        raise ContractError(str(error)) from error
    if not isinstance(manifest.get("action"), dict):
        raise ContractError(f"{path}: has no action contract (key 'action')")
    action = manifest["action"]
    return Contract.from_dict({"dt_ms": manifest.get("dt_ms"), **action} if foreign else action)
