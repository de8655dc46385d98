"""A conversation or a text, and its images, as the token ids that a model was trained with.

The folder's chat template is a Jinja template: it is rendered in Jinja's sandbox, with the functions that transformers
gives one, in a process with limits of memory and time. What is said in a conversation has no special tokens: it cannot
stand for an image, nor for another's words.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.json_file import read_json
from auras_ros.checkpoints.tokenizer import TOKENIZER, PromptError, PromptLengthError, encode, read_tokenizer
from auras_ros.checkpoints.vlm.pictures import ImagePixels, ImageProcessor, PictureError, PreparedImage
from auras_ros.checkpoints.vlm.template_process import ChatTemplateError, TemplateProcess
from auras_ros.checkpoints.vlm.tool_form import HERMES, ToolForm, read_tool_form, write_tools
from auras_ros.values import shown

TEMPLATE, TEMPLATE_JSON, SETTINGS = "chat_template.jinja", "chat_template.json", "tokenizer_config.json"
TEMPLATE_BYTES = 1 << 20
ROLES = ("system", "user", "assistant", "tool")
Message = Mapping[str, Any]
"""role: of ROLES. content: a text, or a list of parts: {"type": "text", "text": …} or {"type": "image"}. tool_calls: of
the assistant, as transformers gives them to templates: `id`, `type` and `function` with `name` and `arguments`, which
are an object. tool_call_id: of a tool's result."""
RESERVED = ("messages", "tools", "add_generation_prompt")  # what nobody else may set in a template


@dataclass(frozen=True)
class ChatOptions:
    """What a conversation's prompt has beside its messages."""

    # That the model may call, as OpenAI describes them.
    tools: Sequence[Mapping[str, Any]] = ()
    # Whether the prompt ends where the assistant's turn begins.
    add_generation_prompt: bool = True
    # Further names of the template.
    variables: Mapping[str, Any] = field(default_factory=dict)


ONE_ANSWER = ChatOptions()


@dataclass(frozen=True, eq=False)
class VlmPrompt:
    """ids: int64 [T]. images: in the order in which they stand in the prompt. at: int64, the positions of their tokens
    in the sequence."""

    ids: Tensor
    images: tuple[PreparedImage, ...]
    at: Tensor


