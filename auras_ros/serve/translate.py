"""A request's fields become the engine's request: messages and images a prompt, names of settings the engine's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from auras_ros.checkpoints.tokenizer import PromptError
from auras_ros.checkpoints.vlm.chat import Message, VlmPrompt, VlmPrompts
from auras_ros.checkpoints.vlm.open import VlmCheckpoint
from auras_ros.checkpoints.vlm.pictures import ImagePixels, PictureError
from auras_ros.engine.request import Grammar, InvalidRequestError, VlmRequest
from auras_ros.serve.fields import ChatFields, ChatMessage, CommonFields, CompletionFields
from auras_ros.serve.image_urls import read_image
from auras_ros.serve.options import ImageLimits

MOST_CHARACTERS = 1 << 20  # of a prompt's texts: tokenising takes time
COMPLETION_TOKENS = 16  # where a completion says nothing, as OpenAI's
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def _nothing() -> None: ...


class Translator:
    """Of one checkpoint. Safe in several threads."""

    def __init__(self, checkpoint: VlmCheckpoint, length: int, limits: ImageLimits) -> None:
        """length: tokens of prompt and answer together."""
        self._checkpoint, self._length, self._limits = checkpoint, length, limits

    def request(self, fields: CommonFields, adapter: str = "", check: Callable[[], None] = _nothing) -> VlmRequest:
        """adapter: that the request's model means. check: called before each image and before the texts; what it raises
        ends the work. Raises ValueError of several kinds; their texts begin with the field."""
        if fields.task_head and (field := token_field(fields)):
            raise InvalidRequestError(f"{field}: a task head's answer has no tokens (task_head)")
        if fields.stream_options is not None and not fields.stream:
            raise InvalidRequestError("stream_options: without stream: true there is no stream")
        if isinstance(fields, ChatFields):
            if fields.top_logprobs is not None and not fields.logprobs:
                raise InvalidRequestError("top_logprobs: needs logprobs: true")
            prompt = chat_prompt(self._checkpoint.prompts, fields.messages, self._limits, check)
            most = _same(fields)
        else:
            assert isinstance(fields, CompletionFields)
            prompt = _text_prompt(self._checkpoint.prompts, fields.prompt)
            most = fields.max_tokens
            if most is None:
                most = max(min(COMPLETION_TOKENS, self._length - len(prompt.ids)), 1)
        given = fields.given(*SAMPLING)
        if given.get("top_k") == -1:  # vLLM's word for all
            given["top_k"] = 0
        return VlmRequest(
            prompt,
            sampling=replace(self._checkpoint.sampling, **given),
            max_tokens=most,
            stop=tuple(fields.stop),
            stop_ids=frozenset(fields.stop_token_ids),
            ignore_eos=fields.ignore_eos,
            seed=fields.seed,
            logprobs=fields.alternatives,
            grammar=_grammar(fields),
            deadline_ms=fields.deadline_ms,
            priority=fields.priority,
            adapter=adapter,
            head=fields.task_head,
        )


def chat_prompt(
    prompts: VlmPrompts,
    messages: Sequence[ChatMessage],
    limits: ImageLimits,
    check: Callable[[], None] = _nothing,
) -> VlmPrompt:
    """Raises PromptError or PictureError, and what `check` raises."""
    conversation, images, places, characters = list[Message](), list[ImagePixels](), list[str](), 0
    for place, message in enumerate(messages):
        parts = list[dict[str, str]]()
        for index, part in enumerate(message.content):
            if part.image_url is None:
                characters += len(part.text or "")
                parts.append({"type": "text", "text": part.text or ""})
                continue
            where = f"messages[{place}].content[{index}].image_url"
            if len(images) == limits.images:
                raise PictureError(f"{where}: more than {limits.images} images in one request")
            check()
            try:
                images.append(read_image(part.image_url.url, limits.pixels))
            except PictureError as error:
                raise PictureError(f"{where}: {error}") from error
            places.append(where)
            parts.append({"type": "image"})
        conversation.append({"role": message.role, "content": parts})
    _check_characters("messages", characters)
    check()
    try:
        return prompts.chat(conversation, images)
    except PictureError as error:  # images[N]: …
        number, _, what = str(error).removeprefix("images[").partition("]: ")
        raise PictureError(f"{places[int(number)]}: {what}") from error


def _text_prompt(prompts: VlmPrompts, prompt: str | list[object]) -> VlmPrompt:
    """Of a text, of token ids, or of a list with one of these. Raises PromptError."""
    only = prompt[0] if isinstance(prompt, list) and len(prompt) == 1 else prompt
    text_or_ids = prompt if isinstance(only, int) else only
    try:
        if isinstance(text_or_ids, str):
            _check_characters("prompt", len(text_or_ids))
            return prompts.plain(text_or_ids)
        ids = [each for each in text_or_ids if type(each) is int] if isinstance(text_or_ids, list) else []
        if not ids or len(ids) != len(text_or_ids):  # type: ignore[arg-type]
            raise PromptError("expected a text, a list of token ids, or a list of one of these")
        return prompts.tokens(ids)
    except PromptError as error:
        raise PromptError(str(error) if str(error).startswith("prompt: ") else f"prompt: {error}") from error


def _check_characters(field: str, count: int) -> None:
    if count > MOST_CHARACTERS:
        raise PromptError(f"{field}: {count} characters, expected {MOST_CHARACTERS} at most")


def _same(fields: ChatFields) -> int | None:
    """max_tokens under either of its names."""
    if fields.max_tokens is not None and fields.max_completion_tokens is not None:
        raise InvalidRequestError("max_completion_tokens: is max_tokens, which is there too")
    return fields.max_completion_tokens if fields.max_tokens is None else fields.max_tokens


def grammar_field(fields: CommonFields) -> str:
    """Which field says what form the answer has."""
    return next((name for name, _ in _grammars(fields)), "")


def token_field(fields: CommonFields) -> str:
    """A field that only an answer of tokens can keep to: its form, or log probabilities; empty if there is none."""
    return grammar_field(fields) or ("logprobs" if fields.alternatives is not None else "")


def _grammar(fields: CommonFields) -> Grammar | None:
    """Raises InvalidRequestError if an answer is asked for in two forms."""
    found = _grammars(fields)
    if len(found) > 1:
        raise InvalidRequestError(f"{found[1][0]}: the answer's form is given by {found[0][0]} too")
    return found[0][1] if found else None


def _grammars(fields: CommonFields) -> list[tuple[str, Grammar]]:
    """With the field that each comes from."""
    found = list[tuple[str, Grammar]]()
    form, outputs = fields.response_format, fields.structured_outputs
    if form is not None and form.type == "json_object":
        found.append(("response_format", Grammar("json_schema", '{"type": "object"}')))
    if form is not None and form.json_schema is not None:
        found.append(("response_format", Grammar("json_schema", json.dumps(form.json_schema.schema_))))
    if outputs is not None and outputs.json_ is not None:
        found.append(("structured_outputs", Grammar("json_schema", json.dumps(outputs.json_))))
    if outputs is not None and outputs.regex is not None:
        found.append(("structured_outputs", Grammar("regex", outputs.regex)))
    if fields.guided_regex is not None:
        found.append(("guided_regex", Grammar("regex", fields.guided_regex)))
    return found
