"""The fields of the Responses API in its plain form, and the same as a conversation's.

Nothing is kept between requests. What would need a store of earlier answers, or tools that the server itself runs, is
refused by its name.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, FailFast, Field, model_validator

from auras_ros.serve.errors import ApiError
from auras_ros.serve.fields import ChatFields
from auras_ros.serve.message_fields import MOST_MESSAGES, MOST_PARTS, MOST_TOOLS, ToolName
from auras_ros.serve.request_fields import RequestFields, at_most, only, validated

PARTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
CHAT_NAMES = (
    ("messages", "input"), ("max_tokens", "max_output_tokens"), ("response_format", "text.format"),
)  # fmt: skip
"""Fields of a conversation, and what they are called here."""


def _parts(value: Any) -> Any:
    return [{"type": "input_text", "text": value}] if isinstance(value, str) else value


def _items(value: Any) -> Any:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


def _choice(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


def _included(value: Any) -> Any:
    """Only what there is nothing of here may be asked for."""
    for name in value if isinstance(value, list) else [value]:
        if name != "reasoning.encrypted_content":
            raise ValueError(f"{name!r} is not taken")
    return value


class InputPart(RequestFields):
    ignored: ClassVar[frozenset[str]] = frozenset({"detail", "annotations", "logprobs", "cache_control"})
    empty_counts: ClassVar[frozenset[str]] = frozenset({"text", "refusal"})

    type: Literal["input_text", "output_text", "text", "refusal", "input_image"]
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None

    def as_chat(self) -> dict[str, Any]:
        if self.type == "input_image":
            return {"type": "image_url", "image_url": self.image_url}
        kind = PARTS[self.type]
        return {"type": kind, kind: getattr(self, kind)}


Content = Annotated[list[InputPart], FailFast(), BeforeValidator(_parts), at_most(MOST_PARTS)]


class InputItem(RequestFields):
    """A message, a call of a tool, or its result. Thoughts of other models are not told to this one."""

    ignored: ClassVar[frozenset[str]] = frozenset({
        "id", "status", "summary", "encrypted_content", "phase", "namespace",
    })  # fmt: skip
    empty_counts: ClassVar[frozenset[str]] = frozenset({"content", "arguments", "output"})

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Content = Field([])
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: Content = Field([])

    @model_validator(mode="after")
    def _is_whole(self) -> InputItem:
        needed = {
            "message": ("role",),
            "function_call": ("call_id", "name", "arguments"),
            "function_call_output": ("call_id",),
            "reasoning": (),
        }
        for name in needed[self.type]:
            if getattr(self, name) is None:
                raise ValueError(f"{name}: an item of type {self.type} has one")
        return self


class ResponseTool(RequestFields):
    ignored: ClassVar[frozenset[str]] = frozenset({"strict", "defer_loading"})
    empty_counts: ClassVar[frozenset[str]] = frozenset({"parameters"})

    type: Literal["function"]
    name: ToolName
    description: str = ""
    parameters: dict[str, Any] = Field({})


class ResponseToolChoice(RequestFields):
    type: Literal["none", "auto", "required", "function"]
    name: str | None = None


class ResponseText(RequestFields):
    ignored: ClassVar[frozenset[str]] = frozenset({"verbosity"})

    format: dict[str, Any] = Field({"type": "text"})


class ResponseFields(RequestFields):
    ignored: ClassVar[frozenset[str]] = frozenset({
        "store", "metadata", "user", "service_tier", "prompt_cache_key", "prompt_cache_retention", "safety_identifier",
        "reasoning", "max_tool_calls", "stream_options",
    })  # fmt: skip

    input: Annotated[list[InputItem], FailFast(), BeforeValidator(_items), at_most(MOST_MESSAGES)]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stream: bool = False
    text: ResponseText = Field(default_factory=lambda: ResponseText(format={"type": "text"}))
    tools: Annotated[list[ResponseTool], FailFast(), at_most(MOST_TOOLS)] = Field([])
    tool_choice: Annotated[ResponseToolChoice | None, BeforeValidator(_choice)] = None
    parallel_tool_calls: bool = True
    truncation: Annotated[str, only("disabled")] = "disabled"
    include: Annotated[list[str], BeforeValidator(_included)] = Field([])

    def as_chat(self) -> ChatFields:
        """The same request as a conversation. Raises ApiError."""
        values: dict[str, Any] = {
            "model": self.model,
            "messages": self._messages(),
            "max_tokens": self.max_output_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "stream": self.stream,
            "response_format": self._response_format(),
            "tools": [self._tool(tool) for tool in self.tools],
            "parallel_tool_calls": self.parallel_tool_calls,
        }
        if self.tool_choice is not None:
            values["tool_choice"] = {"type": self.tool_choice.type}
            if self.tool_choice.name is not None:
                values["tool_choice"]["function"] = {"name": self.tool_choice.name}
        try:
            return validated(values, ChatFields)
        except ApiError as error:
            raise in_response_names(error) from error

    def forget_prompt(self) -> None:
        """Frees texts and images, which an answer does not need while it is made."""
        self.input = []

    def _messages(self) -> list[dict[str, Any]]:
        """Calls that follow one another, or what the assistant says before them, are one message."""
        messages = list[dict[str, Any]]()
        if self.instructions is not None:
            messages.append({"role": "system", "content": self.instructions})
        for item in self.input:
            if item.type == "message":
                messages.append({"role": item.role, "content": [part.as_chat() for part in item.content]})
            elif item.type == "function_call_output":
                output = [part.as_chat() for part in item.output] or ""
                messages.append({"role": "tool", "tool_call_id": item.call_id, "content": output})
            elif item.type == "function_call":
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": []})
                function = {"name": item.name, "arguments": item.arguments}
                call = {"id": item.call_id, "type": "function", "function": function}
                messages[-1].setdefault("tool_calls", []).append(call)
        return messages

    def _response_format(self) -> dict[str, Any] | None:
        """Flat here: the schema stands beside its name."""
        form = self.text.format
        if form.get("type") != "json_schema":
            return form
        return {"type": "json_schema", "json_schema": {name: form[name] for name in form if name != "type"}}

    def _tool(self, tool: ResponseTool) -> dict[str, Any]:
        function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        return {"type": "function", "function": function}


def in_response_names(error: ApiError) -> ApiError:
    """A refusal of the conversation that a request was made into, by the request's own names."""
    if error.field is None:
        return error
    field = error.field.replace(".function.", ".")
    for theirs, ours in CHAT_NAMES:
        if field == theirs or field.startswith((f"{theirs}[", f"{theirs}.")):
            field = ours
    if error.message.startswith(f"{error.field}: "):
        error.message = f"{field}{error.message.removeprefix(error.field)}"
    error.field = field
    return error
