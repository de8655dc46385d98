"""The messages of a command: an array or a twist, stamped or not, on `action`, and a trajectory if that is enabled.

This module only converts: it neither decides nor omits a value. Commands are published in the tick thread, trajectories
in a thread of their own (`trajectories`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from auras_ros.action import ActionStream, ChannelKind, Command, Contract
from auras_ros.action.contract import FloatArray
from auras_ros.clock import MonotonicClock, SchedulerClock, difference_ns
from auras_ros.nodes.actuator.settings import ARRAY, TWIST, TWIST_UNSTAMPED, ActuatorSettings
from auras_ros.nodes.actuator.trajectories import TrajectoryPublisher, misfit
from auras_ros.nodes.common.diagnostics import QosWatch
from auras_ros.nodes.common.messages import action_message
from auras_ros.nodes.common.qos import RELIABLE
from auras_ros.ros import Clock, Duration, LivelinessPolicy, Node, QoSProfile, ReliabilityPolicy
from auras_ros.ros.image import to_time_msg
from auras_ros.ros.msg import Float64MultiArray, Header, JointTrajectory, TimeMsg, Twist, TwistStamped, Vector3

DEADLINE_TICKS = 5
LEASE_MS = 300
ARRIVAL_NS = 200_000_000  # how long the last command is waited for; a reader that stands still may never have it
TWIST_FIELDS = tuple(f"{part}.{axis}" for part in ("linear", "angular") for axis in "xyz")
TYPES = {ARRAY: Float64MultiArray, TWIST: TwistStamped, TWIST_UNSTAMPED: Twist}


def command_qos(period_ns: int) -> QoSProfile:
    """The QoS of `action`: controllers may request a deadline of five ticks and a lease of 300 ms."""
    return QoSProfile(
        depth=1,
        reliability=ReliabilityPolicy.RELIABLE,
        deadline=Duration(nanoseconds=DEADLINE_TICKS * period_ns),
        liveliness=LivelinessPolicy.AUTOMATIC,
        liveliness_lease_duration=Duration(nanoseconds=LEASE_MS * 1_000_000),
    )


class CommandPublishers:
    """The command publishers of one actuator. Raises ContractError if the contract does not fit the message type."""

    def __init__(self, node: Node, settings: ActuatorSettings, contract: Contract, qos: QosWatch) -> None:
        self._clock, self._monotonic = node.get_clock(), MonotonicClock()
        self._settings, self._contract = settings, contract
        self._names = ",".join(contract.names)
        if settings.command != ARRAY:
            check_twist(contract)
        events = qos.publisher(settings.action_topic)
        events.deadline = None  # a disarmed actuator publishes nothing
        self.types: dict[str, Any] = {settings.action_topic: TYPES[settings.command]}  # topic -> message class
        self._action = node.create_publisher(
            TYPES[settings.command],
            settings.action_topic,
            command_qos(settings.period_ns),
            event_callbacks=events,
        )
        self._publishers = [self._action]
        self._trajectories: TrajectoryPublisher | None = None
        if settings.joint_trajectory:
            publisher = qos.create_publisher(JointTrajectory, settings.trajectory_topic, RELIABLE)
            self._publishers.append(publisher)
            self.types[settings.trajectory_topic] = JointTrajectory
            self._trajectories = TrajectoryPublisher(
                partial(self._publish_trajectory, publisher), self._stamp, contract,
                round(settings.max_chunk_age_ms * 1e6), LEASE_MS * 1_000_000, self._monotonic,
            )  # fmt: skip

    def send(self, command: Command, stream: ActionStream, tick: int, now_ns: int) -> None:
        """Publish one command whose `publish` is set."""
        if self._settings.command == TWIST:
            self._action.publish(twist_message(command.values, self._contract, self._stamp(now_ns)))
        elif self._settings.command == TWIST_UNSTAMPED:
            self._action.publish(unstamped_twist(command.values, self._contract))
        else:
            self._action.publish(action_message(command, self._names, tick, now_ns))
        if self._trajectories is not None:
            self._trajectories.follow(command, stream, now_ns)

    def _publish_trajectory(self, publisher: Any, message: JointTrajectory) -> None:
        """The robot's joints have a prefix that the contract's channels do not have."""
        message.joint_names = [self._settings.joint_prefix + name for name in message.joint_names]
        publisher.publish(message)

    def _stamp(self, at_ns: int) -> TimeMsg:
        return ros_time_of(at_ns, self._clock, self._monotonic)

    def end(self, values: FloatArray | None) -> None:
        """No further command comes. values [channels]: where the current trajectory should end; None: no change."""
        if self._trajectories is not None:
            self._trajectories.end(values)

    @property
    def superseded(self) -> int:
        """Number of trajectories that were not sent because a newer one came."""
        return self._trajectories.superseded if self._trajectories else 0

    def working(self) -> bool:
        """Whether the publishing thread is alive."""
        return self._trajectories is None or self._trajectories.working()

    def close(self) -> None:
        """Send the last trajectory message; nothing is sent after it. Wait for a moment until the last messages have
        arrived: a publisher that is destroyed before, as at the end of the process, sends none again."""
        if self._trajectories is not None:
            self._trajectories.close()
        for publisher in self._publishers:
            publisher.wait_for_all_acked(Duration(nanoseconds=ARRIVAL_NS))


def ros_time_of(at_ns: int, clock: Clock, monotonic: SchedulerClock) -> TimeMsg:
    """The time of `clock` when `monotonic` was at_ns; 0 for a time before its beginning."""
    ahead_ns = difference_ns(lambda: clock.now().nanoseconds, monotonic.now_ns)
    stamp: TimeMsg = to_time_msg(max(0, at_ns + ahead_ns))
    return stamp


def twist_message(values: FloatArray, contract: Contract, stamp: TimeMsg) -> TwistStamped:
    """values [channels] by the names of their channels; components without a channel are zero."""
    header = Header(stamp=stamp, frame_id=contract.channels[0].frame)
    return TwistStamped(header=header, twist=unstamped_twist(values, contract))


def unstamped_twist(values: FloatArray, contract: Contract) -> Twist:
    """As `twist_message`, without stamp and frame."""
    given = dict(zip(contract.names, values.tolist(), strict=True))
    linear, angular = (
        Vector3(**{axis: given.get(f"{part}.{axis}", 0.0) for axis in "xyz"}) for part in ("linear", "angular")
    )
    return Twist(linear=linear, angular=angular)


def check_twist(contract: Contract) -> None:
    """Raise ContractError unless every channel is a velocity named like a field of a twist, all in one frame."""
    for channel in contract.channels:
        if channel.name not in TWIST_FIELDS:
            raise misfit(channel, "twist", f"is none of {', '.join(TWIST_FIELDS)}")
        if channel.kind is not ChannelKind.VELOCITY:
            raise misfit(channel, "twist", f"is of kind {channel.kind.value}, not velocity")
        if channel.frame != contract.channels[0].frame:
            raise misfit(channel, "twist", f"is in frame {channel.frame!r}, others in another")
