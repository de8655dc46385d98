"""What the actuator hears, and what it does at once on hearing it: chunks, heartbeats, joint states, the robot's
description, jumps of the clock; and the emergency stop, which has a thread of its own (`emergency_stop`).

All else is of the executor's thread. What arrives is not trusted: what is not of its form is refused, counted and
named.
"""

from __future__ import annotations

import hashlib

import numpy as np

from auras_ros.action import Contract, ContractError, Rejected
from auras_ros.action.urdf import MAX_CHARS, JointLimit, full_turns, tighten, unlimited
from auras_ros.action.verdict import ChunkRefusal
from auras_ros.action.wire import MAX_HORIZON, MAX_JSON_CHARS
from auras_ros.clock import MonotonicClock
from auras_ros.nodes.actuator.agent_watch import AgentWatch
from auras_ros.nodes.actuator.arming import Situation
from auras_ros.nodes.actuator.bounded_subscription import PayloadLimits, RefusedMessages, subscribe
from auras_ros.nodes.actuator.command_loop import CommandLoop
from auras_ros.nodes.actuator.emergency_stop import EmergencyStop
from auras_ros.nodes.actuator.position import PositionMonitor
from auras_ros.nodes.actuator.robot_description import DescriptionReader
from auras_ros.nodes.actuator.settings import ActuatorSettings
from auras_ros.nodes.common.diagnostics import QosWatch
from auras_ros.nodes.common.messages import MAX_TEXT, MessageError, read_chunk, read_json
from auras_ros.ros import (
    DurabilityPolicy,
    Duration,
    JumpThreshold,
    Node,
    QoSProfile,
    ReliabilityPolicy,
    qos_profile_sensor_data,
)
from auras_ros.ros.image import stamp_ns
from auras_ros.ros.msg import Float64MultiArray, JointState, String
from auras_ros.ros.text import text_bytes

LATCHED = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
EVERY_BEAT = QoSProfile(depth=50, reliability=ReliabilityPolicy.BEST_EFFORT)  # one that says "not active" counts
DESCRIPTION = "robot_description"
CHUNK_DIMENSIONS = 8  # of its layout; three are right, and each one costs time to read
STATES_MAX_BYTES = 128 * 1024  # of joint_states: some thousand joints
TEXT_MAX_BYTES = MAX_TEXT + 1024


