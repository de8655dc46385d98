"""Token ids of a text or of a conversation, and back, under vLLM's names."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import FailFast, Field, model_validator

from auras_ros.checkpoints.tokenizer import PromptError, encode
from auras_ros.checkpoints.vlm.chat import ChatOptions, VlmPrompts
from auras_ros.panics import raising_panics
from auras_ros.serve.conversation import chat_prompt, check_characters
from auras_ros.serve.fields import MOST_VARIABLES
from auras_ros.serve.json_body import MOST_VALUES
from auras_ros.serve.message_fields import MOST_MESSAGES, ChatMessage, Tools, described
from auras_ros.serve.options import ImageLimits
from auras_ros.serve.request_fields import RequestFields, at_most


class TokenizeFields(RequestFields):
    """A text, or a conversation."""

    ignored: ClassVar[frozenset[str]] = frozenset({"user"})
    empty_counts: ClassVar[frozenset[str]] = frozenset({"prompt"})

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], FailFast(), at_most(MOST_MESSAGES)] = Field([])
    tools: Tools = Field([])
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    chat_template_kwargs: Annotated[dict[str, Any], at_most(MOST_VARIABLES)] = Field({})
    return_token_strs: bool = False

    @model_validator(mode="after")
    def _is_one(self) -> TokenizeFields:
        if (self.prompt is None) != bool(self.messages):
            raise ValueError("expected prompt or messages")
        return self


class DetokenizeFields(RequestFields):
    empty_counts: ClassVar[frozenset[str]] = frozenset({"tokens"})

    model: str | None = None
    tokens: Annotated[list[int], FailFast(), at_most(MOST_VALUES)]


def tokens_of(prompts: VlmPrompts, fields: TokenizeFields, limits: ImageLimits) -> dict[str, object]:
    """Raises PromptError or PictureError, naming the field."""
    if fields.prompt is not None:
        check_characters("prompt", len(fields.prompt))
        ids = encode(prompts.tokenizer, fields.prompt, "the tokenizer", fields.add_special_tokens)
    else:
        options = ChatOptions(
            [described(tool) for tool in fields.tools], fields.add_generation_prompt, fields.chat_template_kwargs
        )
        ids = chat_prompt(prompts, fields.messages, limits, options=options).ids.tolist()
    texts = [prompts.tokenizer.id_to_token(token) for token in ids] if fields.return_token_strs else None
    return {"count": len(ids), "tokens": ids, "token_strs": texts}


def text_of(prompts: VlmPrompts, fields: DetokenizeFields) -> str:
    """Raises PromptError."""
    for place, token in enumerate(fields.tokens):
        if not 0 <= token < prompts.tokenizer.get_vocab_size():
            raise PromptError(f"tokens[{place}]: {token} is not one of {prompts.tokenizer.get_vocab_size()}")
    with raising_panics():
        text: str = prompts.tokenizer.decode(fields.tokens, skip_special_tokens=False)
    return text
