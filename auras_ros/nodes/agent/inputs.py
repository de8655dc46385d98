"""The agent's inputs: cameras and joint states go into the assembler, and the newest observation comes out of it.

Messages are not trusted: malformed ones and stamps from the future are refused, logged and counted. Why there is no
observation is `input_causes`'s. Nothing here runs a frame.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from auras_ros.action import Contract
from auras_ros.clock import MonotonicClock
from auras_ros.nodes.agent.image_preparation import ImagePreparation
from auras_ros.nodes.agent.input_causes import InputCauses
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.common.bounded_subscription import subscribe_to_camera, subscribe_with_info
from auras_ros.nodes.common.diagnostics import DiagnosticReport, Level, QosWatch
from auras_ros.nodes.common.input_counters import STATE, STATE_SLOT, InputCounters
from auras_ros.nodes.common.joint_names import own_joints
from auras_ros.nodes.common.messages import STATE_LIMITS, raw_pixels
from auras_ros.nodes.common.stamps import StampReader
from auras_ros.observation import (
    Arrivals,
    Assembler,
    FaultName,
    Observation,
    ObservationError,
    ObservationFault,
    ObservationSpec,
    Picture,
    decode_compressed,
    resizes_first,
    sent_encoding,
)
from auras_ros.repeated_lines import RepeatedLines
from auras_ros.ros import Node, qos_profile_sensor_data
from auras_ros.ros.image import stamp_ns
from auras_ros.ros.msg import JointState
from auras_ros.ros.received_image import ReceivedFile, ReceivedImage

STATE_WAIT_NS = 20_000_000
STATE_LAG_STEPS = 4
SKEW_SAID_NS = 100_000_000  # a skew is reported only after this time: images of one instant come one after another
CAUSE_AFTER_NS = 2_000_000_000  # the cause of a fault is logged only then: the ROS graph is not known at once
MAX_RESIZED_PIXELS = 4096 * 2304  # of an image of another size than the checkpoint's: a larger one takes long


class ObservationInputs:
    """Subscribes for one configured policy; `close` ends that. Messages are taken only between `open` and `shut`.

    `latch` is called in the frames' threads, one at a time; all else in the executor's. `arrivals`: when images came
    that a frame could use at once.
    """

    def __init__(
        self, node: Node, spec: ObservationSpec, settings: AgentSettings, qos: QosWatch, contract: Contract
    ) -> None:
        self._node, self._spec, self._settings = node, spec, settings
        self._monotonic = MonotonicClock()
        self._assembler = Assembler(
            spec, settings.camera_age_limit_ms, settings.state_age_limit_ms, settings.sync_tolerance_ms,
            settings.stamp_ahead_ms, resizes=settings.resize_images,
        )  # fmt: skip
        self._cameras = {camera.name: camera for camera in spec.cameras}
        self.arrivals = Arrivals(self._cameras)
        self._pictures = ImagePreparation(self._on_prepared, self._on_unprepared)
        self._newest: dict[str, Picture | None] = {}
        self._taking = False
        self._news = self._on_clock_jump = _nothing
        self._next_frame_ns: Callable[[], int] = lambda: 0
        self._refusals = InputCounters([*self._cameras, STATE])
        self._causes = InputCauses(node, spec, contract, settings, self._refusals)
        self._lines = RepeatedLines()
        self._resized: dict[str, tuple[int, int]] = {}  # camera -> (height, width) of its images, where not as trained
        self._of_others = 0  # number of joint states with none of the policy's joints
        self._fault: ObservationFault | None = None
        self._fault_since_ns = 0
        self._said_none = False  # whether the newest line in the log says that there is no observation
        self._skewed_since_ns: int | None = None
        self._awaited_origin_ns = self._awaited_since_ns = -1
        self._latching = threading.Lock()
        self._stamps = StampReader(node, self._on_jump, settings.stamp_rule())
        self._topics = [self._subscribe_to_camera(name, qos) for name in self._cameras]
        self._topics.append(
            subscribe_with_info(
                qos,
                JointState,
                settings.joint_states_topic,
                self._on_joint_states,
                qos_profile_sensor_data,
                STATE_LIMITS,
                self._refuse_joint_states,
                periodic=True,
            )
        )

    def _subscribe_to_camera(self, name: str, qos: QosWatch) -> Any:
        topic, on_image = self._causes.camera_topics[name], partial(self._on_image, name)
        refuse = partial(self._refuse_image, name)
        return subscribe_to_camera(qos, topic, on_image, refuse, compressed=self._settings.compressed)

    def open(
        self, news: Callable[[], None], on_clock_jump: Callable[[], None], next_frame_ns: Callable[[], int] = lambda: 0
    ) -> None:
        """Take messages from now on; earlier ones are forgotten. `news()` is called for each accepted message,
        `on_clock_jump()` when the clock has gone back, which needs a new epoch. next_frame_ns: no frame starts before
        the time that it returns."""
        self._assembler.reset()
        self.arrivals.clear()
        self._next_frame_ns = next_frame_ns
        self._fault = self._skewed_since_ns = None
        self._taking, self._news, self._on_clock_jump = True, news, on_clock_jump

    def shut(self) -> None:
        """Take no messages until `open` is called again."""
        self._taking = False
        self._news = self._on_clock_jump = _nothing
        self._next_frame_ns = lambda: 0

    def close(self) -> None:
        self._pictures.close()
        self._stamps.close()
        for topic in self._topics:
            topic.close()
        self._topics = []

    def reset(self) -> None:
        """Forget all images and states."""
        self._assembler.reset()

    @property
    def fault(self) -> str:
        """Why there is no observation, such as "top stale"; empty if there is one."""
        fault = self._fault
        return f"{fault.source} {fault.name.value}" if fault else ""

    # -- messages -----------------------------------------------------------------------------------------

    def _on_image(self, name: str, message: ReceivedImage | ReceivedFile) -> None:
        if not self._taking:
            return
        try:
            frame = self._decoded(name, message)
        except ObservationError as error:
            fault = replace(error.fault, source=f"{name}: {error.fault.source}")  # an image does not name its camera
            self._refuse(name, self._assembler.count(fault))
            return
        self._note_size(name, frame.shape[:2])
        stamp, latency_ns = self._stamps.read(message.header, is_image=True)
        now_ns = self._monotonic.now_ns()
        if not self._put(name, lambda: self._assembler.put_image(name, frame, stamp, now_ns, latency_ns), now_ns):
            return
        picture = self._assembler.newest(name)
        if picture is None or picture is self._newest.get(name):  # a camera that repeats one frame
            return
        self._newest[name] = picture
        if self._may_be_used(now_ns):
            self._pictures.prepare(name, picture)
        else:  # noted as if it had been prepared, because the times between images are measured
            self.arrivals.came(name, now_ns + self._pictures.lasts_ns)
            self._news()

    def _decoded(self, name: str, message: ReceivedImage | ReceivedFile) -> Any:
        """RGB, uint8 [height, width, 3]. Raises ObservationError."""
        size = self._cameras[name].height, self._cameras[name].width
        expected = None if self._settings.resize_images else size
        max_pixels = max(MAX_RESIZED_PIXELS, size[0] * size[1])
        if isinstance(message, ReceivedFile):
            return decode_compressed(message.data, max_pixels, expected, encoding=sent_encoding(message.format))
        return raw_pixels(message, expected, max_pixels)

    def _note_size(self, name: str, size: tuple[int, int]) -> None:
        """Warn once of each other size than the checkpoint's: the images are resized."""
        camera = self._cameras[name]
        trained = camera.height, camera.width
        if size == trained:
            self._resized.pop(name, None)
        elif self._resized.get(name) != size:
            self._resized[name] = size
            how = "the checkpoint's own resize takes them" if resizes_first(camera) else "they are stretched to that"
            text = (
                f"{name}: images are {size[0]} x {size[1]}, the checkpoint's are {trained[0]} x {trained[1]}: {how}. "
                "The policy must see what it was trained on; resize_images: false refuses them"
            )
            if line := self._lines.line(f"{name} size", text, cause=str(size)):
                self._node.get_logger().warning(line)

    def _refuse_image(self, name: str, error: ValueError) -> None:
        """Refuse a payload that is no image."""
        if self._taking:
            fault = ObservationFault(FaultName.BAD_DATA, name, str(error))
            self._refuse(name, self._assembler.count(fault))

    def _refuse_joint_states(self, error: ValueError) -> None:
        """Refuse a payload that is no JointState."""
        if self._taking:
            fault = ObservationFault(FaultName.BAD_STATE, STATE_SLOT, str(error))
            self._refuse(STATE, self._assembler.count(fault))

    def _may_be_used(self, now_ns: int) -> bool:
        """Whether a frame may use this image, as newest or as history: not if another one comes before it starts."""
        back_ns = (self._spec.history - 1) * self._spec.dt_ns
        return now_ns + (self.arrivals.period_ns or 0) + back_ns >= self._next_frame_ns() or not self.arrivals.period_ns

    def _on_prepared(self, name: str) -> None:
        """Called in any thread."""
        self.arrivals.came(name, self._monotonic.now_ns())
        self._news()

    def _on_unprepared(self, picture: Picture, error: Exception) -> None:
        if line := self._lines.line("preparation", f"an image cannot be prepared: {error!r}"):
            self._node.get_logger().error(line)

    def _on_joint_states(self, message: JointState, info: Any) -> None:
        if not self._taking:
            return
        now_ns, prefix = self._monotonic.now_ns(), self._settings.joint_prefix
        names, positions = own_joints(message.name, np.asarray(message.position, dtype=np.float64), prefix)
        if not self._assembler.wants(names):  # another driver's joints
            self._of_others += 1
            self._causes.note_other_names(list(message.name))
            return
        self._causes.note_joints(info, names, positions.tolist(), stamp_ns(message.header), now_ns)
        stamp, latency_ns = self._stamps.read(message.header, is_image=False)
        self._put(STATE, lambda: self._assembler.put_state(names, positions, stamp, now_ns, latency_ns), now_ns)
        self._news()

    def _put(self, source: str, put: Callable[[], ObservationFault | None], now_ns: int) -> bool:
        """Put it into the assembler. Returns whether it was accepted."""
        fault = put()
        if fault is not None and self._stamps.recovers(fault, now_ns, self._assembler.reset):
            fault = put()
        if fault is None:
            self._refusals.taken(source, now_ns)
        else:
            self._refuse(source, fault)
        return fault is None

    def _refuse(self, source: str, fault: ObservationFault) -> None:
        self._refusals.refused(source, fault)
        if line := self._lines.line(source, str(fault), cause=fault.name.value):
            self._node.get_logger().warning(line)

    def _on_jump(self) -> None:
        self._on_clock_jump()

    # -- observations -------------------------------------------------------------------------------------

    def latch(self, now_ns: int) -> Observation | None:
        """The newest observation; None if there is none to use yet."""
        with self._latching:
            observation = self._assembler.latch(now_ns)
            if isinstance(observation, ObservationFault):
                if not self._passes(observation, now_ns):
                    self._note(observation, now_ns)
                return None
            self._skewed_since_ns = None
            self._note(None, now_ns)
            return None if self._state_is_due(observation, now_ns) else observation

    def _passes(self, fault: ObservationFault, now_ns: int) -> bool:
        """Whether the fault is a skew that the next images may end: then no frame runs, but nothing is reported yet."""
        if fault.name is not FaultName.SKEW:
            self._skewed_since_ns = None
            return False
        if self._skewed_since_ns is None:
            self._skewed_since_ns = now_ns
        return now_ns - self._skewed_since_ns < SKEW_SAID_NS

    def _state_is_due(self, observation: Observation, now_ns: int) -> bool:
        """Whether to wait for the joint states of the same instant as this image, as policies are trained with both.

        They come on another topic, perhaps a moment later. A state that lags by whole steps, or is stamped by another
        clock, is not waited for.
        """
        if observation.state_stamp_ns is None:
            return False
        lag_ns = observation.origin_stamp_ns - observation.state_stamp_ns
        if not self._settings.sync_tolerance_ms * 1e6 < lag_ns < STATE_LAG_STEPS * self._spec.dt_ns:
            return False
        if self._awaited_origin_ns != observation.origin_mono_ns:
            self._awaited_origin_ns, self._awaited_since_ns = observation.origin_mono_ns, now_ns
        return now_ns - self._awaited_since_ns < STATE_WAIT_NS

    def _note(self, fault: ObservationFault | None, now_ns: int) -> None:
        """Log when observations fail, and when they are back."""
        known, self._fault = self.fault, fault
        if fault and self.fault != known:
            self._fault_since_ns = now_ns
            self._say_no_observation(str(fault), self.fault, is_event=True)
        elif known and not fault:
            self._say_back(is_event=True)

    def _say_no_observation(self, text: str, cause: str, *, is_event: bool) -> None:
        if line := self._lines.line("observation", f"no observation: {text}", cause, is_event=is_event):
            self._said_none = True
            self._node.get_logger().warning(line)

    def _say_back(self, *, is_event: bool) -> None:
        if line := self._lines.line("observation", "observations are back", cause="", is_event=is_event):
            self._said_none = False
            self._node.get_logger().info(line)

    # -- diagnostics --------------------------------------------------------------------------------------

    def check(self) -> DiagnosticReport:
        """Ages of the last accepted messages, and all counters."""
        now_ns, counters = self._monotonic.now_ns(), self._assembler.counters()
        values = self._refusals.values(now_ns) | {f"{STATE} of_others": self._of_others}
        for name, counts in counters["streams"].items():
            values |= {f"{name} {what}": count for what, count in counts.items()}
        values |= {f"fault {name}": count for name, count in counters["faults"].items()}
        if not self._taking:
            return DiagnosticReport(Level.OK, "not active: messages are ignored", values)
        values |= {f"{name} resized from": f"{size[0]} x {size[1]}" for name, size in self._resized.items()}
        for name, topic in self._causes.camera_topics.items():
            values[f"{name} topic"] = self._node.resolve_topic_name(topic)
        warning = self._causes.warning(now_ns)
        if fault := self._fault:
            cause = self._causes.cause(fault, now_ns)
            text = f"{fault}{cause}"
            if now_ns - self._fault_since_ns >= CAUSE_AFTER_NS:
                explained = "; explained" if cause else ""
                self._say_no_observation(text, f"{fault.source} {fault.name.value}{explained}", is_event=False)
            return DiagnosticReport(Level.ERROR, f"no observation: {text}", values)
        if self._said_none:
            self._say_back(is_event=False)
        if warning:
            if line := self._lines.line("publishers", warning):
                self._node.get_logger().warning(line)
            return DiagnosticReport(Level.WARN, warning, values)
        return DiagnosticReport(Level.OK, "observations are received", values)


def _nothing() -> None: ...
