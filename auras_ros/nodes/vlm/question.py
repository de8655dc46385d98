"""Questions as others ask them: a plain text, or a JSON object; and standing ones, from the parameters.

Neither is trusted: what cannot be asked raises MessageError, which names the field. Nothing is answered here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from auras_ros.nodes.common.texts import MessageError, read_json, text_refusal
from auras_ros.observation.checks import SpecError, check_positive, is_int, is_number, object_of

MOST_STANDING = 256
MOST_CHARACTERS = 128  # of an id, or of a standing question's name
LEAST_PRIORITY, MOST_FRAMES = 1_000_000, 64


@dataclass(frozen=True)
class Question:
    """camera: empty is about no image. id: the asker's, repeated in the answer. max_tokens: None is the parameter's.
    priority: smaller ones first. deadline_ms: after this time the answer ends with what there is. stream: publish the
    answer's pieces too. adapter: the name of one of `loras`. head: whether its task head answers; None: if it has one.
    frames, stride: of a video: so many of the camera's images up to the newest, each the `stride`-th after the one
    before. Raises MessageError."""

    text: str
    camera: str = ""
    id: str = ""
    max_tokens: int | None = None
    priority: int = 0
    deadline_ms: float | None = None
    stream: bool = True
    adapter: str = ""
    head: bool | None = None
    frames: int = 1
    stride: int = 1

    @property
    def reach(self) -> int:
        """Images from the first one to the newest."""
        return (self.frames - 1) * self.stride + 1

    def __post_init__(self) -> None:
        for name in ("text", "camera", "id", "adapter"):
            if not isinstance(value := getattr(self, name), str):
                raise MessageError(f"{name}: expected a text, got {value!r:.80}")
        if not self.text.strip():
            raise MessageError("text: is empty")
        if len(self.id) > MOST_CHARACTERS:
            raise MessageError(f"id: longer than {MOST_CHARACTERS} characters")
        if self.max_tokens is not None and not (is_int(self.max_tokens) and self.max_tokens >= 1):
            raise MessageError(f"max_tokens: expected a whole number from 1, got {self.max_tokens!r:.80}")
        if not (is_int(self.priority) and abs(self.priority) <= LEAST_PRIORITY):
            raise MessageError(f"priority: expected a whole number, got {self.priority!r:.80}")
        if self.deadline_ms is not None and not (is_number(self.deadline_ms) and self.deadline_ms > 0):
            raise MessageError(f"deadline_ms: expected a time above 0, got {self.deadline_ms!r:.80}")
        if not isinstance(self.stream, bool):
            raise MessageError(f"stream: expected true or false, got {self.stream!r:.80}")
        if self.head is not None and not isinstance(self.head, bool):
            raise MessageError(f"head: expected true or false, got {self.head!r:.80}")
        for name in ("frames", "stride"):
            if not (is_int(value := getattr(self, name)) and 1 <= value <= MOST_FRAMES):
                raise MessageError(f"{name}: expected a whole number from 1 to {MOST_FRAMES}, got {value!r:.80}")
        if self.frames > 1 and not self.camera:
            raise MessageError(f"frames: {self.frames} of no camera")


@dataclass(frozen=True)
class StandingQuestion:
    """Asked at every n-th new image of its camera."""

    name: str
    question: Question
    every_frames: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name) <= MOST_CHARACTERS:
            raise MessageError(f"name: expected a text of 1 to {MOST_CHARACTERS} characters, got {self.name!r:.80}")
        check_positive("every_frames", self, "every_frames")


def question_fields(text: str, limit_bytes: int) -> dict[str, Any]:
    """What a message says: the keys of a JSON object, or a text alone. Raises MessageError."""
    if reason := text_refusal("question", text, limit_bytes):
        raise MessageError(reason)
    return read_json(text, "question") if text.lstrip().startswith("{") else {"text": text}


def read_question(fields: Mapping[str, Any], cameras: Collection[str], limit_bytes: int) -> Question:
    """Raises MessageError, naming the field."""
    try:
        question = Question(**object_of("question", Question, fields))
    except SpecError as error:
        raise MessageError(str(error)) from error
    except MessageError as error:
        raise MessageError(f"question: {error}") from error
    if reason := text_refusal("question: text", question.text, limit_bytes):
        raise MessageError(reason)
    if question.camera and question.camera not in cameras:
        known = ", ".join(cameras) or "none"
        raise MessageError(f"question: camera: {question.camera!r:.80} is not one of `cameras`: {known}")
    return question


def read_standing(text: str, cameras: Collection[str], limit_bytes: int) -> tuple[StandingQuestion, ...]:
    """The parameter `standing`. Raises MessageError, naming the entry and its field."""
    if not text.strip():
        return ()
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"standing: not JSON: {error}") from error
    if not isinstance(given, list):
        raise MessageError(f"standing: expected a JSON list, got {type(given).__name__}")
    if len(given) > MOST_STANDING:
        raise MessageError(f"standing: {len(given)} are more than {MOST_STANDING}")
    found: dict[str, StandingQuestion] = {}
    for place, entry in enumerate(given):
        try:
            standing = _standing(entry, cameras, limit_bytes)
        except ValueError as error:
            raise MessageError(f"standing[{place}]: {error}") from error
        if standing.name in found:
            raise MessageError(f"standing[{place}]: name: {standing.name!r} is there twice")
        found[standing.name] = standing
    return tuple(found.values())


def _standing(entry: Any, cameras: Collection[str], limit_bytes: int) -> StandingQuestion:
    if not isinstance(entry, dict):
        raise MessageError(f"expected an object, got {type(entry).__name__}")
    own = {key: entry[key] for key in ("name", "every_frames") if key in entry}
    rest = {key: value for key, value in entry.items() if key not in own}
    for key, given in (("name", own), ("camera", rest)):
        if not given.get(key):
            raise MessageError(f"{key}: missing")
    if "id" in rest:
        raise MessageError("id: a standing question has a name")
    question = read_question({"priority": 1, "stream": False, **rest}, cameras, limit_bytes)  # people's go first
    return StandingQuestion(question=question, **own)