class VlmPrompts:
    """Makes a folder's prompts. Safe to call from several threads; raises CheckpointError when it is made."""

    def __init__(
        self,
        folder: Path,
        processor: ImageProcessor,
        image_token: str,
        image_token_id: int,
        length: int,
        vocabulary: int,
    ) -> None:
        path = folder / TOKENIZER
        try:
            self.tokenizer, self._tokenizer_path = read_tokenizer(path), path
        except PromptError as error:
            raise CheckpointError(str(error)) from error
        if (found := self.tokenizer.token_to_id(image_token)) != image_token_id:
            raise CheckpointError(
                f"{path}: token '{image_token}' has id {found}, but config.json says {image_token_id}"
            )
        if (last := max(self.tokenizer.get_vocab().values())) >= vocabulary:
            raise CheckpointError(f"{path}: has a token {last}, but the model {vocabulary} tokens")
        added = self.tokenizer.get_added_tokens_decoder().values()
        self._controls = [token.content for token in added if token.special]
        self._processor, self._image_token, self._image_token_id = processor, image_token, image_token_id
        self._length, self._vocabulary = length, vocabulary
        self._special = _special_tokens(folder)
        self._template = _template(folder)
        self._tool_form: tuple[ToolForm, bool] | None = None
        self._reading_form = threading.Lock()

    def chat(
        self, messages: Sequence[Message], images: Sequence[ImagePixels] = (), options: ChatOptions = ONE_ANSWER
    ) -> VlmPrompt:
        """The prompt of a conversation, up to where the assistant answers. images: uint8 RGB [h, w, 3], one for each
        image part, in their order. Raises PromptError or PictureError."""
        conversation = [self._checked(place, message) for place, message in enumerate(messages)]
        if not conversation:
            raise PromptError("messages: there are none")
        given = sum(part["type"] == "image" for message in conversation for part in message["content"])
        if given != len(images):
            raise PromptError(f"messages: {given} image parts, but {len(images)} images")
        self._check_values("tools", options.tools)
        self._check_values("chat_template_kwargs", options.variables)
        for name in RESERVED:
            if name in options.variables:
                raise PromptError(f"chat_template_kwargs: {name} is a field of its own")
        tools: Sequence[Mapping[str, Any]] | None = options.tools or None
        if tools or any(message["role"] == "tool" or "tool_calls" in message for message in conversation):
            _, is_own = self._read_tool_form()
            if not is_own:
                conversation, tools = [dict(each) for each in write_tools(conversation, tools)], None
        text = self._render(conversation, tools, options.add_generation_prompt, options.variables)
        return self._prompt(text, images)

    @property
    def tool_form(self) -> ToolForm:
        """How the model writes calls of tools. Raises PromptError for a template whose form cannot be read."""
        return self._read_tool_form()[0]

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Ids of the special tokens, by their texts: no conversation has them as text."""
        return {text: self.tokenizer.token_to_id(text) for text in self._controls}

    def _read_tool_form(self) -> tuple[ToolForm, bool]:
        """With whether it is the template's own."""
        with self._reading_form:
            if self._tool_form is None:
                own = read_tool_form(lambda messages, tools, begins: self._render(messages, tools, begins, {}))
                self._tool_form = (HERMES if own is None else own, own is not None)
            return self._tool_form

    def _render(
        self,
        conversation: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        variables: Mapping[str, Any],
    ) -> str:
        if self._template is None:
            raise PromptError(f"the folder has no chat template ({TEMPLATE}); ask with a plain text")
        try:
            return self._template.render(
                {
                    "documents": None,
                    **self._special,
                    **variables,
                    "messages": list(conversation),
                    "add_generation_prompt": add_generation_prompt,
                    "tools": None if tools is None else list(tools),
                }
            )
        except ChatTemplateError as error:
            raise PromptError(f"messages: the folder's chat template does not take them: {error}") from error

    def end_template(self) -> None:
        """End the process that renders the chat template; the next conversation starts another one."""
        if self._template is not None:
            self._template.close()

    def plain(self, text: str, images: Sequence[ImagePixels] = ()) -> VlmPrompt:
        """The prompt that is this text; each image token in it stands for the next image. Raises PromptError or
        PictureError."""
        return self._prompt(text, images)

    def image(self, image: ImagePixels) -> PreparedImage:
        """An image as the vision stage takes it. Raises PictureError."""
        return self._processor(image)

    def tokens(self, ids: Sequence[int]) -> VlmPrompt:
        """The prompt that is these tokens, none of which stands for an image. Raises PromptError."""
        self._check_length(len(ids))
        for place, each in enumerate(ids):
            if not 0 <= each < self._vocabulary:
                raise PromptError(f"the prompt's token {place}, {shown(each)}, is not one of {self._vocabulary}")
            if each == self._image_token_id:
                raise PromptError(f"the prompt's token {place}, {each}, stands for an image, but there is none")
        return VlmPrompt(torch.tensor(ids, dtype=torch.int64), (), torch.empty(0, dtype=torch.int64))

    def _checked(self, place: int, message: Message) -> dict[str, Any]:
        """The message with a list of parts as content."""
        where = f"messages[{place}]"
        if not isinstance(message, Mapping) or message.get("role") not in ROLES:
            raise PromptError(f"{where}.role: expected one of {', '.join(ROLES)}")
        content, calls = message.get("content"), message.get("tool_calls")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if parts is None and message["role"] == "assistant":  # it only called tools, or said nothing
            parts = [] if calls else [{"type": "text", "text": ""}]
        if not isinstance(parts, Sequence) or not (parts or calls):
            raise PromptError(f"{where}.content: expected a text or a list of parts")
        for index, part in enumerate(parts):
            kind = part.get("type") if isinstance(part, Mapping) else None
            if kind not in ("text", "image"):
                raise PromptError(f"{where}.content[{index}].type: {shown(kind)}: expected text or image")
            if kind == "text" and not isinstance(part.get("text"), str):
                raise PromptError(f"{where}.content[{index}].text: {shown(part.get('text'))} is not a text")
            if kind == "text":
                self._check_text(f"{where}.content[{index}].text", part["text"])
        checked = {"role": message["role"], "content": [dict(part) for part in parts]}
        if calls:
            self._check_values(f"{where}.tool_calls", calls)
            checked["tool_calls"] = [dict(call) for call in calls]
        for name in ("tool_call_id", "name"):
            if isinstance(text := message.get(name), str):
                self._check_text(f"{where}.{name}", text)
                checked[name] = text
        return checked

    def _check_text(self, where: str, text: str) -> None:
        """Raises PromptError for a text with a special token."""
        for control in self._controls:
            if control in text:
                raise PromptError(f"{where}: has the special token '{control}'")

    def _check_values(self, where: str, values: object) -> None:
        """The same for every text in a value of JSON."""
        for text in _texts(values):
            self._check_text(where, text)

    def _check_length(self, tokens: int) -> None:
        if tokens == 0:
            raise PromptError(f"the prompt has 0 tokens, expected 1 to {self._length}")
        if tokens > self._length:
            raise PromptLengthError(
                f"the prompt has {tokens} tokens, but this model's maximum context length is {self._length} tokens"
            )

    def _prompt(self, text: str, images: Sequence[ImagePixels]) -> VlmPrompt:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise PromptError(f"the prompt is not a text: {error}") from error
        pieces = text.split(self._image_token)
        if len(pieces) - 1 != len(images):
            raise PromptError(f"the prompt has a place for {len(pieces) - 1} images, but there are {len(images)}")
        seen = []
        for place, image in enumerate(images):
            try:
                seen.append(self._processor(image))
            except PictureError as error:
                raise PictureError(f"images[{place}]: {error}") from error
        whole = pieces[0] + "".join(image.text + piece for image, piece in zip(seen, pieces[1:], strict=True))
        begun = bool(self._special.get("bos_token")) and whole.startswith(self._special["bos_token"])
        ids = torch.tensor(encode(self.tokenizer, whole, self._tokenizer_path, not begun), dtype=torch.int64)
        at = (ids == self._image_token_id).nonzero().flatten()
        if len(at) != (wanted := sum(image.tokens for image in seen)):
            raise PromptError(f"the prompt has {len(at)} image tokens, but the images have {wanted} embeddings")
        self._check_length(len(ids))
        return VlmPrompt(ids, tuple(seen), at)


