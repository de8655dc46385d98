"""A request's fields become the engine's requests, one for each answer: messages and images a prompt, names of settings
the engine's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from auras_ros.checkpoints.vlm.chat import ChatOptions, VlmPrompt
from auras_ros.checkpoints.vlm.open import VlmCheckpoint
from auras_ros.engine.request import InvalidRequestError, VlmRequest
from auras_ros.panics import raising_panics
from auras_ros.serve.answer_form import read_grammar, token_field
from auras_ros.serve.conversation import chat_prompt, listed_prompts, nothing, text_prompt
from auras_ros.serve.fields import ChatFields, CommonFields, CompletionFields
from auras_ros.serve.options import ImageLimits
from auras_ros.serve.tool_use import ToolUse, read_tool_use

COMPLETION_TOKENS = 16  # where a completion says nothing, as OpenAI's
SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty",
)  # fmt: skip


@dataclass(frozen=True)
class TranslatedRequest:
    """What a request asks of the engine, and what it wants to see of the answers."""

    # One for each answer, `per_prompt` of them for each prompt.
    requests: tuple[VlmRequest, ...]
    per_prompt: int = 1
    # The text that each answer begins with, of `echo`.
    echoes: tuple[str, ...] = ()
    # Of the prompt alone: what the model adds is not wanted.
    is_prompt_only: bool = False
    tools: ToolUse | None = None

    @property
    def prompt_lengths(self) -> list[int]:
        """Tokens of the prompt of each answer."""
        return [len(request.prompt.ids) for request in self.requests]


class Translator:
    """Of one checkpoint. Safe in several threads."""

    def __init__(self, checkpoint: VlmCheckpoint, length: int, limits: ImageLimits, capacity: int) -> None:
        """length: tokens of prompt and answer together. capacity: answers that the engine takes at once."""
        self._checkpoint, self._length, self._limits, self._capacity = checkpoint, length, limits, capacity

    def requests(
        self, fields: CommonFields, adapter: str = "", check: Callable[[], None] = nothing
    ) -> TranslatedRequest:
        """adapter: that the request's model means. check: called before each image and before the texts; what it raises
        ends the work. Raises ValueError of several kinds; their texts begin with the field."""
        if fields.stream_options is not None and not fields.stream:
            raise InvalidRequestError("stream_options: without stream: true there is no stream")
        if fields.best_of is not None and fields.best_of != fields.n:
            raise InvalidRequestError(f"best_of: {fields.best_of}, expected n ({fields.n}): every answer is sent")
        if fields.prompt_logprobs is not None and fields.stream:
            raise InvalidRequestError("prompt_logprobs: are not sent in a stream")
        if isinstance(fields, ChatFields):
            return self._chat(fields, adapter, check)
        assert isinstance(fields, CompletionFields)
        return self._completion(fields, adapter)

    def _chat(self, fields: ChatFields, adapter: str, check: Callable[[], None]) -> TranslatedRequest:
        if fields.top_logprobs is not None and not fields.logprobs:
            raise InvalidRequestError("top_logprobs: needs logprobs: true")
        self._check_count(fields.n, 1)
        prompts = self._checkpoint.prompts
        tools = read_tool_use(fields, prompts)
        options = ChatOptions(
            [] if tools is None else tools.shown, fields.add_generation_prompt, fields.chat_template_kwargs
        )
        prompt = chat_prompt(prompts, fields.messages, self._limits, check, options)
        request = self._request(fields, prompt, adapter, tools, _same(fields))
        return TranslatedRequest(_several(request, fields.n), fields.n, tools=tools)

    def _completion(self, fields: CompletionFields, adapter: str) -> TranslatedRequest:
        if fields.echo and fields.logprobs is not None and fields.stream:
            raise InvalidRequestError("echo: the prompt's log probabilities are not sent in a stream")
        prompts = self._checkpoint.prompts
        texts_or_ids = listed_prompts(fields.prompt)
        self._check_count(fields.n, len(texts_or_ids))
        is_prompt_only = fields.echo and fields.max_tokens == 0
        requests, echoes = list[VlmRequest](), list[str]()
        for text_or_ids in texts_or_ids:
            prompt = text_prompt(prompts, text_or_ids)
            most = 1 if is_prompt_only else fields.max_tokens
            if most is None:
                most = max(min(COMPLETION_TOKENS, self._length - len(prompt.ids)), 1)
            requests += _several(self._request(fields, prompt, adapter, None, most), fields.n)
            if fields.echo:
                echoes += [self._text(text_or_ids)] * fields.n
        return TranslatedRequest(tuple(requests), fields.n, tuple(echoes), is_prompt_only)

    def _text(self, text_or_ids: str | list[int]) -> str:
        """Of a prompt."""
        if isinstance(text_or_ids, str):
            return text_or_ids
        with raising_panics():
            text: str = self._checkpoint.prompts.tokenizer.decode(text_or_ids, skip_special_tokens=False)
        return text

    def _check_count(self, answers: int, prompts: int) -> None:
        """Raises InvalidRequestError for more answers than the server ever makes at once."""
        if answers * prompts > self._capacity:
            field = "n" if answers > 1 else "prompt"
            raise InvalidRequestError(
                f"{field}: {answers * prompts} answers in one request, expected {self._capacity} at most"
            )

    def _request(
        self,
        fields: CommonFields,
        prompt: VlmPrompt,
        adapter: str,
        tools: ToolUse | None,
        max_tokens: int | None,
    ) -> VlmRequest:
        grammar = read_grammar(fields, tools)
        if fields.task_head and (field := token_field(fields, grammar)):
            raise InvalidRequestError(f"{field}: a task head's answer has no tokens (task_head)")
        scores = fields.prompt_logprobs
        if scores is None and isinstance(fields, CompletionFields) and fields.echo:
            scores = fields.logprobs
        return VlmRequest(
            prompt,
            sampling=replace(self._checkpoint.sampling, **_sampling(fields)),
            max_tokens=max_tokens,
            min_tokens=fields.min_tokens,
            stop=tuple(fields.stop),
            include_stop=fields.include_stop_str_in_output,
            stop_ids=frozenset(fields.stop_token_ids),
            ignore_eos=fields.ignore_eos,
            skip_special=fields.skip_special_tokens and not (tools is not None and tools.specials),
            seed=fields.seed,
            logit_bias=_biases(fields.logit_bias),
            logprobs=fields.alternatives,
            prompt_logprobs=scores,
            grammar=grammar,
            deadline_ms=fields.deadline_ms,
            priority=fields.priority,
            adapter=adapter,
            head=fields.task_head,
        )


def _sampling(fields: CommonFields) -> dict[str, Any]:
    """What the request says of it."""
    given = fields.given(*SAMPLING)
    if given.get("top_k") == -1:  # vLLM's word for all
        given["top_k"] = 0
    return given


def _several(request: VlmRequest, count: int) -> tuple[VlmRequest, ...]:
    """Answers to the same prompt, each with randomness of its own."""
    if request.seed is None:
        return (request,) * count
    return tuple(replace(request, seed=request.seed + index) for index in range(count))


def _biases(given: dict[str, float]) -> dict[int, float]:
    """By token. Raises InvalidRequestError."""
    biases = dict[int, float]()
    for name, bias in given.items():
        if not (name.isascii() and name.isdecimal()) or len(name) > 10:
            raise InvalidRequestError(f"logit_bias: '{name[:64]}' is not a token's number")
        biases[int(name)] = bias
    return biases


def _same(fields: ChatFields) -> int | None:
    """max_tokens under either of its names."""
    if fields.max_tokens is not None and fields.max_completion_tokens is not None:
        raise InvalidRequestError("max_completion_tokens: is max_tokens, which is there too")
    return fields.max_completion_tokens if fields.max_tokens is None else fields.max_tokens
