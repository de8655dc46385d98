"""What a command becomes on the wire: an array or a twist on `action`, and a trajectory where one is asked for.

Forms only: nothing here decides a value, and nothing here leaves one out. Of the tick thread alone, so that a hold
is never overtaken by the trajectory that it ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from auras_ros.action import (
    ActionStream,
    Channel,
    ChannelKind,
    Command,
    Contract,
    ContractError,
    Horizon,
    SafetyState,
)
from auras_ros.action.contract import FloatArray
from auras_ros.nodes.actuator_settings import Settings
from auras_ros.nodes.diagnostics import QosWatch
from auras_ros.nodes.messages import action_message
from auras_ros.ros import Duration, LivelinessPolicy, Node, QoSProfile, ReliabilityPolicy
from auras_ros.ros.msg import (
    Float64MultiArray,
    Header,
    JointTrajectory,
    JointTrajectoryPoint,
    TimeMsg,
    Twist,
    TwistStamped,
    Vector3,
)

DEADLINE_TICKS = 5
LEASE_MS = 300
TWIST = tuple(f"{part}.{axis}" for part in ("linear", "angular") for axis in "xyz")
SET_POINTS = (ChannelKind.ABSOLUTE, ChannelKind.DELTA_ORIGIN, ChannelKind.GRIPPER)


def command_qos(period_ns: int) -> QoSProfile:
    """What `action` offers: controllers may ask for a deadline of five ticks and a lease of 300 ms."""
    return QoSProfile(
        depth=1,
        reliability=ReliabilityPolicy.RELIABLE,
        deadline=Duration(nanoseconds=DEADLINE_TICKS * period_ns),
        liveliness=LivelinessPolicy.AUTOMATIC,
        liveliness_lease_duration=Duration(nanoseconds=LEASE_MS * 1_000_000),
    )


class Outputs:
    """The command publishers of one actuator. Raises ContractError where the contract does not fit the form."""

    def __init__(self, node: Node, settings: Settings, contract: Contract, qos: QosWatch) -> None:
        self._clock, self._settings, self._contract = node.get_clock(), settings, contract
        self._names = ",".join(contract.names)
        self._twist = settings.command == "twist"
        if self._twist:
            check_twist(contract)
        events = qos.publisher(settings.action_topic)
        events.deadline = None  # a disarmed actuator is silent on purpose
        self._action = node.create_publisher(
            TwistStamped if self._twist else Float64MultiArray,
            settings.action_topic,
            command_qos(settings.period_ns),
            event_callbacks=events,
        )
        self._trajectories = Trajectories(node, settings, contract, qos) if settings.joint_trajectory else None

    @property
    def topics(self) -> tuple[str, ...]:
        """Where commands go; nobody else should publish there."""
        one = (self._settings.action_topic,)
        return (*one, self._settings.trajectory_topic) if self._trajectories else one

    def send(self, command: Command, stream: ActionStream, tick: int, now_ns: int) -> None:
        """Publish one command that says `publish`."""
        if self._twist:
            self._action.publish(twist_message(command.values, self._contract, self._clock.now().to_msg()))
        else:
            self._action.publish(action_message(command, self._names, tick, now_ns))
        if self._trajectories is not None:
            self._trajectories.follow(command, stream, now_ns)


class Trajectories:
    """One trajectory for each chunk that comes into force, and one point whenever a hold asks for another place.

    A controller goes on with a trajectory that nobody ended: every hold, stop and disarm therefore sends the point
    to stay at. No point is sent that would be reached when its observation is older than `max_chunk_age_ms`.
    """

    def __init__(self, node: Node, settings: Settings, contract: Contract, qos: QosWatch) -> None:
        check_trajectory(contract)
        self._clock, self._contract = node.get_clock(), contract
        self._max_age_ns = round(settings.max_chunk_age_ms * 1e6)
        reliable = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        topic = settings.trajectory_topic
        self._publisher = node.create_publisher(JointTrajectory, topic, reliable, event_callbacks=qos.publisher(topic))
        self._chunk: Any = None
        self._held: FloatArray | None = None

    def follow(self, command: Command, stream: ActionStream, now_ns: int) -> None:
        if command.state is not SafetyState.ARMED or command.provenance is None:
            self._chunk = None
            if self._held is None or not np.array_equal(self._held, command.values):
                self._held = command.values
                self._publish(command.values[None], self._contract.dt_ns)
            return
        if command.provenance is self._chunk:
            return
        horizon = stream.horizon(now_ns)
        if horizon is None:  # disarmed since the tick: the next command ends what is under way
            return
        self._chunk, self._held = command.provenance, None
        first_ns = reach_ns(self._contract, horizon, command.values, now_ns)
        last = (horizon.provenance.origin_mono_ns + self._max_age_ns - now_ns - first_ns) // self._contract.dt_ns
        self._publish(horizon.values[: max(1, last + 1)], first_ns)

    def _publish(self, rows: FloatArray, first_ns: int) -> None:
        stamp = self._clock.now().to_msg()
        self._publisher.publish(trajectory_message(rows, self._contract, first_ns, stamp))


def reach_ns(contract: Contract, horizon: Horizon, command: FloatArray, now_ns: int) -> int:
    """How long from now the horizon's first row is reached: at the end of its policy step, or later where the rates
    from `command` [channels], the last one sent, need it. Never later than one policy step, which is what the
    horizon was checked for; exactly that where an acceleration is limited."""
    dt_ns, origin_ns = contract.dt_ns, horizon.provenance.origin_mono_ns
    if any(channel.max_acceleration is not None for channel in contract.channels):
        return dt_ns
    step_end_ns = origin_ns + (horizon.index + 1) * dt_ns - now_ns
    rate = np.array([np.inf if channel.max_rate is None else channel.max_rate for channel in contract.channels])
    needed_ns = int(np.ceil(np.max(np.abs(horizon.values[0] - command) / rate) * 1e9))
    return min(max(step_end_ns, needed_ns, 1), dt_ns)


def trajectory_message(rows: FloatArray, contract: Contract, first_ns: int, stamp: TimeMsg) -> JointTrajectory:
    """rows [steps, channels] as points one policy step apart, the first one `first_ns` after `stamp`.

    Positions alone: velocities of one's own would have to end at zero, and a policy's horizon seldom does.
    """
    points = [
        JointTrajectoryPoint(
            positions=row, time_from_start=Duration(nanoseconds=first_ns + index * contract.dt_ns).to_msg()
        )
        for index, row in enumerate(rows)
    ]
    return JointTrajectory(header=Header(stamp=stamp), joint_names=list(contract.names), points=points)


def twist_message(values: FloatArray, contract: Contract, stamp: TimeMsg) -> TwistStamped:
    """values [channels] by the names of their channels; what has no channel is zero."""
    given = dict(zip(contract.names, values.tolist(), strict=True))
    linear, angular = (
        Vector3(**{axis: given.get(f"{part}.{axis}", 0.0) for axis in "xyz"}) for part in ("linear", "angular")
    )
    header = Header(stamp=stamp, frame_id=contract.channels[0].frame)
    return TwistStamped(header=header, twist=Twist(linear=linear, angular=angular))


def check_twist(contract: Contract) -> None:
    """Raise ContractError unless every channel is a velocity named like a field of a twist, all in one frame."""
    for channel in contract.channels:
        if channel.name not in TWIST:
            raise _misfit(channel, "twist", f"is none of {', '.join(TWIST)}")
        if channel.kind is not ChannelKind.VELOCITY:
            raise _misfit(channel, "twist", f"is of kind {channel.kind.value}, not velocity")
        if channel.frame != contract.channels[0].frame:
            raise _misfit(channel, "twist", f"is in frame {channel.frame!r}, others in another")


def check_trajectory(contract: Contract) -> None:
    """Raise ContractError unless every channel is a set point: a trajectory is made of positions."""
    for channel in contract.channels:
        if channel.kind not in SET_POINTS:
            raise _misfit(channel, "joint_trajectory", f"is of kind {channel.kind.value}, not a set point")


def _misfit(channel: Channel, form: str, text: str) -> ContractError:
    return ContractError(f"actuator: {form}: channel {channel.name!r} {text}")