class ActuatorInputs:
    """Subscribes on `node`, remembers what the arming rules ask for, and ends what must not go on."""

    def __init__(
        self,
        node: Node,
        settings: ActuatorSettings,
        contract: Contract,
        drive: CommandLoop,
        agent: AgentWatch,
        place: PositionMonitor,
        qos: QosWatch,
    ) -> None:
        self._node, self._settings, self._contract = node, settings, contract
        self._drive, self._agent, self._place, self._clock = drive, agent, place, MonotonicClock()
        self.refused = RefusedMessages(node)
        self.stop = EmergencyStop(node, drive.stop, self.refused, qos)
        self._descriptions = DescriptionReader(list(contract.names))
        self._described_by = b""  # the newest description's digest
        self._waiting = False  # chunks come to an actuator that is not armed: said once
        self.described = False
        self.unlimited = ""
        self.limits = "the contract's"
        self._limited = contract  # what the stream enforces, or is about to
        self._subscribe(qos)
        # rclpy keeps a bare pointer to the handle: without a reference of ours a jump would follow it into the void
        self._jumps = node.get_clock().create_jump_callback(
            JumpThreshold(min_forward=None, min_backward=Duration(nanoseconds=-1), on_clock_change=True),
            post_callback=lambda _: drive.end("the clock of /clock went back, or was changed for another"),
        )

    def _subscribe(self, qos: QosWatch) -> None:
        agent, contract = self._settings.agent, self._contract
        reliable = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        chunk_max_bytes = 8 * MAX_HORIZON * len(contract.channels) + 2 * MAX_JSON_CHARS
        for kind, topic, callback, profile, max_bytes in (
            (Float64MultiArray, f"{agent}/chunk", self._on_chunk, reliable, chunk_max_bytes),
            (String, f"{agent}/heartbeat", self._on_heartbeat, EVERY_BEAT, TEXT_MAX_BYTES),
            (JointState, "joint_states", self._on_joint_states, qos_profile_sensor_data, STATES_MAX_BYTES),
        ):
            events = qos.subscription(topic)
            bounds = PayloadLimits(max_bytes, CHUNK_DIMENSIONS if callback == self._on_chunk else None)
            subscribe(self._node, kind, topic, callback, profile, bounds, self.refused, events)
        self._node.create_subscription(
            String,
            DESCRIPTION,
            self._on_description,
            LATCHED,
            raw=True,
            event_callbacks=qos.subscription(DESCRIPTION),
        )

    def start(self) -> None:
        """Begin to listen for the emergency stop."""
        self.stop.start(self._settings.realtime_priority)

    def close(self) -> None:
        """End what listens and reads beside the executor."""
        self.stop.close()
        self._descriptions.close()

    def situation(self, others: tuple[str, ...] | None) -> Situation:
        """What the arming rules look at; `others`: who publishes commands beside this node, None: not yet known."""
        now_ns, clock = self._clock.now_ns(), self._node.get_clock()
        simulated = bool(self._node.get_parameter("use_sim_time").value)
        return Situation(
            agent_age_ns=self._agent.age_ns(now_ns),
            lifecycle=self._agent.lifecycle,
            joints_age_ns=self._place.age_ns(now_ns),
            unknown=self._place.unknown,
            others=others,
            pressed=", ".join(self.stop.pressers()),
            stop_present=self.stop.present(),
            stop_deaf=", ".join(self.stop.deaf_to()),
            described=self.described,
            unlimited=self.unlimited,
            limits_pending=self._drive.limits_pending or self._descriptions.busy,
            ros_time_ns=clock.now().nanoseconds if simulated else None,
        )

    def _on_chunk(self, message: Float64MultiArray) -> None:
        try:
            chunk = read_chunk(message, self._contract)
        except ValueError as error:  # ContractError, or a number of thousands of digits in the JSON
            self.refused.add("chunk", str(error))
            return
        verdict = self._drive.stream.offer(chunk, self._clock.now_ns())
        waiting = self._waiting
        self._waiting = isinstance(verdict, Rejected) and verdict.reason is ChunkRefusal.DISARMED
        if self._waiting:
            if not waiting:
                self._node.get_logger().info("chunks come, and none is executed before somebody arms")
        elif not verdict.ok:
            self._node.get_logger().warning(
                f"chunk {chunk.provenance.request} refused: {verdict.detail}", throttle_duration_sec=1.0
            )

    def _on_heartbeat(self, message: String) -> None:
        try:
            beat = read_json(message.data, "heartbeat")
            inactive = self._agent.heard(beat, self._drive.stream.session, self._clock.now_ns())
        except MessageError as error:
            self.refused.add("heartbeat", str(error))
            return
        if inactive:
            self._drive.end(f"agent is {self._agent.lifecycle or 'of no known state'}")

    def _on_joint_states(self, message: JointState) -> None:
        """Where the robot is, or a part of it; where it cannot be nobody may drive on."""
        positions, at_ns = np.asarray(message.position, dtype=np.float64), self._clock.now_ns()
        watching = not self._drive.stream.silent
        try:
            self._place.take(message.name, positions, at_ns, watching=watching, stamp_ns=stamp_ns(message.header))
        except MessageError as error:
            self.refused.add("joint_states", str(error))
            return
        if jump := self._place.jumped():
            self._drive.elsewhere(jump)

    def _on_description(self, payload: bytes) -> None:
        """Have it read; `look` takes what is found."""
        try:
            text = text_bytes(payload)
            if len(text) > MAX_CHARS:
                raise ContractError(f"{len(text)} bytes, at most {MAX_CHARS}")
            digest = hashlib.blake2b(text).digest()  # lets other threads run meanwhile
            if digest == self._described_by:
                return  # one that comes again changes nothing
            self._descriptions.read(text)
            self._described_by = digest
        except (ValueError, OSError) as error:
            self.refused.add(
                DESCRIPTION, f"{len(payload)} bytes on {self._node.resolve_topic_name(DESCRIPTION)}: {error}"
            )

    def look(self) -> None:
        """Often: take over what others have heard and read."""
        self.stop.look()
        try:
            found = self._descriptions.poll()
            if found is not None:
                self._take_limits(found)
        except (ContractError, OSError) as error:
            self.refused.add(DESCRIPTION, str(error))
            self._described_by = b""  # should the same come again, it is read again

    def _take_limits(self, found: dict[str, JointLimit]) -> None:
        contract = tighten(self._contract, found)
        self._place.turns = full_turns(self._contract, found)
        self.described, self.unlimited = True, unlimited(self._contract, found)
        if contract == self._limited:
            return
        self._limited = contract
        self.limits = "the contract's, tightened by robot_description"
        self._drive.use(contract, "robot_description changed the limits")
        self._node.get_logger().info("robot_description: tighter limits are taken")
