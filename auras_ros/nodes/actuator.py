"""The actuator: the only publisher of commands, in a process of its own, at a fixed rate.

It takes chunks from the agent's private topic, asks the action stream for one command a tick, and publishes it. When
the agent falls silent it holds. It loads no model and shares no interpreter with inference; nothing goes round its
limits, because nothing else publishes.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from auras_ros import resources
from auras_ros.action import ActionStream, ChannelKind, Contract, ContractError, SafetyState
from auras_ros.clock import MonotonicClock
from auras_ros.nodes.messages import MessageError, action_message, host_id, json_message, read_chunk, read_json
from auras_ros.nodes.parameters import ParameterError, parameter, read_parameters
from auras_ros.nodes.process import node_main
from auras_ros.nodes.realtime import IntervalMeter, TickGrid, enter_realtime
from auras_ros.ros import (
    Clock,
    ClockType,
    DurabilityPolicy,
    Duration,
    LivelinessPolicy,
    Node,
    QoSProfile,
    ReliabilityPolicy,
    qos_profile_sensor_data,
)
from auras_ros.ros.msg import Float64MultiArray, JointState, String
from auras_ros.ros.srv import Trigger

DEADLINE_TICKS = 5
LEASE_MS = 300
STATE_PERIOD_S = 0.05
MEASURED_MAX_AGE_MS = 500
LATCHED = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)


@dataclass(frozen=True)
class Settings:
    """Parameters of the actuator."""

    checkpoint: str = parameter("pusht", "checkpoint whose action contract is enforced: a name or a folder")
    agent: str = parameter("agent", "name of the agent node whose ~/chunk and ~/heartbeat are taken")
    rate_hz: float = parameter(100.0, "commands a second", 10.0, 200.0)
    agent_timeout_ms: float = parameter(100.0, "hold when the agent's heartbeat is older than this", 40.0, 1000.0)
    blend_ms: float = parameter(50.0, "length of the seam between two chunks", 0.0, 1000.0)
    hold_after_ms: float = parameter(0.0, "keep the last command this long after the last valid action", 0.0, 1000.0)
    max_chunk_age_ms: float = parameter(1600.0, "no action is executed when its observation is older", 1.0, 60000.0)
    clip_tolerance: float = parameter(
        0.02, "share of a channel's range that a value may exceed and be clipped", 0.0, 0.2
    )
    arm_on_start: bool = parameter(False, "arm once when agent and joint states are there; for simulators")
    measured_start: bool = parameter(True, "arm from the position in joint_states (joints named like channels)")
    realtime_priority: int = parameter(50, "SCHED_FIFO priority of this process; 0 asks for none", 0, 90)


class Actuator(Node):
    """See the module's docstring."""

    def __init__(self, **node_options: Any) -> None:
        super().__init__("actuator", **node_options)
        self.settings = read_parameters(self, Settings)
        self._monotonic = MonotonicClock()
        self.contract = load_contract(self.settings.checkpoint)
        period_ns = round(1e9 / self.settings.rate_hz)
        self._stream = ActionStream(
            self.contract,
            period_ns,
            self.settings.blend_ms,
            self.settings.hold_after_ms,
            self.settings.max_chunk_age_ms,
            clip_tolerance=self.settings.clip_tolerance,
            host=host_id(),
        )
        self._names = ",".join(self.contract.names)
        self._meter, self._scheduling = IntervalMeter(period_ns), "not started"
        self._ticks, self._skipped = 0, 0
        self._beat_ns: int | None = None  # any agent's last heartbeat: somebody is there to be armed for
        self._followed_ns: int | None = None  # that of the session whose chunks are taken
        self._agent_session = ""
        self._measured: tuple[int, list[float]] | None = None
        self._armed_once = not self.settings.arm_on_start
        self._unreadable = 0
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._tick_loop, name="tick", daemon=True)
        self._connect(period_ns)

    def _connect(self, period_ns: int) -> None:
        agent, state = self.settings.agent, QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        self._action = self.create_publisher(
            Float64MultiArray,
            "action",
            QoSProfile(
                depth=1,
                reliability=ReliabilityPolicy.RELIABLE,
                deadline=Duration(nanoseconds=DEADLINE_TICKS * period_ns),
                liveliness=LivelinessPolicy.AUTOMATIC,
                liveliness_lease_duration=Duration(nanoseconds=LEASE_MS * 1_000_000),
            ),
        )
        self._state = self.create_publisher(String, "~/state", LATCHED)
        reliable = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        self.create_subscription(Float64MultiArray, f"{agent}/chunk", self._on_chunk, reliable)
        self.create_subscription(String, f"{agent}/heartbeat", self._on_heartbeat, state)
        self.create_subscription(JointState, "joint_states", self._on_joint_states, qos_profile_sensor_data)
        self.create_service(Trigger, "~/arm", self._on_arm)
        self.create_service(Trigger, "~/disarm", self._on_disarm)
        self.create_service(Trigger, "~/stop", self._on_stop)
        self.create_timer(STATE_PERIOD_S, self._report, clock=Clock(clock_type=ClockType.STEADY_TIME))

    # -- what arrives (executor thread) -------------------------------------------------------------------

    def _on_chunk(self, message: Float64MultiArray) -> None:
        try:
            chunk = read_chunk(message, self.contract)
        except ValueError as error:  # ContractError, or a number of thousands of digits in the JSON
            self._refuse(str(error))
            return
        verdict = self._stream.offer(chunk, self._monotonic.now_ns())
        if not verdict.ok:
            self.get_logger().warning(
                f"chunk {chunk.provenance.request} refused: {verdict.detail}", throttle_duration_sec=1.0
            )

    def _refuse(self, text: str) -> None:
        self._unreadable += 1
        self.get_logger().warning(f"refused: {text}", throttle_duration_sec=1.0)

    def _on_heartbeat(self, message: String) -> None:
        try:
            session = str(read_json(message.data, "heartbeat")["session"])
        except (MessageError, KeyError) as error:
            self._refuse(f"heartbeat: {error}")
            return
        followed, now_ns = self._stream.session, self._monotonic.now_ns()
        if followed is None or followed == session:  # another agent's life says nothing about the one that drives
            self._followed_ns = now_ns
        self._agent_session, self._beat_ns = session, now_ns

    def _on_joint_states(self, message: JointState) -> None:
        """Remember where the robot is, for arming: channels without a joint of their name stay unknown."""
        positions = dict(zip(message.name, np.asarray(message.position, dtype=np.float64), strict=False))
        self._measured = self._monotonic.now_ns(), [float(positions.get(n, math.nan)) for n in self.contract.names]

    # -- arming -------------------------------------------------------------------------------------------

    def _arm(self) -> tuple[bool, str]:
        now_ns, current = self._monotonic.now_ns(), None
        if self.settings.measured_start:
            if self._measured is None or now_ns - self._measured[0] > MEASURED_MAX_AGE_MS * 1_000_000:
                return False, f"no joint_states within {MEASURED_MAX_AGE_MS} ms: where the robot is must be known"
            current = self._measured[1]
            if unknown := self._unknown(current):
                return False, f"joint_states has no position of {unknown}: a set point needs to know where it starts"
        if not self._fresh(self._beat_ns, now_ns):
            return False, f"agent '{self.settings.agent}' is silent: start it first"
        if self._stream.state is not SafetyState.ARMED:
            self._followed_ns = self._beat_ns  # until the first chunk says whose session it is
        verdict = self._stream.arm(now_ns, current)
        return verdict.ok, verdict.detail

    def _unknown(self, current: list[float]) -> str:
        """The first channel that commands a position and has no measured one; empty if there is none."""
        for channel, position in zip(self.contract.channels, current, strict=True):
            if channel.kind in (ChannelKind.ABSOLUTE, ChannelKind.DELTA_ORIGIN) and not math.isfinite(position):
                return channel.name
        return ""

    def _on_arm(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success, response.message = self._arm()
        self._report()
        return response

    def _on_disarm(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        verdict = self._stream.disarm(self._monotonic.now_ns())
        response.success, response.message = verdict.ok, verdict.detail
        self._report()
        return response

    def _on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        verdict = self._stream.stop(self._monotonic.now_ns())
        response.success, response.message = verdict.ok, verdict.detail
        self._report()
        return response

    # -- the tick thread ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to tick. The whole process is raised, so that no thread that holds the interpreter is held up by
        inference; the tick thread stands one above the others."""
        enter_realtime(self.settings.realtime_priority, all_threads=True)
        self._running.set()
        self._thread.start()

    def working(self) -> bool:
        """Whether the tick thread lives."""
        return self._thread.is_alive()

    def halt(self) -> None:
        """Disarm, let the final hold command out, end the thread. For an orderly shutdown."""
        self._stream.disarm(self._monotonic.now_ns(), "shutting down")
        self._running.clear()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)

    def _tick_loop(self) -> None:
        priority = self.settings.realtime_priority
        self._scheduling = enter_realtime(priority + 1 if priority else 0)
        grid = TickGrid(self._monotonic, self._stream.tick_ns)
        last = False
        while not last:
            last = not self._running.is_set()  # one more tick after halt: the final command
            now_ns = grid.wait()
            self._tick(now_ns)
            self._skipped = grid.skipped

    def _tick(self, now_ns: int) -> None:
        self._meter.tick(now_ns)
        if not self._fresh(self._followed_ns, now_ns) and self._stream.state is SafetyState.ARMED:
            self._stream.agent_lost(now_ns, f"agent silent for more than {self.settings.agent_timeout_ms:g} ms")
        command = self._stream.tick(now_ns)
        self._ticks += 1
        if command.publish:
            self._action.publish(action_message(command, self._names, self._ticks, now_ns))

    def _fresh(self, beat_ns: int | None, now_ns: int) -> bool:
        return beat_ns is not None and now_ns - beat_ns <= self.settings.agent_timeout_ms * 1e6

    # -- what it says of itself ---------------------------------------------------------------------------

    def _report(self) -> None:
        if not self._armed_once and self._arm()[0]:
            self._armed_once = True
        for event in self._stream.drain_events():
            self.get_logger().info(f"{event.previous.value} -> {event.state.value}: {event.reason}")
        error = self._meter.summary()
        self._state.publish(
            json_message(
                {
                    "state": self._stream.state.value,
                    "reason": self._stream.reason,
                    "session": self._stream.session,
                    "agent": self._agent_session,
                    "tick": self._ticks,
                    "mono_ns": self._monotonic.now_ns(),
                    "scheduling": self._scheduling,
                    "interval_error_ms": dataclasses.asdict(error) if error else None,
                    "skipped_ticks": self._skipped,
                    "unreadable": self._unreadable,
                    "counters": self._stream.counters(),
                }
            )
        )


def load_contract(checkpoint: str) -> Contract:
    """The action contract in a checkpoint's policy.json. Reads no weights. Raises ContractError or OSError."""
    path = resources.checkpoint(checkpoint) / "policy.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ContractError(f"{path}: not JSON: {error}") from error
    if not isinstance(manifest, dict) or "action" not in manifest:
        raise ContractError(f"{path}: has no action contract (key 'action')")
    return Contract.from_dict(manifest["action"])


def main(argv: list[str] | None = None) -> int:
    """Entry point of the executable `actuator`."""
    return node_main(
        argv, Actuator, Actuator.start, Actuator.halt, Actuator.working, (ContractError, ParameterError, OSError)
    )


if __name__ == "__main__":
    sys.exit(main())
