"""The agent: cameras and joint states in, action chunks with their provenance out. It never publishes a command.

The ROS executor's thread takes messages, the strands of the mode run frames in threads of their own, and the heartbeat
tells the actuator that this process lives. When the actuator falls silent, no chunk is published: nobody would watch
over it.
"""

from __future__ import annotations

import gc
import sys
import threading
import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np

from auras_ros import resources
from auras_ros.clock import MonotonicClock
from auras_ros.nodes.messages import MessageError, chunk_message, host_id, json_message, read_json
from auras_ros.nodes.parameters import ParameterError, parameter, read_parameters
from auras_ros.nodes.process import node_main
from auras_ros.observation import Assembler, Fault, Observation, ObservationError, decode_compressed, decode_raw
from auras_ros.pipeline.live import DeviceError, Live
from auras_ros.pipeline.load import CheckpointError, Pipeline, PlanError, load_pipeline
from auras_ros.pipeline.plan import MAX_STAGES, Plan
from auras_ros.pipeline.request import Emission, Latched
from auras_ros.ros import DurabilityPolicy, Node, QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from auras_ros.ros.image import stamp_ns, to_time_msg
from auras_ros.ros.msg import (
    CompressedImage,
    DiagnosticArray,
    DiagnosticStatus,
    Float64MultiArray,
    Image,
    JointState,
    KeyValue,
    String,
)
from auras_ros.ros.srv import Trigger

HEARTBEAT_NS = 20_000_000
STATE_WAIT_NS = 20_000_000
STATE_LAG_STEPS = 4
DISCOVERY_NS = 2_000_000_000
LATCHED = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)


@dataclass(frozen=True)
class Settings:
    """Parameters of the agent."""

    checkpoint: str = parameter("pusht", "the policy: a name that ships, or a folder")
    plan: str = parameter("quick", "one of the checkpoint's generation plans: sampler and steps")
    mode: str = parameter("seq", "schedule of perception and generation: seq, dec, par or auras")
    pp_perception: int = parameter(1, "auras: perception stages", 1, MAX_STAGES)
    pp_generation: int = parameter(1, "auras: generation stages, one request each", 1, MAX_STAGES)
    fetch_offset: int = parameter(0, "auras: generate from the context of this frame (0) or the one before (-1)", -1, 0)
    alpha: float = parameter(0.0, "auras: skew of the generation steps towards the last stage", 0.0, 10.0)
    batched: bool = parameter(True, "auras: the rows of a frame share one call of the network")
    workers: int = parameter(1, "par: requests at a time", 1, MAX_STAGES)
    seed: int = parameter(0, "seed of the noise", 0, 2**31 - 1)
    actuator: str = parameter("actuator", "name of the actuator node; no chunk is published while it is silent")
    actuator_timeout_ms: float = parameter(250.0, "the actuator counts as silent after this", 100.0, 1000.0)
    frame_period_ms: float = parameter(
        0.0, "grid of frame starts (par: interval between requests); 0: as soon as there is work", 0.0, 10000.0
    )
    camera_age_limit_ms: float = parameter(350.0, "no frame runs on an older camera image", 1.0, 60000.0)
    state_age_limit_ms: float = parameter(350.0, "no frame runs on older joint states", 1.0, 60000.0)
    sync_tolerance_ms: float = parameter(50.0, "how far the cameras' newest stamps may lie apart", 0.0, 10000.0)
    compressed: bool = parameter(False, "subscribe to .../image_raw/compressed instead of .../image_raw")
    threads: int = parameter(1, "intra-op threads of each strand", 1, 64)
    cores: str = parameter("", "cores that the strands run on, such as 2,3; empty: any")


def _cores(text: str) -> list[int] | None:
    try:
        return [int(part) for part in text.split(",")] if text.strip() else None
    except ValueError:
        raise ParameterError(f"agent: cores: expected core numbers such as 2,3, got {text!r}") from None


