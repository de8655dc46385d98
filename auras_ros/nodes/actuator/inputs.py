"""The actuator's inputs and the immediate reactions to them: chunks, heartbeats, joint states, the robot's description,
jumps of the clock; and the emergency stop, which has a thread of its own (`emergency_stop`).

Everything else runs in the executor's thread. Inputs are not trusted: malformed ones are refused, counted and logged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from auras_ros.action import Contract, ContractError, Rejected
from auras_ros.action.urdf import MAX_CHARS, JointLimit, full_turns, tighten, unlimited
from auras_ros.action.verdict import ChunkRefusal
from auras_ros.action.wire import MAX_HORIZON, MAX_JSON_CHARS
from auras_ros.clock import MonotonicClock
from auras_ros.nodes.actuator.arming import Situation
from auras_ros.nodes.actuator.command_loop import CommandLoop
from auras_ros.nodes.actuator.emergency_stop import EmergencyStop
from auras_ros.nodes.actuator.position import MAX_AGE_MS
from auras_ros.nodes.actuator.robot_description import DescriptionReader
from auras_ros.nodes.actuator.settings import ActuatorSettings
from auras_ros.nodes.actuator.stop_words import StopRules
from auras_ros.nodes.common.bounded_subscription import subscribe, subscribe_with_info
from auras_ros.nodes.common.diagnostics import QosWatch
from auras_ros.nodes.common.joint_names import naming_hint, own_joints
from auras_ros.nodes.common.joint_publishers import NEVER_NS, JointPublishers
from auras_ros.nodes.common.messages import JSON_LIMITS, STATE_LIMITS, read_chunk
from auras_ros.nodes.common.qos import LATCHED, RELIABLE
from auras_ros.nodes.common.stop_signature import read_key
from auras_ros.nodes.common.texts import read_json
from auras_ros.nodes.common.topic_causes import endpoint_node, shown, why_no_joint_states
from auras_ros.repeated_lines import RepeatedLines
from auras_ros.ros import Duration, JumpThreshold, Node, QoSProfile, ReliabilityPolicy
from auras_ros.ros.bounded import PayloadLimits, RefusedMessages
from auras_ros.ros.identity import publisher_of
from auras_ros.ros.image import stamp_ns
from auras_ros.ros.msg import Float64MultiArray, JointState, String
from auras_ros.ros.text import text_bytes

EVERY_BEAT = QoSProfile(depth=50, reliability=ReliabilityPolicy.BEST_EFFORT)  # "not active" must not be overwritten
# The messages of one publisher must not push another's out of the queue while the executor is busy.
EVERY_STATE = QoSProfile(depth=50, reliability=ReliabilityPolicy.BEST_EFFORT)
DESCRIPTION = "robot_description"
HINT_NS = 200_000_000  # an actuator that arms itself asks twenty times a second, and the ROS graph is slow
CHUNK_DIMENSIONS = 8  # limit for a chunk's layout: three are valid, and each one costs time to read


def stop_rules(settings: ActuatorSettings) -> StopRules:
    """What the settings ask of the emergency stop's buttons. Raises KeyFileError."""
    key_file = settings.emergency_stop_key_file
    return StopRules(
        topics=settings.emergency_stops,
        required=settings.require_emergency_stop,
        max_silence_s=settings.emergency_stop_max_silence_ms / 1e3,
        key=read_key(key_file) if key_file else None,
    )


