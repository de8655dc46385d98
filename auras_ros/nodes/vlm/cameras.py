"""The node's cameras: of each the newest image, with its age limit, and never a queue; and as many before it as
questions about several frames reach back.

Messages are not trusted: malformed ones and stamps from the future are refused, logged and counted. A compressed image
is decoded when somebody asks about it; of the others only the header is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from auras_ros.clock import MonotonicClock
from auras_ros.nodes.common.bounded_subscription import subscribe_to_camera
from auras_ros.nodes.common.diagnostics import DiagnosticReport, Level, QosWatch
from auras_ros.nodes.common.input_counters import InputCounters
from auras_ros.nodes.common.messages import raw_pixels
from auras_ros.nodes.common.stamps import StampReader
from auras_ros.nodes.common.topic_causes import why_no_image
from auras_ros.nodes.vlm.settings import VlmSettings
from auras_ros.observation import (
    FaultName,
    LatestSlot,
    ObservationError,
    ObservationFault,
    Stamped,
    compressed_size,
    decode_compressed,
    sent_encoding,
)
from auras_ros.observation.images import ImageArray
from auras_ros.repeated_lines import RepeatedLines
from auras_ros.ros import Node
from auras_ros.ros.msg import CompressedImage, Image
from auras_ros.ros.received_image import ReceivedFile, ReceivedImage
from auras_ros.topic_names import image_topic


@dataclass(frozen=True, eq=False)
class CameraPixels:
    """Called in any thread it returns RGB, uint8 [height, width, 3], or raises ObservationError. frame_id: that of the
    message."""

    read: Callable[[], ImageArray]
    frame_id: str

    def __call__(self) -> ImageArray:
        return self.read()


CameraImage = Stamped[CameraPixels]


class CameraInputs:
    """Subscribes at once; messages are taken only between `open` and `shut`. Used in the executor's thread."""

    def __init__(self, node: Node, settings: VlmSettings, qos: QosWatch) -> None:
        self._node, self._compressed = node, settings.compressed
        self._monotonic = MonotonicClock()
        names = settings.camera_names()
        self._slots: dict[str, LatestSlot[CameraPixels]] = {
            name: LatestSlot(name, settings.camera_age_limit_ms, settings.stamp_ahead_ms) for name in names
        }
        self._past = {name: deque[CameraImage](maxlen=settings.kept()) for name in names}
        self._counters = InputCounters(names)
        self._news: Callable[[str], None] | None = None
        self._stamps = StampReader(node, self.forget, settings.stamp_rule())
        self._lines = RepeatedLines()
        topics = settings.topics_of_cameras()
        self._names = {name: image_topic(name, topics, compressed=self._compressed) for name in names}
        self._topics = [self._subscribe_to_camera(name, qos) for name in names]

    def _subscribe_to_camera(self, name: str, qos: QosWatch) -> Any:
        on_image = partial(self._on_image, name)
        refuse = partial(self._refuse_image, name)
        return subscribe_to_camera(qos, self._names[name], on_image, refuse, compressed=self._compressed)

    def open(self, news: Callable[[str], None]) -> None:
        """Take messages from now on. `news(camera)` is called for each new image."""
        self.forget()
        self._news = news

    def shut(self) -> None:
        """Take no messages until `open` is called again."""
        self._news = None

    def close(self) -> None:
        self._stamps.close()
        for topic in self._topics:
            topic.close()
        self._topics = []

    def forget(self) -> None:
        for slot in self._slots.values():
            slot.reset()
        for past in self._past.values():
            past.clear()

    def newest(self, camera: str) -> CameraImage:
        """Raises ObservationError if there is none, or if it is older than the limit."""
        found = self._slots[camera].latest(self._monotonic.now_ns())
        if isinstance(found, ObservationFault):
            raise ObservationError(found.name, found.source, f"{found.detail}{self._cause(found)}")
        return found

    def frames(self, camera: str, count: int, stride: int) -> tuple[CameraImage, ...]:
        """So many up to the newest one, the oldest first, each the `stride`-th after the one before. Raises
        ObservationError as `newest` does, and while there are too few."""
        self.newest(camera)
        past, reach = self._past[camera], (count - 1) * stride + 1
        if reach > (past.maxlen or 0):
            detail = f"{count} frames, each {stride} after another, reach back {reach}; frames_kept is {past.maxlen}"
            raise ObservationError(FaultName.MISSING, camera, detail)
        if reach > len(past):
            raise ObservationError(FaultName.MISSING, camera, f"{len(past)} of {reach} images have come")
        return tuple(list(past)[-reach::stride])

    def check(self) -> DiagnosticReport:
        now_ns = self._monotonic.now_ns()
        values = self._counters.values(now_ns)
        for name, slot in self._slots.items():
            values |= {f"{name} {what}": count for what, count in slot.counters().items()}
        if not self._slots:
            return DiagnosticReport(Level.OK, "no cameras: questions are about no image", values)
        if self._news is None:
            return DiagnosticReport(Level.OK, "not active: messages are ignored", values)
        found = [slot.latest(now_ns) for slot in self._slots.values()]
        faults = [f"{each}{self._cause(each)}" for each in found if isinstance(each, ObservationFault)]
        if faults:
            return DiagnosticReport(Level.ERROR, f"questions are refused: {'; '.join(faults)}", values)
        return DiagnosticReport(Level.OK, "images are received", values)

    def _cause(self, fault: ObservationFault) -> str:
        """Why a camera has nothing new: its newest message was refused, or none comes; empty if the fault says it."""
        if refused := self._counters.cause(fault):
            return refused
        if fault.name not in (FaultName.MISSING, FaultName.STALE) or not self._is_silent(fault):
            return ""
        kind = CompressedImage if self._compressed else Image
        return f"; {why_no_image(self._node, fault.source, self._names, kind)}"

    def _is_silent(self, fault: ObservationFault) -> bool:
        return self._counters.is_silent(fault, self._monotonic.now_ns())

    def _on_image(self, name: str, message: ReceivedImage | ReceivedFile) -> None:
        if self._news is None:
            return
        try:
            pixels = self._pixels(message)
        except ObservationError as error:
            self._refuse(name, replace(error.fault, source=f"{name}: {error.fault.source}"))
            return
        stamp, latency_ns = self._stamps.read(message.header, is_image=True)
        slot, now_ns = self._slots[name], self._monotonic.now_ns()
        before = slot.item()
        put = slot.put(pixels, stamp, now_ns, latency_ns)
        if isinstance(put, ObservationFault) and self._stamps.recovers(put, now_ns, self.forget):
            put = slot.put(pixels, stamp, now_ns, latency_ns)
        if isinstance(put, ObservationFault):
            self._refuse(name, put)
            return
        self._counters.taken(name, now_ns)
        if put.item is not before:  # else a camera that repeats one image
            self._past[name].append(put)
            self._news(name)

    def _pixels(self, message: ReceivedImage | ReceivedFile) -> CameraPixels:
        """Raises ObservationError."""
        if isinstance(message, ReceivedFile):
            compressed_size(message.data)
            encoding = sent_encoding(message.format)
            return CameraPixels(partial(decode_compressed, message.data, encoding=encoding), message.header.frame_id)
        pixels = raw_pixels(message)
        return CameraPixels(lambda: pixels, message.header.frame_id)

    def _refuse_image(self, name: str, error: ValueError) -> None:
        """Refuse a payload that is no image."""
        if self._news is not None:
            self._refuse(name, ObservationFault(FaultName.BAD_DATA, name, str(error)))

    def _refuse(self, name: str, fault: ObservationFault) -> None:
        self._counters.refused(name, fault)
        if line := self._lines.line(name, str(fault), cause=fault.name.value):
            self._node.get_logger().warning(line)
