"""Parameters of the nodes' inputs, declared once: topics of cameras and joints, names of joints, and how the time of a
message is known. It loads no ROS: checking a config needs none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from auras_ros.parameters import ParameterError, parameter
from auras_ros.topic_names import JOINT_STATES

HEADER, RECEIPT = "header", "receipt"
NOT_STATED_MS = -1.0
NS_PER_MS = 1_000_000


def camera_topics() -> Any:
    return parameter(
        (),
        "topics of cameras that are not called camera/<name>/image_raw: a list such as "
        "[front:=/camera/camera/color/image_raw]; with `compressed`, /compressed is added",
    )


def joint_states_topic() -> Any:
    return parameter(JOINT_STATES, "topic of the joints' positions")


def joint_prefix() -> Any:
    return parameter("", "what stands before the checkpoint's joint names on this robot, such as left_ or robot1/")


def stamps() -> Any:
    return parameter(
        HEADER,
        "how the time of an image or of joint states is known: header (their stamp), or receipt, for drivers that do "
        "not stamp by this host's clock: an image was taken receipt_latency_ms before it came, joint states as they "
        "came",
    )


def receipt_latency_ms() -> Any:
    return parameter(
        NOT_STATED_MS,
        "with `stamps: receipt`, which needs it: the time from the taking of an image to its receipt; -1: not stated",
        NOT_STATED_MS,
        10000.0,
    )


@dataclass(frozen=True)
class StampRule:
    """How the time of a message is known. receipt_latency_ns: of an image, where its receipt counts; None: by its
    header."""

    receipt_latency_ns: int | None = None

    @classmethod
    def read(cls, owner: str, stamps: str, receipt_latency_ms: float) -> StampRule:
        """Raises ParameterError."""
        if stamps not in (HEADER, RECEIPT):
            raise ParameterError(f"{owner}: stamps: must be {HEADER} or {RECEIPT}, got {stamps!r:.80}")
        if stamps == HEADER and receipt_latency_ms != NOT_STATED_MS:
            raise ParameterError(f"{owner}: receipt_latency_ms: only with `stamps: {RECEIPT}`")
        if stamps == HEADER:
            return cls()
        if receipt_latency_ms < 0.0:
            raise ParameterError(
                f"{owner}: stamps: {RECEIPT} needs receipt_latency_ms, how long an image takes from the camera to "
                "here: every age counts on it (docs/interfaces.md)"
            )
        return cls(round(receipt_latency_ms * NS_PER_MS))

    def __str__(self) -> str:
        """As the provenance of a chunk or an answer tells it."""
        if self.receipt_latency_ns is None:
            return HEADER
        return f"{RECEIPT}, images {self.receipt_latency_ns / NS_PER_MS:g} ms before"


def check_joint_prefix(owner: str, prefix: str) -> None:
    """Raises ParameterError."""
    if not prefix.isprintable() or " " in prefix:
        raise ParameterError(f"{owner}: joint_prefix: {prefix!r:.80} is not the beginning of a joint's name")
