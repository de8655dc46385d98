"""What is asked of the engine, and what it answers. Frozen: what changes meanwhile is in `active`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.lora.heads import HeadResult
from auras_ros.models.sampler import Sampling

FinishReason = Literal["stop", "length", "cancelled", "deadline", "error"]
GREEDY = Sampling(temperature=0.0)
GRAMMARS = ("json_schema", "regex")
MOST_DEADLINE_MS = 10**10
MOST_STOPS, MOST_STOP_CHARACTERS, MOST_LOGPROBS, MOST_TOKENS = 16, 256, 20, 1 << 20


class EngineFullError(RuntimeError):
    """The engine does not take a request now; the text has the reason. Later it might."""


class EngineClosedError(RuntimeError):
    """The engine takes no more requests; the text has the reason."""


class InvalidRequestError(ValueError):
    """A request that the engine could never serve; the text names the field."""


@dataclass(frozen=True)
class Grammar:
    """What the answer must be: text that a JSON schema or a regular expression describes."""

    kind: Literal["json_schema", "regex"]
    text: str
    # A child process has compiled this text within its limits, for the same tokenizer.
    is_checked: bool = False


@dataclass(frozen=True, eq=False)
class VlmRequest:
    """max_tokens: of the answer; None is what the model's length leaves. stop: texts that end the answer, which does
    not contain them. stop_ids: tokens that do so beside the model's own; ignore_eos: the model's own do not. seed: of
    sampling; None is another one each time. logprobs: how many alternatives each token is given with; None is without
    log probabilities. adapter: the name of one that changes the model; empty: the model itself. head: whether its task
    head gives the answer, at once, instead of tokens; None: if it has one. deadline_ms: after this time from its
    arrival the answer ends with what there is. priority: smaller ones first. Raises InvalidRequestError, naming the
    field."""

    prompt: VlmPrompt
    sampling: Sampling = GREEDY
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None
    grammar: Grammar | None = None
    deadline_ms: float | None = None
    priority: int = 0
    adapter: str = ""
    head: bool | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None and not (_whole(self.max_tokens) and 1 <= self.max_tokens <= MOST_TOKENS):
            raise InvalidRequestError(f"max_tokens: {self.max_tokens!r} is not a whole number from 1 to {MOST_TOKENS}")
        if not isinstance(self.sampling, Sampling):
            raise InvalidRequestError("sampling: not a Sampling")
        if not isinstance(self.stop, tuple):
            raise InvalidRequestError("stop: not a tuple of texts")
        if len(self.stop) > MOST_STOPS:
            raise InvalidRequestError(f"stop: {len(self.stop)} texts, expected {MOST_STOPS} at most")
        for text in self.stop:
            if not isinstance(text, str) or not 0 < len(text) <= MOST_STOP_CHARACTERS:
                raise InvalidRequestError(f"stop: not a text of 1 to {MOST_STOP_CHARACTERS} characters")
        if not isinstance(self.stop_ids, frozenset) or not all(_whole(each) for each in self.stop_ids):
            raise InvalidRequestError("stop_ids: not a frozenset of whole numbers")
        if self.seed is not None and not _whole(self.seed):
            raise InvalidRequestError("seed: not a whole number")
        if self.logprobs is not None and not (_whole(self.logprobs) and 0 <= self.logprobs <= MOST_LOGPROBS):
            raise InvalidRequestError(f"logprobs: {self.logprobs!r} is not a whole number from 0 to {MOST_LOGPROBS}")
        if self.grammar is not None and not (
            isinstance(self.grammar, Grammar) and self.grammar.kind in GRAMMARS and isinstance(self.grammar.text, str)
        ):
            raise InvalidRequestError(f"grammar: not a text of {' or '.join(GRAMMARS)}")
        deadline = self.deadline_ms
        if deadline is not None and (
            isinstance(deadline, bool)
            or not isinstance(deadline, int | float)
            or not 0 < deadline <= MOST_DEADLINE_MS  # later ones are more than a thread can wait for
        ):
            raise InvalidRequestError(f"deadline_ms: not a number above 0, up to {MOST_DEADLINE_MS}")
        if not isinstance(self.adapter, str):
            raise InvalidRequestError("adapter: not a text")
        if self.head not in (None, False, True):
            raise InvalidRequestError("head: not true or false")
        if not _whole(self.priority):
            raise InvalidRequestError("priority: not a whole number")


class AnswerToken(NamedTuple):
    """logprob: of the scores as the model gave them, before settings and grammar. top: (token, log probability) of the
    likeliest, as many as were asked for. Both empty unless asked for."""

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@dataclass
class Timings:
    """Times of one request by the engine's clock, ns; 0: not reached. vision, prefill, decode: spent in forwards of the
    stage, which other requests may have shared."""

    arrived_ns: int = 0
    started_ns: int = 0
    first_token_ns: int = 0
    ended_ns: int = 0
    vision_ns: int = 0
    prefill_ns: int = 0
    decode_ns: int = 0

    def spend(self, stage: str, taken_ns: int) -> None:
        name = f"{stage}_ns"
        setattr(self, name, getattr(self, name) + taken_ns)


@dataclass(frozen=True)
class RequestUsage:
    """cached_tokens: of the prompt, whose keys and values were there already. preempted: how often the request had to
    give its blocks back and was computed again."""

    prompt_tokens: int
    cached_tokens: int
    preempted: int
    timings: Timings


@dataclass(frozen=True)
class Answer:
    """A whole answer. detail: what went wrong, if something did. result: a task head's; then there are no tokens."""

    text: str
    tokens: tuple[AnswerToken, ...]
    finish: FinishReason
    detail: str
    usage: RequestUsage
    result: HeadResult | None = None

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]


@dataclass(frozen=True)
class Delta:
    """A piece of an answer. text: may be empty while it could still become a stop text or part of a character. The last
    piece has why the answer ended, what went wrong if something did, and the whole answer."""

    text: str
    tokens: tuple[AnswerToken, ...] = ()
    finish: FinishReason | None = None
    detail: str = ""
    answer: Answer | None = None


def check_prompt(prompt: VlmPrompt, vocabulary: int) -> None:
    """Raises InvalidRequestError for one that would fail within a batch of others."""
    ids, at = prompt.ids, prompt.at
    if ids.dim() != 1 or ids.dtype != torch.int64 or len(ids) == 0:
        raise InvalidRequestError("prompt: its ids are not one row of whole numbers")
    if not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary:
        raise InvalidRequestError(f"prompt: a token is not one of {vocabulary}")
    wanted = sum(image.tokens for image in prompt.images)
    if at.shape != (wanted,) or (wanted and not (int(at[0]) >= 0 and int(at[-1]) < len(ids))):
        raise InvalidRequestError(f"prompt: {len(at)} image tokens, but the images have {wanted} embeddings")
    if not bool((at.diff() > 0).all()):
        raise InvalidRequestError("prompt: the places of its image tokens do not rise")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
