"""What an agent does when a monitor says something: the parameter `monitors`, and the answers that it listens to.

A monitor is a standing question of a vision-language model whose task head answers with a label. Answers are not
trusted: what cannot be read raises MessageError, which names the field. Nothing is decided here.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from auras_ros.nodes.common.texts import MessageError, read_json, text_refusal
from auras_ros.observation.checks import SpecError, check_positive, is_int, is_number, object_of

MOST_RULES = 32
MOST_CHARACTERS = 128  # of a standing question's name, or of a label
MOST_FRAMES = 1000
NO_ADAPTER = "'adapter': no policy here takes an adapter"
DOES = ("pause", "prompt")


@dataclass(frozen=True)
class MonitorRule:
    """What to do while the standing question's answer is `label` with at least `min_score`.

    do: `pause` (publish no chunk) or `prompt` (run this prompt). It begins after for_frames such verdicts in a row, and
    ends after clear_frames others in a row. Raises MessageError.
    """

    standing: str
    label: str
    do: str
    min_score: float = 0.0
    prompt: str = ""
    for_frames: int = 1
    clear_frames: int = 1

    def __post_init__(self) -> None:
        for name in ("standing", "label"):
            value = getattr(self, name)
            if not isinstance(value, str) or not 0 < len(value) <= MOST_CHARACTERS:
                raise MessageError(f"{name}: expected a text of 1 to {MOST_CHARACTERS} characters, got {value!r:.80}")
        if self.do not in DOES:
            why = NO_ADAPTER if self.do == "adapter" else f"{self.do!r:.80}"
            raise MessageError(f"do: {why}; expected one of {', '.join(DOES)}")
        if not is_number(self.min_score) or not 0 <= self.min_score <= 1:
            raise MessageError(f"min_score: expected a number from 0 to 1, got {self.min_score!r:.80}")
        if not isinstance(self.prompt, str) or bool(self.prompt.strip()) is not (self.do == "prompt"):
            wanted = "expected a text" if self.do == "prompt" else "only a rule that does 'prompt' has one"
            raise MessageError(f"prompt: {wanted}, got {self.prompt!r:.80}")
        try:
            check_positive("rule", self, "for_frames", "clear_frames")
        except SpecError as error:
            raise MessageError(str(error).removeprefix("rule: ")) from error
        if max(self.for_frames, self.clear_frames) > MOST_FRAMES:
            raise MessageError(f"for_frames, clear_frames: more than {MOST_FRAMES}")


@dataclass(frozen=True)
class MonitorVerdict:
    """A task head's answer to a standing question. stamp_ns: of the image that it is about; age_ns: how old that image
    was when the answer ended, as the answer says."""

    standing: str
    label: str
    score: float
    stamp_ns: int
    age_ns: int

    def says(self, rule: MonitorRule) -> bool:
        return self.label == rule.label and self.score >= rule.min_score


def read_rules(text: str, prompt_limit_bytes: int) -> tuple[MonitorRule, ...]:
    """The parameter `monitors`: a JSON list. Raises MessageError, naming the rule and its field."""
    if not text.strip():
        return ()
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"monitors: not JSON: {error}") from error
    if not isinstance(given, list) or len(given) > MOST_RULES:
        raise MessageError(f"monitors: expected a JSON list of at most {MOST_RULES} rules")
    return tuple(_rule(f"monitors[{place}]", each, prompt_limit_bytes) for place, each in enumerate(given))


def _rule(what: str, given: Any, prompt_limit_bytes: int) -> MonitorRule:
    try:
        rule = MonitorRule(**object_of(what, MonitorRule, given))
    except SpecError as error:
        raise MessageError(str(error)) from error
    except MessageError as error:
        raise MessageError(f"{what}: {error}") from error
    if reason := text_refusal(f"{what}: prompt", rule.prompt, prompt_limit_bytes):
        raise MessageError(reason)
    return rule


def read_verdict(text: str, standing: Collection[str]) -> MonitorVerdict | None:
    """A message of the topic `answer`; None if it is about none of these questions. Raises MessageError."""
    fields = read_json(text, "answer")
    name = fields.get("standing")
    if not isinstance(name, str) or name not in standing:
        return None
    what = f"answer of '{name}'"
    result, image = fields.get("result"), fields.get("image")
    if not isinstance(result, dict):
        finish = f"it ended with {fields.get('finish')!r:.40} {fields.get('detail')!r:.80}"
        raise MessageError(f"{what}: result: no task head's; {finish}")
    if not isinstance(image, dict):
        raise MessageError(f"{what}: image: it is about none")
    label: Any = result.get("label")
    score: Any = result.get("score")
    stamp_ns: Any = image.get("stamp_ns")
    age_ms: Any = image.get("age_end_ms")
    if not isinstance(label, str) or not 0 < len(label) <= MOST_CHARACTERS:
        raise MessageError(f"{what}: label: expected a text of 1 to {MOST_CHARACTERS} characters, got {label!r:.80}")
    if not is_number(score) or not 0 <= score <= 1:
        raise MessageError(f"{what}: score: expected a number from 0 to 1, got {score!r:.80}")
    if not is_int(stamp_ns) or abs(stamp_ns) >= 1 << 63:
        raise MessageError(f"{what}: image: stamp_ns: {stamp_ns!r:.80} is not a time")
    if not is_number(age_ms) or not 0 <= age_ms < 1e12:
        raise MessageError(f"{what}: image: age_end_ms: {age_ms!r:.80} is not an age")
    return MonitorVerdict(name, label, float(score), stamp_ns, round(age_ms * 1e6))
