"""Messages and images of a request as a prompt of the model."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from auras_ros.checkpoints.tokenizer import PromptError, PromptLengthError
from auras_ros.checkpoints.vlm.chat import ONE_ANSWER, ChatOptions, Message, VlmPrompt, VlmPrompts
from auras_ros.checkpoints.vlm.pictures import ImagePixels, PictureError
from auras_ros.serve.image_urls import read_image, video_frames
from auras_ros.serve.message_fields import ChatMessage, ContentPart, GivenCall
from auras_ros.serve.options import ImageLimits

MOST_CHARACTERS = 1 << 20  # of a prompt's texts: tokenising takes time
ROLES = {"developer": "system"}  # by what the model calls them


def nothing() -> None: ...


def chat_prompt(
    prompts: VlmPrompts,
    messages: Sequence[ChatMessage],
    limits: ImageLimits,
    check: Callable[[], None] = nothing,
    options: ChatOptions = ONE_ANSWER,
) -> VlmPrompt:
    """check: called before each image and before the texts; what it raises ends the work. Raises PromptError or
    PictureError, naming the field."""
    reader = _ConversationReader(limits, check)
    conversation = [reader.message(f"messages[{place}]", message) for place, message in enumerate(messages)]
    check_characters("messages", reader.characters)
    check_characters("tools", len(json.dumps(options.tools)))
    check()
    try:
        return prompts.chat(conversation, reader.images, options)
    except PictureError as error:  # images[N]: …
        number, _, what = str(error).removeprefix("images[").partition("]: ")
        raise PictureError(f"{reader.fields[int(number)]}: {what}") from error
    except PromptLengthError as error:
        raise PromptLengthError(f"messages: {error}") from error


def text_prompt(prompts: VlmPrompts, prompt: str | list[int]) -> VlmPrompt:
    """Of a text or of token ids. Raises PromptError, naming the field."""
    try:
        if isinstance(prompt, str):
            check_characters("prompt", len(prompt))
            return prompts.plain(prompt)
        return prompts.tokens(prompt)
    except PromptError as error:
        if str(error).startswith("prompt: "):
            raise
        raise type(error)(f"prompt: {error}") from error


def listed_prompts(prompt: str | list[Any]) -> list[str | list[int]]:
    """A text, token ids, or a list of these. Raises PromptError."""
    if isinstance(prompt, str):
        return [prompt]
    if prompt and all(type(token) is int for token in prompt):
        return [prompt]
    for one in prompt:
        is_ids = isinstance(one, list) and bool(one) and all(type(token) is int for token in one)
        if not isinstance(one, str) and not is_ids:
            raise PromptError(
                "prompt: expected a text, a list of token ids, or a list of texts or of lists of token ids"
            )
    if not prompt:
        raise PromptError("prompt: expected a text, a list of token ids, or a list of texts or of lists of token ids")
    return list(prompt)


def check_characters(field: str, count: int) -> None:
    if count > MOST_CHARACTERS:
        raise PromptError(f"{field}: {count} characters, expected {MOST_CHARACTERS} at most")


class _ConversationReader:
    """Reads messages one after another, and counts what they have together."""

    def __init__(self, limits: ImageLimits, check: Callable[[], None]) -> None:
        self._limits, self._check = limits, check
        self.images: list[ImagePixels] = []
        self.fields: list[str] = []  # where each image is
        self.characters = 0
        self._called: dict[str, str] = {}  # names of tools, by the ids of their calls

    def message(self, where: str, message: ChatMessage) -> Message:
        """Raises PictureError or PromptError."""
        parts = list[dict[str, str]]()
        for index, part in enumerate(message.content):
            parts += self._part(f"{where}.content[{index}]", part)
        made: dict[str, Any] = {"role": ROLES.get(message.role, message.role), "content": parts}
        if message.tool_calls:
            made["content"] = [part for part in parts if part.get("text") != ""]
            made["tool_calls"] = [
                self._call(f"{where}.tool_calls[{index}].function.arguments", call)
                for index, call in enumerate(message.tool_calls)
            ]
        elif not parts:  # an assistant that said nothing
            made["content"] = [{"type": "text", "text": ""}]
        if message.tool_call_id is not None:
            made["tool_call_id"] = message.tool_call_id
            if (name := self._called.get(message.tool_call_id)) is not None:
                made["name"] = name
        return made

    def _part(self, where: str, part: ContentPart) -> list[dict[str, str]]:
        if part.image_url is not None:
            self._add_image(f"{where}.image_url", part.image_url.url)
            return [{"type": "image"}]
        if part.video_url is not None:
            field = f"{where}.video_url"
            try:
                frames = video_frames(part.video_url.url)
            except PictureError as error:
                raise PictureError(f"{field}: {error}") from error
            for frame in frames:
                self._add_image(field, frame)
            return [{"type": "image"}] * len(frames)
        text = part.text if part.text is not None else part.refusal or ""
        self.characters += len(text)
        return [{"type": "text", "text": text}]

    def _add_image(self, field: str, url: str) -> None:
        if len(self.images) == self._limits.images:
            raise PictureError(f"{field}: more than {self._limits.images} images in one request")
        self._check()
        try:
            self.images.append(read_image(url, self._limits.pixels))
        except PictureError as error:
            raise PictureError(f"{field}: {error}") from error
        self.fields.append(field)

    def _call(self, where: str, call: GivenCall) -> dict[str, Any]:
        """As templates take it: the arguments are an object."""
        self.characters += len(call.function.arguments)
        try:
            arguments = json.loads(call.function.arguments or "{}")
        except (ValueError, RecursionError) as error:
            raise PromptError(f"{where}: not JSON: {error}") from error
        if not isinstance(arguments, dict):
            raise PromptError(f"{where}: not a JSON object")
        self._called[call.id] = call.function.name
        function = {"name": call.function.name, "arguments": arguments}
        return {"id": call.id, "type": "function", "function": function}