class Agent(Node):
    """See the module's docstring."""

    def __init__(self, **node_options: Any) -> None:
        super().__init__("agent", **node_options)
        self.settings = read_parameters(self, Settings)
        self._monotonic, self._session = MonotonicClock(), uuid.uuid4().hex[:12]
        self._pipeline = self._load()
        checkpoint = self._pipeline.checkpoint
        self._spec, self._contract = checkpoint.spec, checkpoint.contract
        self._assembler = Assembler(
            self._spec,
            self.settings.camera_age_limit_ms,
            self.settings.state_age_limit_ms,
            self.settings.sync_tolerance_ms,
        )
        self._actuator_ns: int | None = None
        self._actuator_lost = False
        self._fault = ""
        self._started_ns = 0
        self._awaited_origin_ns = self._awaited_since_ns = -1
        self._running = threading.Event()
        self._live = Live(
            self._pipeline.executor, self._latch, self._emit, _cores(self.settings.cores), self.settings.threads
        )
        self._heart = threading.Thread(target=self._heartbeat_loop, name="heartbeat", daemon=True)
        self._connect()

    def _load(self) -> Pipeline:
        """Read, check and warm up the policy; what takes seconds happens before anything is promised."""
        settings = self.settings
        plan = Plan(
            generation=settings.plan,
            mode=settings.mode,
            pp_perception=settings.pp_perception,
            pp_generation=settings.pp_generation,
            fetch_offset=settings.fetch_offset,
            alpha=settings.alpha,
            batched=settings.batched,
            frame_period_ms=settings.frame_period_ms,
            workers=settings.workers,
        )
        folder = resources.checkpoint(settings.checkpoint)
        self.get_logger().info(f"loading {folder}, plan '{plan}'")
        pipeline = load_pipeline(
            folder, plan, settings.seed, self._monotonic, host_id(), self._session, settings.threads
        )
        gc.collect()
        gc.freeze()  # what lives for ever is not looked at again by the garbage collector
        self.get_logger().info(f"golden sample replayed, ready as session {self._session}")
        return pipeline

    def _connect(self) -> None:
        reliable = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        best_effort = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        self._chunk = self.create_publisher(Float64MultiArray, "~/chunk", reliable)
        self._heartbeat = self.create_publisher(String, "~/heartbeat", best_effort)
        self._provenance = self.create_publisher(DiagnosticArray, "provenance", reliable)
        for camera in self._spec.cameras:
            topic = f"camera/{camera.name}/image_raw"
            if self.settings.compressed:
                take = lambda message, name=camera.name: self._on_compressed(name, message)  # noqa: E731
                self.create_subscription(CompressedImage, f"{topic}/compressed", take, best_effort)
            else:
                take = lambda message, name=camera.name: self._on_image(name, message)  # noqa: E731
                self.create_subscription(Image, topic, take, best_effort)
        self.create_subscription(JointState, "joint_states", self._on_joint_states, qos_profile_sensor_data)
        self.create_subscription(String, f"{self.settings.actuator}/state", self._on_actuator, LATCHED)
        self.create_service(Trigger, "~/reset", self._on_reset)

    # -- what arrives (executor thread) -------------------------------------------------------------------

    def _on_image(self, name: str, message: Image) -> None:
        try:
            frame = decode_raw(
                height=message.height,
                width=message.width,
                encoding=message.encoding,
                step=message.step,
                data=message.data,
            )
        except ObservationError as error:
            self._say(self._assembler.count(error.fault))
            return
        self._put_image(name, frame, message.header)

    def _on_compressed(self, name: str, message: CompressedImage) -> None:
        try:
            frame = decode_compressed(message.data)
        except ObservationError as error:
            self._say(self._assembler.count(error.fault))
            return
        self._put_image(name, frame, message.header)

    def _put_image(self, name: str, frame: Any, header: Any) -> None:
        stamp, latency_ns = self._stamp(header)
        self._say(self._assembler.put_image(name, frame, stamp, self._monotonic.now_ns(), latency_ns))
        self._live.arrived()

    def _on_joint_states(self, message: JointState) -> None:
        stamp, latency_ns = self._stamp(message.header)
        positions = np.asarray(message.position, dtype=np.float64)
        fault = self._assembler.put_state(list(message.name), positions, stamp, self._monotonic.now_ns(), latency_ns)
        self._say(fault)
        self._live.arrived()

    def _stamp(self, header: Any) -> tuple[int, int]:
        """(the stamp, how long ago it was by the same clock). A camera clock that runs ahead counts as 0 ago."""
        stamp = stamp_ns(header)
        return stamp, max(0, self.get_clock().now().nanoseconds - stamp)

    def _say(self, fault: Fault | None) -> None:
        if fault is not None:
            self.get_logger().warning(str(fault), throttle_duration_sec=1.0)

    def _on_actuator(self, message: String) -> None:
        try:
            sent_ns = int(read_json(message.data, "actuator state")["mono_ns"])
        except (MessageError, KeyError, TypeError, ValueError, OverflowError) as error:
            self.get_logger().warning(f"refused: {error}", throttle_duration_sec=1.0)
            return
        self._actuator_ns = min(sent_ns, self._monotonic.now_ns())  # a latched state of a dead actuator is old

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._live.reset(self._assembler.reset)
        response.success, response.message = True, "new epoch from the next frame on"
        return response

    # -- frames (the strands' threads) --------------------------------------------------------------------

    def start(self) -> None:
        self._started_ns = self._monotonic.now_ns()
        self._running.set()
        self._live.start()
        self._heart.start()

    def working(self) -> bool:
        """Whether every thread lives."""
        return self._heart.is_alive() and self._live.working()

    def halt(self) -> None:
        self._running.clear()
        self._live.halt()
        if self._heart.is_alive():
            self._heart.join(timeout=5.0)

    def _latch(self, now_ns: int) -> Latched | None:
        """The newest observation, where it may be used and somebody would watch over what comes of it."""
        observation = self._assembler.latch(now_ns)
        if isinstance(observation, Fault):
            self._note(observation)
            return None
        self._note(None)
        if self._unwatched() or self._state_is_due(observation, now_ns):
            return None
        return self._pipeline.latched(observation)

    def _state_is_due(self, observation: Observation, now_ns: int) -> bool:
        """Whether to wait for the joint states that belong to this image: policies learn the two of one instant.

        They come by another topic, maybe a moment later. A state that lags by whole steps, or is stamped by a clock
        of its own, is not waited for.
        """
        if observation.state_stamp_ns is None:
            return False
        lag_ns = observation.origin_stamp_ns - observation.state_stamp_ns
        if not self.settings.sync_tolerance_ms * 1e6 < lag_ns < STATE_LAG_STEPS * self._spec.dt_ns:
            return False
        if self._awaited_origin_ns != observation.origin_mono_ns:
            self._awaited_origin_ns, self._awaited_since_ns = observation.origin_mono_ns, now_ns
        return now_ns - self._awaited_since_ns < STATE_WAIT_NS

    def _note(self, fault: Fault | None) -> None:
        """Say so when observations fail, and when they are back."""
        name = f"{fault.source} {fault.name.value}" if fault else ""
        if fault and name != self._fault:
            self.get_logger().warning(f"no observation: {fault}")
        elif self._fault and not fault:
            self.get_logger().info("observations are back")
        self._fault = name

    def _unwatched(self) -> bool:
        """Whether the actuator was not heard of lately: then nobody would check what we ask for."""
        heard_ns = self._actuator_ns
        return heard_ns is None or self._monotonic.now_ns() - heard_ns > self.settings.actuator_timeout_ms * 1e6

    def _say_whether_watched(self) -> None:
        if self._actuator_ns is None and self._monotonic.now_ns() - self._started_ns < DISCOVERY_NS:
            return  # it may be about to be found
        silent = self._unwatched()
        if silent and not self._actuator_lost:
            self.get_logger().error(f"actuator '{self.settings.actuator}' is silent: no chunk is published")
        elif not silent and self._actuator_lost:
            self.get_logger().info(f"actuator '{self.settings.actuator}' is back")
        self._actuator_lost = silent

    def _emit(self, emission: Emission) -> None:
        if emission.epoch != self._pipeline.executor.ledger.epoch or self._unwatched():
            return
        chunk = self._pipeline.chunk(emission)
        self._chunk.publish(chunk_message(chunk, self._contract))
        published_ns = self._monotonic.now_ns()
        times = {
            "latched_ns": emission.latched_ns,
            "perceived_ns": emission.perceived_ns,
            "generated_ns": emission.generated_ns,
            "published_ns": published_ns,
        }
        facts = {**chunk.provenance.to_dict(), **times}
        status = DiagnosticStatus(
            level=DiagnosticStatus.OK,
            name=self.get_fully_qualified_name(),
            message="chunk",
            values=[KeyValue(key=key, value=str(value)) for key, value in facts.items()],
        )
        array = DiagnosticArray(status=[status])
        array.header.stamp = to_time_msg(chunk.provenance.origin_stamp_ns)
        self._provenance.publish(array)

    def _heartbeat_loop(self) -> None:
        next_ns = self._monotonic.now_ns()
        while self._running.is_set() and self._live.working():  # it ends with the frames: the actuator holds
            self._say_whether_watched()
            state = "actuator lost" if self._actuator_lost else self._fault or "running"
            self._heartbeat.publish(
                json_message({"session": self._session, "frame": self._pipeline.executor.frames, "state": state})
            )
            next_ns = max(next_ns + HEARTBEAT_NS, self._monotonic.now_ns())
            self._monotonic.sleep_until_ns(next_ns)


def main(argv: list[str] | None = None) -> int:
    """Entry point of the executable `agent`."""
    refusals = (CheckpointError, DeviceError, ParameterError, PlanError, OSError)
    return node_main(argv, Agent, Agent.start, Agent.halt, Agent.working, refusals)


if __name__ == "__main__":
    sys.exit(main())
