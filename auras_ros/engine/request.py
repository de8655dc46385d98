"""What is asked of the engine, and what it answers. Frozen: what changes meanwhile is in `active`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch

from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.lora.heads import HeadResult
from auras_ros.models.sampler import Sampling

FinishReason = Literal["stop", "length", "cancelled", "deadline", "error"]
GREEDY = Sampling(temperature=0.0)
GrammarKind = Literal["json_schema", "regex", "choice", "grammar", "tools"]
GRAMMARS: tuple[GrammarKind, ...] = ("json_schema", "regex", "choice", "grammar", "tools")
MOST_DEADLINE_MS = 10**10
MOST_STOPS, MOST_STOP_CHARACTERS, MOST_LOGPROBS, MOST_TOKENS = 16, 256, 20, 1 << 20
MOST_BIASES, MOST_BIAS = 1024, 100.0


class EngineFullError(RuntimeError):
    """The engine does not take a request now; the text has the reason. Later it might."""


class EngineClosedError(RuntimeError):
    """The engine takes no more requests; the text has the reason."""


class InvalidRequestError(ValueError):
    """A request that the engine could never serve; the text names the field."""


class ContextLengthError(InvalidRequestError):
    """Prompt and answer together are longer than the engine's length."""


@dataclass(frozen=True)
class Grammar:
    """What the answer must be.

    The text is, by kind: a JSON schema; a regular expression; a JSON list of texts, one of which is the answer; a
    grammar in Lark's or GBNF's notation; calls of tools, as `engine.tool_grammar` writes them.
    """

    kind: GrammarKind
    text: str
    # Regular expression of the white space that JSON may have between its parts; empty: none.
    whitespace: str = ""
    # A child process has compiled this text within its limits, for the same tokenizer.
    is_checked: bool = False


@dataclass(frozen=True, eq=False)
class VlmRequest:
    """Raises InvalidRequestError, naming the field."""

    prompt: VlmPrompt
    sampling: Sampling = GREEDY
    # Tokens of the answer, at most; None: what the model's length leaves.
    max_tokens: int | None = None
    # Before so many tokens neither a stop text nor a stop token ends the answer. A grammar's end does.
    min_tokens: int = 0
    # Texts that end the answer.
    stop: tuple[str, ...] = ()
    # Whether the answer contains the stop text or stop token that ended it.
    include_stop: bool = False
    # Tokens that end the answer beside the model's own.
    stop_ids: frozenset[int] = frozenset()
    # The model's own stop tokens do not end the answer.
    ignore_eos: bool = False
    # Whether the text leaves special tokens out.
    skip_special: bool = True
    # Of sampling; None: another one each time.
    seed: int | None = None
    # Added to the scores of these tokens.
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    # With how many alternatives each token's log probability is given; None: without log probabilities.
    logprobs: int | None = None
    # The same for the tokens of the prompt, which is then computed without blocks of earlier prompts.
    prompt_logprobs: int | None = None
    grammar: Grammar | None = None
    # After this time from its arrival the answer ends with what there is.
    deadline_ms: float | None = None
    # Requests with smaller numbers come first.
    priority: int = 0
    # Name of the adapter that changes the model; empty: the model itself.
    adapter: str = ""
    # Whether the adapter's task head gives the answer, at once, instead of tokens; None: if it has one.
    head: bool | None = None

    def __post_init__(self) -> None:
        self._check_sampling()
        self._check_endings()
        self._check_logprobs("logprobs", self.logprobs)
        self._check_logprobs("prompt_logprobs", self.prompt_logprobs)
        if self.grammar is not None and not (
            isinstance(self.grammar, Grammar) and self.grammar.kind in GRAMMARS and isinstance(self.grammar.text, str)
        ):
            raise InvalidRequestError(f"grammar: not a text of {' or '.join(GRAMMARS)}")
        if not isinstance(self.adapter, str):
            raise InvalidRequestError("adapter: not a text")
        if self.head not in (None, False, True):
            raise InvalidRequestError("head: not true or false")
        if not _whole(self.priority):
            raise InvalidRequestError("priority: not a whole number")

    def _check_sampling(self) -> None:
        if not isinstance(self.sampling, Sampling):
            raise InvalidRequestError("sampling: not a Sampling")
        if self.seed is not None and not _whole(self.seed):
            raise InvalidRequestError("seed: not a whole number")
        if not isinstance(self.logit_bias, Mapping) or len(self.logit_bias) > MOST_BIASES:
            raise InvalidRequestError(f"logit_bias: not a mapping of {MOST_BIASES} tokens at most")
        for token, bias in self.logit_bias.items():
            is_number = isinstance(bias, int | float) and not isinstance(bias, bool)
            if not _whole(token) or not is_number or not -MOST_BIAS <= bias <= MOST_BIAS:
                raise InvalidRequestError(
                    f"logit_bias: {token!r}: {bias!r}: expected a token's number and a number from {-MOST_BIAS:g} to "
                    f"{MOST_BIAS:g}"
                )

    def _check_logprobs(self, name: str, count: object) -> None:
        if count is not None and not (_whole(count) and 0 <= count <= MOST_LOGPROBS):  # type: ignore[operator]
            raise InvalidRequestError(f"{name}: {count!r} is not a whole number from 0 to {MOST_LOGPROBS}")

    def _check_endings(self) -> None:
        if self.max_tokens is not None and not (_whole(self.max_tokens) and 1 <= self.max_tokens <= MOST_TOKENS):
            raise InvalidRequestError(f"max_tokens: {self.max_tokens!r} is not a whole number from 1 to {MOST_TOKENS}")
        if not _whole(self.min_tokens) or not 0 <= self.min_tokens <= (self.max_tokens or MOST_TOKENS):
            most = "max_tokens" if self.max_tokens else MOST_TOKENS
            raise InvalidRequestError(f"min_tokens: {self.min_tokens!r} is not a whole number from 0 to {most}")
        if not isinstance(self.stop, tuple):
            raise InvalidRequestError("stop: not a tuple of texts")
        if len(self.stop) > MOST_STOPS:
            raise InvalidRequestError(f"stop: {len(self.stop)} texts, expected {MOST_STOPS} at most")
        for text in self.stop:
            if not isinstance(text, str) or not 0 < len(text) <= MOST_STOP_CHARACTERS:
                raise InvalidRequestError(f"stop: not a text of 1 to {MOST_STOP_CHARACTERS} characters")
        if not isinstance(self.stop_ids, frozenset) or not all(_whole(each) for each in self.stop_ids):
            raise InvalidRequestError("stop_ids: not a frozenset of whole numbers")
        deadline = self.deadline_ms
        if deadline is not None and (
            isinstance(deadline, bool)
            or not isinstance(deadline, int | float)
            or not 0 < deadline <= MOST_DEADLINE_MS  # later ones are more than a thread can wait for
        ):
            raise InvalidRequestError(f"deadline_ms: not a number above 0, up to {MOST_DEADLINE_MS}")


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
    """A whole answer."""

    text: str
    tokens: tuple[AnswerToken, ...]
    finish: FinishReason
    # What went wrong, if something did.
    detail: str
    usage: RequestUsage
    # A task head's; then there are no tokens.
    result: HeadResult | None = None
    # The stop text or stop token of the request that ended the answer; None: something else did.
    stop_reason: int | str | None = None
    # The prompt's tokens with their log probabilities, if they were asked for; the first one has none.
    prompt_tokens: tuple[AnswerToken, ...] = ()

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
