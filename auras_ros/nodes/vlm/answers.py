"""What is published of an answer: its pieces while it comes, and the whole of it with its provenance, in one line."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from auras_ros.engine.reply import Reply
from auras_ros.engine.request import RequestUsage
from auras_ros.lora.heads import HeadResult
from auras_ros.nodes.common.diagnostics import QosWatch
from auras_ros.nodes.common.messages import json_message
from auras_ros.nodes.common.qos import ANSWERS
from auras_ros.nodes.vlm.cameras import CameraImage
from auras_ros.nodes.vlm.detections import DetectionPublisher
from auras_ros.nodes.vlm.question import Question
from auras_ros.ros import QoSProfile, ReliabilityPolicy
from auras_ros.ros.msg import String

PIECES = QoSProfile(depth=1000, reliability=ReliabilityPolicy.RELIABLE)
REFUSED = "refused"


@dataclass(eq=False)
class AskedQuestion:
    """A question on its way. standing: the name of a standing one. images: that it is about, the newest last; size:
    their height and width, once they were looked at. Times are monotonic, ns."""

    question: Question
    id: str
    standing: str
    images: tuple[CameraImage, ...]
    asked_ns: int
    reply: Reply | None = field(default=None, init=False)
    parts: list[str] = field(default_factory=list, init=False)
    size: tuple[int, int] = field(default=(0, 0), init=False)

    @property
    def image(self) -> CameraImage | None:
        """The newest one."""
        return self.images[-1] if self.images else None

    def age_ms(self, at_ns: int) -> float | None:
        """Of the image; None before it is known when."""
        return None if self.image is None or not at_ns else round((at_ns - self.image.mono_ns) / 1e6, 3)


@dataclass(frozen=True)
class AnswerEnd:
    """finish: the engine's reason, or `refused`. usage: None if the engine was not asked, or did not end it. tokens: of
    the answer. result: of a task head."""

    finish: str
    detail: str
    ended_ns: int
    usage: RequestUsage | None = None
    tokens: int = 0
    result: HeadResult | None = None


class AnswerPublishers:
    """`answer` and `answer/stream`, and what finds boxes. Any thread."""

    def __init__(self, qos: QosWatch) -> None:
        self._answers = qos.create_publisher(String, "answer", ANSWERS)
        self._pieces = qos.create_publisher(String, "answer/stream", PIECES)
        self.origin: dict[str, Any] = {}  # session, model and how stamps are known, in every answer
        self.detections: DetectionPublisher | None = None  # while adapters can be asked for

    def piece(self, asked: AskedQuestion, index: int, text: str, finish: str | None) -> None:
        self._pieces.publish(json_message({"id": asked.id, "index": index, "text": text, "finish": finish}))

    def refused(self, name: str, text: str, reason: str) -> None:
        """A message that is not a question. text: its beginning."""
        self._publish({"id": name, "question": text, "finish": REFUSED, "detail": reason})

    def answer(self, asked: AskedQuestion, text: str, end: AnswerEnd) -> None:
        fields: dict[str, Any] = {"id": asked.id, "question": asked.question.text, "standing": asked.standing}
        fields |= {"text": text, "finish": end.finish, "detail": end.detail, "adapter": asked.question.adapter}
        fields["result"] = None if end.result is None else asdict(end.result)
        times = None if end.usage is None else end.usage.timings
        if asked.image is not None:
            fields["image"] = {
                "camera": asked.question.camera,
                "stamp_ns": asked.image.stamp_ns,
                "frames": len(asked.images),
                "first_stamp_ns": asked.images[0].stamp_ns,
                "age_asked_ms": asked.age_ms(asked.asked_ns),
                "age_start_ms": asked.age_ms(times.first_token_ns if times else 0),
                "age_end_ms": asked.age_ms(end.ended_ns),
            }
        if end.usage is not None and times is not None:
            spent = {name: getattr(times, f"{name}_ns") for name in ("vision", "prefill", "decode")}
            if times.first_token_ns:
                spent["first_token"] = times.first_token_ns - asked.asked_ns
            spent["total"] = end.ended_ns - asked.asked_ns
            fields["timings_ms"] = {name: round(taken_ns / 1e6, 3) for name, taken_ns in spent.items()}
            cached = end.usage.cached_tokens
            fields["tokens"] = {"prompt": end.usage.prompt_tokens, "cached": cached, "answer": end.tokens}
        self._publish(fields)

    def boxes(self, asked: AskedQuestion, end: AnswerEnd) -> None:
        """What a box head has found in the image, if it is one's answer about an image."""
        if self.detections is None or asked.image is None or end.result is None or end.result.kind != "box":
            return
        image = asked.image
        self.detections.publish(image.stamp_ns, image.item.frame_id, asked.size, end.result.boxes)

    def _publish(self, fields: dict[str, Any]) -> None:
        """Every answer has the same keys."""
        empty: dict[str, Any] = dict.fromkeys(("id", "question", "standing", "adapter", "text", "finish", "detail"), "")
        empty |= dict.fromkeys(("result", "image", "timings_ms", "tokens"))
        self._answers.publish(json_message({**empty, **fields, **self.origin}))