def _texts(value: object) -> Iterator[str]:
    """The texts in a value of JSON, names among them."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, Mapping):
            waiting.extend([*part.keys(), *part.values()])
        elif isinstance(part, Sequence):
            waiting.extend(part)


def _special_tokens(folder: Path) -> dict[str, str]:
    """Texts of the special tokens that a template may name: bos_token, eos_token and so on."""
    path, found = folder / SETTINGS, dict[str, str]()
    if not path.is_file():
        return found
    for key, value in read_json(path).items():
        text = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(text, str):
            found[key] = text
    return found


def _template(folder: Path) -> TemplateProcess | None:
    """The folder's chat template, compiled; None if it has none. Raises CheckpointError."""
    path, source = folder / TEMPLATE, None
    if path.is_file():
        if path.stat().st_size > TEMPLATE_BYTES:
            raise CheckpointError(f"{path}: {path.stat().st_size} bytes, expected {TEMPLATE_BYTES} at most")
        with refusing(path, UnicodeDecodeError):
            source = path.read_text(encoding="utf-8")
    else:
        for name in (TEMPLATE_JSON, SETTINGS):
            path = folder / name
            if source is None and path.is_file():
                source = read_json(path).get("chat_template")
    if source is None:
        return None
    if not isinstance(source, str):
        raise CheckpointError(f"{path}: chat_template: {shown(source)} is not a text")
    try:
        return TemplateProcess(source)
    except ImportError as error:
        raise CheckpointError(f"{path}: needs the jinja2 library: pip install 'auras_ros[vlm]'") from error
    except ChatTemplateError as error:
        raise CheckpointError(f"{path}: not a Jinja template: {error}") from error