class ActuatorInputs:
    """Subscribes on `node`, keeps what the arming rules need, and disarms when an input demands it."""

    def __init__(
        self, node: Node, settings: ActuatorSettings, contract: Contract, loop: CommandLoop, qos: QosWatch
    ) -> None:
        self._node, self._settings, self._contract = node, settings, contract
        self._loop, self._agent, self._position, self._clock = loop, loop.agent, loop.position, MonotonicClock()
        self.refused = RefusedMessages(node)
        priority = settings.realtime_priority
        self.stop = EmergencyStop(node, loop.stop, self.refused, qos, priority, stop_rules(settings), lambda: loop.live)
        loop.stop_thread_fault = self.stop.stuck
        self._joint_publishers = JointPublishers(contract)
        self._descriptions = DescriptionReader([settings.joint_prefix + name for name in contract.names])
        self._lines = RepeatedLines()
        self._joint_names: list[str] = []  # in the newest joint states, as they were published
        self._hint = ""  # why the position is not known
        self._hint_ns = NEVER_NS  # when that was looked up
        self._described_by = b""  # the newest description's digest
        self._waiting = False  # chunks come while it is not armed (logged once)
        self.described = False
        self.unlimited = ""
        self.limits = "the contract's"
        self._limited = contract  # the contract that the stream enforces, or will after the final command
        self._subscribe(qos)
        # rclpy keeps only a raw pointer to the handle: without this reference a jump would use freed memory
        self._jumps = node.get_clock().create_jump_callback(
            JumpThreshold(min_forward=None, min_backward=Duration(nanoseconds=-1), on_clock_change=True),
            post_callback=lambda _: loop.end("/clock went back, or the clock source changed"),
        )

    def _subscribe(self, qos: QosWatch) -> None:
        chunk_max_bytes = 8 * MAX_HORIZON * len(self._contract.channels) + 2 * MAX_JSON_CHARS
        agent = self._settings.agent
        chunks = PayloadLimits(chunk_max_bytes, CHUNK_DIMENSIONS)
        self._bounded(qos, Float64MultiArray, f"{agent}/chunk", self._on_chunk, RELIABLE, chunks)
        self._bounded(qos, String, f"{agent}/heartbeat", self._on_heartbeat, EVERY_BEAT, JSON_LIMITS, periodic=True)
        states_topic, on_states = self._settings.joint_states_topic, self._on_joint_states
        refuse_state = partial(self._refuse, states_topic)
        subscribe_with_info(
            qos, JointState, states_topic, on_states, EVERY_STATE, STATE_LIMITS, refuse_state, periodic=True
        )
        qos.create_subscription(String, DESCRIPTION, self._on_description, LATCHED, raw=True)

    def _bounded(
        self,
        qos: QosWatch,
        kind: Any,
        topic: str,
        callback: Callable[[Any], object],
        profile: QoSProfile,
        limits: PayloadLimits,
        periodic: bool = False,
    ) -> None:
        subscribe(qos, kind, topic, callback, profile, limits, partial(self._refuse, topic), periodic=periodic)

    def _refuse(self, topic: str, error: ValueError) -> None:
        self.refused.add(topic, f"{error}{self._other_agents(topic)}")

    def _other_agents(self, topic: str) -> str:
        """Whether several nodes publish what one agent should, which explains messages of another robot."""
        if topic not in (f"{self._settings.agent}/chunk", f"{self._settings.agent}/heartbeat"):
            return ""
        names = sorted(endpoint_node(info) for info in self._node.get_publishers_info_by_topic(topic))
        if len(names) < 2:
            return ""
        remedy = "use another ROS_DOMAIN_ID or --namespace for one robot"
        return f" ({len(names)} nodes publish it: {shown(names)}: {remedy})"

    def start(self) -> None:
        """Start the emergency stop's thread."""
        self.stop.start()

    def close(self) -> None:
        """End the emergency stop's thread and the process that reads a description."""
        self.stop.close()
        self._descriptions.close()

    def situation(self, others: tuple[str, ...] | None) -> Situation:
        """The inputs of the arming rules. others: who publishes commands beside this node; None: not yet known."""
        self.look_at_joint_publishers()
        now_ns, clock = self._clock.now_ns(), self._node.get_clock()
        simulated = bool(self._node.get_parameter("use_sim_time").value)
        return Situation(
            agent_age_ns=self._agent.age_ns(now_ns),
            lifecycle=self._agent.lifecycle,
            joints_age_ns=self._position.age_ns(now_ns),
            unknown=self._position.unknown,
            joints_hint=self._joints_hint(now_ns),
            position_doubt=self.position_doubt(),
            others=others,
            pressed=", ".join(self.stop.buttons.pressers()),
            stop_latched=self.stop.buttons.latched,
            stop_missing=self.stop.buttons.missing(),
            stop_deaf=", ".join(self.stop.buttons.deaf_to()),
            stop_unheard=", ".join(self.stop.buttons.unheard()),
            described=self.described,
            unlimited=self.unlimited,
            limits_pending=self._loop.limits_pending or self._descriptions.busy,
            ros_time_ns=clock.now().nanoseconds if simulated else None,
            other_checkpoint=self._agent.other_checkpoint,
        )

    def _on_chunk(self, message: Float64MultiArray) -> None:
        chunk = read_chunk(message, self._contract)
        verdict = self._loop.stream.offer(chunk, self._clock.now_ns())
        waiting = self._waiting
        self._waiting = isinstance(verdict, Rejected) and verdict.reason is ChunkRefusal.DISARMED
        if self._waiting:
            if not waiting:
                self._node.get_logger().info("chunks are received, but not executed before arming")
        elif isinstance(verdict, Rejected):
            text = f"chunk {chunk.provenance.request} refused: {verdict.detail}"
            if line := self._lines.line("chunk", text, cause=verdict.reason.value):
                self._node.get_logger().warning(line)

    def _on_heartbeat(self, message: String) -> None:
        beat = read_json(message.data, "heartbeat")
        if reason := self._agent.on_heartbeat(beat, self._loop.stream.session, self._clock.now_ns()):
            self._loop.end(reason)

    def _on_joint_states(self, message: JointState, info: Any) -> None:
        """Take the robot's position, or a part of it; disarm if it is impossible."""
        at_ns = self._clock.now_ns()
        self._joint_names = list(message.name)
        positions = np.asarray(message.position, dtype=np.float64)
        names, positions = own_joints(self._joint_names, positions, self._settings.joint_prefix)
        watching = not self._loop.stream.silent
        stamped_ns = stamp_ns(message.header)
        self._position.take(names, positions, at_ns, watching=watching, stamp_ns=stamped_ns)
        self._joint_publishers.heard(publisher_of(info), names, positions.tolist(), stamped_ns, at_ns)
        if jump := self._position.jumped():
            self._loop.robot_moved(jump)

    def _on_description(self, payload: bytes) -> None:
        """Start reading it; `look` takes the result."""
        try:
            text = text_bytes(payload)
            if len(text) > MAX_CHARS:
                raise ContractError(f"{len(text)} bytes, at most {MAX_CHARS}")
            digest = hashlib.blake2b(text).digest()  # releases the interpreter lock meanwhile
            if digest == self._described_by:
                return  # a repetition changes nothing
            self._descriptions.read(text)
            self._described_by = digest
        except (ValueError, OSError) as error:
            self.refused.add(
                DESCRIPTION, f"{len(payload)} bytes on {self._node.resolve_topic_name(DESCRIPTION)}: {error}"
            )

    def position_doubt(self) -> str:
        """Why the robot's position is not certain now, so that arming is refused; empty if it is, and while commands
        are active: these move the robot to and fro, and arming again continues from the last one."""
        if not self._loop.stream.silent:
            return ""
        return self._joint_publishers.doubt(self._clock.now_ns())

    def rivals(self) -> str:
        """Which joint two nodes publish now, also while commands are active; empty if none."""
        return self._joint_publishers.rivals(self._clock.now_ns())

    def _joints_hint(self, now_ns: int) -> str:
        """Why the robot's position is not known, and the remedy, beginning with "; "; empty if it is."""
        if not self._settings.measured_start:
            return ""
        if now_ns - self._hint_ns > HINT_NS:
            self._hint_ns = now_ns
            self._hint = self._new_joints_hint(now_ns)
        return self._hint

    def _new_joints_hint(self, now_ns: int) -> str:
        age_ns = self._position.age_ns(now_ns)
        if age_ns is None or age_ns > MAX_AGE_MS * 1_000_000:
            return f"; {why_no_joint_states(self._node, self._settings.joint_states_topic)}"
        if self._position.unknown:
            return f"; {naming_hint(self._contract.names, self._joint_names, self._settings.joint_prefix)}"
        return ""

    def look_at_joint_publishers(self) -> None:
        """Called a few times a second, and before arming: note who publishes joint_states, as the ROS graph shows."""
        infos = self._node.get_publishers_info_by_topic(self._settings.joint_states_topic)
        nodes = {bytes(info.endpoint_gid): endpoint_node(info) for info in infos}
        self._joint_publishers.discovered(nodes, self._clock.now_ns())

    def look(self) -> None:
        """Called often: take the results of the emergency stop's thread and of the description's process."""
        self.stop.look()
        try:
            found = self._descriptions.poll()
            if found is not None:
                self._take_limits(found)
        except (ContractError, OSError) as error:
            self.refused.add(DESCRIPTION, str(error))
            self._described_by = b""  # if the same text comes again it is read again

    def _take_limits(self, described: dict[str, JointLimit]) -> None:
        """described: by the joints' names in the description, which have the prefix."""
        found = {name.removeprefix(self._settings.joint_prefix): limit for name, limit in described.items()}
        contract = tighten(self._contract, found)
        if contract != self._limited:
            self._loop.use(contract, "robot_description changed the limits")  # before it is said: it may fail
            self._limited, self.limits = contract, "the contract's, tightened by robot_description"
            self._node.get_logger().info("robot_description: using its tighter limits")
        self._position.turns = full_turns(self._contract, found)
        self._joint_publishers.use(contract, self._position.turns)
        self.described, self.unlimited = True, unlimited(self._contract, found)
