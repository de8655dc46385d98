"""What an answer must be. Pure: it is given what was asked and what came, and says what is wrong."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from auras_ros.live.soak_vlm.asks import GivenAnswer, KnownAsk, Trial
from auras_ros.live.soak_vlm.client import WireAnswer

NEAR = 1e-4  # between log probabilities of two tokens: rounding may swap them
FULL = 429


def wrong(trial: Trial, came: WireAnswer) -> str:
    """What is wrong with it; empty: nothing."""
    if trial.hostile is not None:
        status, text = came.status, refusal_text(came)
        if status == trial.hostile.status and trial.hostile.named in text:
            return ""
        return f"expected status {trial.hostile.status} that names {trial.hostile.named!r}, got {status} {text[:200]!r}"
    assert trial.ask is not None
    if came.left and came.status == 0:
        return ""
    return wrong_answer(trial.ask, came, trial.streamed)


def wrong_answer(ask: KnownAsk, came: WireAnswer, streamed: bool) -> str:
    """Of a client that went, or after a deadline, the beginning of the answer is right too."""
    assert ask.answer is not None
    if came.status != 200:
        return f"status {came.status}: {came.body[:200]!r}"
    try:
        given = read_given(came.body, streamed, whole=not came.left)
    except (ValueError, LookupError, TypeError) as error:
        return f"no answer: {type(error).__name__}: {error} in {came.body[-200:]!r}"
    if given.late or (came.left and streamed):
        begun = given.text.rstrip("\ufffd")  # bytes of a letter that was not finished
        return "" if ask.answer.text.startswith(begun) else f"{begun!r} does not begin {ask.answer.text!r}"
    if not came.left and not came.whole:
        return "the answer was cut off"
    return "" if came.left or given == ask.answer else f"{given}, alone {ask.answer}"


def refusal_text(came: WireAnswer) -> str:
    """OpenAI's object, or plain text of what is no HTTP."""
    try:
        return str(json.loads(came.body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return came.body.decode(errors="replace") if came.status == 400 and b"HTTP" in came.body[:100] else ""


def read_given(body: bytes, streamed: bool, whole: bool = True) -> GivenAnswer:
    """whole: whether it must come to its end. Raises ValueError, LookupError or TypeError."""
    if not streamed:
        return _joined([json.loads(body)]) if whole else GivenAnswer("", None, None, False)
    events = body.split(b"\n\n")[:-1]
    if whole and (not events or events.pop() != b"data: [DONE]"):
        raise ValueError("the stream does not end with [DONE]")
    return _joined([json.loads(event.removeprefix(b"data: ")) for event in events if event != b"data: [DONE]"])


def _joined(parts: list[dict[str, Any]]) -> GivenAnswer:
    text, finish, counts, late = "", None, None, False
    for part in parts:
        for choice in part["choices"]:
            said = choice.get("message") or choice.get("delta")
            text += (choice.get("text") if said is None else said.get("content")) or ""
            finish, late = choice.get("finish_reason") or finish, late or choice.get("finish_detail") == "deadline"
        if used := part.get("usage"):
            counts = (used["prompt_tokens"], used["completion_tokens"])
    return GivenAnswer(text, finish, counts, late)


def nearly_equal(body: bytes) -> bool:
    """Whether two tokens were nearly as likely, anywhere in an answer with two log probabilities for each."""
    given = json.loads(body)["choices"][0]["logprobs"]
    if "content" in given:
        rows = [[top["logprob"] for top in each["top_logprobs"]] for each in given["content"]]
    else:
        rows = [list(each.values()) for each in given["top_logprobs"]]
    gaps = [first - second for first, second, *_ in (sorted(row, reverse=True) for row in rows if len(row) > 1)]
    return min(gaps, default=1.0) < NEAR


class BrokenPromises:
    """Counted by kind; the first ones in words, with what repeats them."""

    MOST = 50

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.texts: list[str] = []
        self.requests: list[dict[str, Any]] = []

    def add(self, kind: str, text: str, trial: Trial | None = None) -> None:
        self.kinds[kind] += 1
        if len(self.texts) == self.MOST:
            return
        self.texts.append(f"{kind}: " + (f"request {trial.number} ({trial.kind}): {text}" if trial else text))
        if trial is not None:
            going = None if trial.leaving is None else vars(trial.leaving)
            sent = trial.raw.decode("latin-1")
            self.requests.append({"number": trial.number, "kind": trial.kind, "leaving": going, "bytes_latin1": sent})
