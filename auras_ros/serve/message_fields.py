"""The fields of a conversation, as OpenAI names them: messages, their parts, tools, and calls of tools."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, FailFast, Field, model_validator

from auras_ros.serve.request_fields import RequestFields, at_most

MOST_MESSAGES = 1024
MOST_PARTS = 1024  # of a message's content
MOST_TOOLS, MOST_CALLS = 128, 128
TOOL_NAME = r"^[a-zA-Z0-9_.-]{1,64}$"
ToolName = Annotated[str, Field(pattern=TOOL_NAME)]


def _parts(value: Any) -> Any:
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


def _url(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


class ImageUrl(RequestFields):
    """detail: a hint of how many tokens the image is worth, which the model's processor decides here."""

    ignored: ClassVar[frozenset[str]] = frozenset({"detail", "format"})

    url: str


class VideoUrl(RequestFields):
    """Frames of a video, as JPEG files."""

    ignored: ClassVar[frozenset[str]] = frozenset({"detail", "format"})

    url: str


class ContentPart(RequestFields):
    """A text, an image or the frames of a video in a message."""

    ignored: ClassVar[frozenset[str]] = frozenset({"cache_control", "uuid", "annotations", "detail"})
    empty_counts: ClassVar[frozenset[str]] = frozenset({"text", "refusal"})

    type: Literal["text", "image_url", "video_url", "refusal"]
    text: str | None = None
    refusal: str | None = None
    image_url: Annotated[ImageUrl | None, BeforeValidator(_url)] = None
    video_url: Annotated[VideoUrl | None, BeforeValidator(_url)] = None

    @model_validator(mode="after")
    def _is_whole(self) -> ContentPart:
        for name in ("text", "refusal", "image_url", "video_url"):
            if (name == self.type) != (getattr(self, name) is not None):
                raise ValueError(f"a part of type {self.type} has {self.type} and nothing else")
        return self


class CalledFunction(RequestFields):
    """arguments: JSON, as the model wrote it."""

    empty_counts: ClassVar[frozenset[str]] = frozenset({"arguments"})

    name: ToolName
    arguments: str


class GivenCall(RequestFields):
    """A call of an earlier answer."""

    ignored: ClassVar[frozenset[str]] = frozenset({"index"})

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(RequestFields):
    """name: of the speaker, is not told to the model: no template has a place for it."""

    ignored: ClassVar[frozenset[str]] = frozenset({
        "name", "refusal", "annotations", "reasoning", "reasoning_content", "cache_control", "id", "status",
    })  # fmt: skip
    empty_counts: ClassVar[frozenset[str]] = frozenset({"content"})

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[list[ContentPart], FailFast(), BeforeValidator(_parts), at_most(MOST_PARTS)] = Field([])
    tool_calls: Annotated[list[GivenCall], FailFast(), at_most(MOST_CALLS)] = Field([])
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> ChatMessage:
        if not self.content and self.role != "assistant":
            raise ValueError("content: expected a text, or a list of at least 1 part")
        if self.tool_calls and self.role != "assistant":
            raise ValueError("tool_calls: only the assistant calls tools")
        if self.tool_call_id is not None and self.role != "tool":
            raise ValueError("tool_call_id: only a tool's result has one")
        return self


class FunctionFields(RequestFields):
    """strict: the arguments are held to the schema where calls are forced, whatever it says."""

    ignored: ClassVar[frozenset[str]] = frozenset({"strict", "cache_control"})
    empty_counts: ClassVar[frozenset[str]] = frozenset({"parameters"})

    name: ToolName
    description: str = ""
    parameters: dict[str, Any] = Field({})


class ToolFields(RequestFields):
    ignored: ClassVar[frozenset[str]] = frozenset({"cache_control"})

    type: Literal["function"]
    function: FunctionFields


def described(tool: ToolFields) -> dict[str, Any]:
    """For the chat template, as OpenAI describes tools."""
    parameters = tool.function.parameters or {"type": "object", "properties": {}}
    function = {"name": tool.function.name, "description": tool.function.description, "parameters": parameters}
    return {"type": "function", "function": function}


class NamedFunction(RequestFields):
    name: str


class ToolChoiceFields(RequestFields):
    """A word, or the tool that is called."""

    type: Literal["none", "auto", "required", "function"]
    function: NamedFunction | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> ToolChoiceFields:
        if (self.type == "function") != (self.function is not None):
            raise ValueError("function belongs to type function, and must be there")
        return self


def _choice(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


Tools = Annotated[list[ToolFields], FailFast(), at_most(MOST_TOOLS)]
ToolChoice = Annotated[ToolChoiceFields | None, BeforeValidator(_choice)]
