"""A conversation or a text, and its images, as the token ids that a model was trained with.

The folder's chat template is a Jinja template: it is rendered in Jinja's sandbox, with the functions that transformers
gives one, in a process with limits of memory and time. What is said in a conversation has no special tokens: it cannot
stand for an image, nor for another's words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.json_file import read_json
from auras_ros.checkpoints.tokenizer import TOKENIZER, PromptError, encode, read_tokenizer
from auras_ros.checkpoints.vlm.pictures import ImagePixels, ImageProcessor, PictureError, PreparedImage
from auras_ros.checkpoints.vlm.template_process import ChatTemplateError, TemplateProcess
from auras_ros.values import shown

TEMPLATE, TEMPLATE_JSON, SETTINGS = "chat_template.jinja", "chat_template.json", "tokenizer_config.json"
TEMPLATE_BYTES = 1 << 20
ROLES = ("system", "user", "assistant")
Message = Mapping[str, Any]
"""role: of ROLES. content: a text, or a list of parts: {"type": "text", "text": …} or {"type": "image"}."""


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

    def chat(self, messages: Sequence[Message], images: Sequence[ImagePixels] = ()) -> VlmPrompt:
        """The prompt of a conversation, up to where the assistant answers. images: uint8 RGB [h, w, 3], one for each
        image part, in their order. Raises PromptError or PictureError."""
        if self._template is None:
            raise PromptError(f"the folder has no chat template ({TEMPLATE}); ask with a plain text")
        conversation = [self._checked(place, message) for place, message in enumerate(messages)]
        if not conversation:
            raise PromptError("messages: there are none")
        given = sum(part["type"] == "image" for message in conversation for part in message["content"])
        if given != len(images):
            raise PromptError(f"messages: {given} image parts, but {len(images)} images")
        try:
            text = self._template.render(
                {
                    "messages": conversation,
                    "add_generation_prompt": True,
                    "tools": None,
                    "documents": None,
                    **self._special,
                }
            )
        except ChatTemplateError as error:
            raise PromptError(f"messages: the folder's chat template does not take them: {error}") from error
        return self._prompt(text, images)

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
        if not 0 < len(ids) <= self._length:
            raise PromptError(f"the prompt has {len(ids)} tokens, expected 1 to {self._length}")
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
        content = message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(parts, Sequence) or not parts:
            raise PromptError(f"{where}.content: expected a text or a list of parts")
        for index, part in enumerate(parts):
            kind = part.get("type") if isinstance(part, Mapping) else None
            if kind not in ("text", "image"):
                raise PromptError(f"{where}.content[{index}].type: {shown(kind)}: expected text or image")
            if kind == "text" and not isinstance(part.get("text"), str):
                raise PromptError(f"{where}.content[{index}].text: {shown(part.get('text'))} is not a text")
            if kind == "text" and (found := [each for each in self._controls if each in part["text"]]):
                raise PromptError(f"{where}.content[{index}].text: has the special token '{found[0]}'")
        return {"role": message["role"], "content": [dict(part) for part in parts]}

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
        if not 0 < len(ids) <= self._length:
            raise PromptError(f"the prompt has {len(ids)} tokens, expected 1 to {self._length}")
        return VlmPrompt(ids, tuple(seen), at)


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
