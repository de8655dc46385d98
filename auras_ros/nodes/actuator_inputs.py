"""What the actuator hears, and what it does at once on hearing it: chunks, heartbeats, joint states, the emergency
stop, the robot's description, jumps of the clock.

All of the executor's thread. What arrives is not trusted: what is not of its form is refused, counted and named.
"""

from __future__ import annotations

import math

import numpy as np

from auras_ros.action import ChannelKind, Contract
from auras_ros.action.urdf import joint_limits, tighten
from auras_ros.clock import MonotonicClock
from auras_ros.nodes.actuator_agent import AgentWatch
from auras_ros.nodes.actuator_arming import Situation
from auras_ros.nodes.actuator_drive import Drive
from auras_ros.nodes.actuator_settings import Settings
from auras_ros.nodes.diagnostics import QosWatch
from auras_ros.nodes.messages import MessageError, read_chunk, read_json
from auras_ros.ros import (
    DurabilityPolicy,
    Duration,
    JumpThreshold,
    Node,
    QoSProfile,
    ReliabilityPolicy,
    qos_profile_sensor_data,
)
from auras_ros.ros.msg import Bool, Float64MultiArray, JointState, String

LATCHED = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
STOP_TOPIC = "emergency_stop"
SET_POINTS = (ChannelKind.ABSOLUTE, ChannelKind.DELTA_ORIGIN)


class Inputs:
    """Subscribes on `node`, remembers what the arming rules ask for, and ends what must not go on."""

    def __init__(
        self, node: Node, settings: Settings, contract: Contract, drive: Drive, agent: AgentWatch, qos: QosWatch
    ) -> None:
        self._node, self._settings, self._contract = node, settings, contract
        self._drive, self._agent, self._clock = drive, agent, MonotonicClock()
        self.unreadable, self.last_refused = 0, ""
        self.pressed: bool | None = None
        self.described = False
        self.unlimited = ""
        self.limits = "the contract's"
        self._limited = contract  # what the stream enforces, or is about to
        self._measured: tuple[int, list[float]] | None = None
        self._subscribe(qos)
        # rclpy keeps a bare pointer to the handle: without a reference of ours a jump would follow it into the void
        self._jumps = node.get_clock().create_jump_callback(
            JumpThreshold(min_forward=None, min_backward=Duration(nanoseconds=-1), on_clock_change=True),
            post_callback=lambda _: drive.end("the clock of /clock went back, or was changed for another"),
        )

    def _subscribe(self, qos: QosWatch) -> None:
        agent, subscribe = self._settings.agent, self._node.create_subscription
        reliable = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        newest = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        for kind, topic, callback, profile in (
            (Float64MultiArray, f"{agent}/chunk", self._on_chunk, reliable),
            (String, f"{agent}/heartbeat", self._on_heartbeat, newest),
            (JointState, "joint_states", self._on_joint_states, qos_profile_sensor_data),
            (Bool, STOP_TOPIC, self._on_stop, LATCHED),
            (String, "robot_description", self._on_description, LATCHED),
        ):
            subscribe(kind, topic, callback, profile, event_callbacks=qos.subscription(topic))

    def situation(self, others: tuple[str, ...] | None) -> Situation:
        """What the arming rules look at; `others`: who publishes commands beside this node, None: not yet known."""
        now_ns, clock = self._clock.now_ns(), self._node.get_clock()
        simulated = bool(self._node.get_parameter("use_sim_time").value)
        return Situation(
            agent_age_ns=self._agent.age_ns(now_ns),
            lifecycle=self._agent.lifecycle,
            joints_age_ns=None if self._measured is None else now_ns - self._measured[0],
            unknown="" if self._measured is None else self._unknown(self._measured[1]),
            others=others,
            pressed=self.pressed,
            stop_publishers=self.stop_publishers(),
            described=self.described,
            unlimited=self.unlimited,
            limits_pending=self._drive.limits_pending,
            ros_time_ns=clock.now().nanoseconds if simulated else None,
        )

    def stop_publishers(self) -> int:
        """How many publish the emergency stop. By their list: rclpy counts a topic without remapping its name."""
        return len(self._node.get_publishers_info_by_topic(STOP_TOPIC))

    @property
    def position(self) -> list[float] | None:
        """The newest measured position [channels], NaN for what has no joint of its name."""
        return None if self._measured is None else self._measured[1]

    def _refuse(self, text: str) -> None:
        self.unreadable, self.last_refused = self.unreadable + 1, text[:200]
        self._node.get_logger().warning(f"refused: {text}", throttle_duration_sec=1.0)

    def _on_chunk(self, message: Float64MultiArray) -> None:
        try:
            chunk = read_chunk(message, self._contract)
        except ValueError as error:  # ContractError, or a number of thousands of digits in the JSON
            self._refuse(str(error))
            return
        verdict = self._drive.stream.offer(chunk, self._clock.now_ns())
        if not verdict.ok:
            self._node.get_logger().warning(
                f"chunk {chunk.provenance.request} refused: {verdict.detail}", throttle_duration_sec=1.0
            )

    def _on_heartbeat(self, message: String) -> None:
        try:
            beat = read_json(message.data, "heartbeat")
            inactive = self._agent.heard(beat, self._drive.stream.session, self._clock.now_ns())
        except MessageError as error:
            self._refuse(str(error))
            return
        except KeyError:
            self._refuse("heartbeat: session: missing")
            return
        if inactive:
            self._drive.end(f"agent is {self._agent.lifecycle or 'of no known state'}")

    def _on_joint_states(self, message: JointState) -> None:
        """Remember where the robot is, for arming: channels without a joint of their name stay unknown."""
        positions = dict(zip(message.name, np.asarray(message.position, dtype=np.float64), strict=False))
        self._measured = self._clock.now_ns(), [float(positions.get(n, math.nan)) for n in self._contract.names]

    def _unknown(self, current: list[float]) -> str:
        """The first channel that commands a position and has no measured one; empty if there is none."""
        for channel, position in zip(self._contract.channels, current, strict=True):
            if channel.kind in SET_POINTS and not math.isfinite(position):
                return channel.name
        return ""

    def _on_stop(self, message: Bool) -> None:
        """True latches; false is remembered for arming and clears nothing."""
        self.pressed = bool(message.data)
        if self.pressed:
            self._drive.stop("emergency stop pressed")

    def _on_description(self, message: String) -> None:
        try:
            found = joint_limits(message.data)
            contract = tighten(self._contract, found)
        except ValueError as error:
            self._refuse(f"robot_description: {error}")
            return
        commanded = [channel.name for channel in self._contract.channels if channel.kind in SET_POINTS]
        self.described, self.unlimited = True, next((name for name in commanded if name not in found), "")
        if contract == self._limited:
            return  # a description that comes again changes nothing
        self._limited = contract
        self.limits = "the contract's, tightened by robot_description"
        self._drive.use(contract, "robot_description changed the limits")
        self._node.get_logger().info("robot_description: tighter limits are taken")
