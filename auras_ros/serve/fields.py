"""The fields of a request, as OpenAI names them, and vLLM's beyond these. Every other one is refused by its name.

A field that is null counts as absent, as it does for OpenAI.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from auras_ros.engine.request import MOST_LOGPROBS
from auras_ros.serve.errors import ApiError
from auras_ros.spelling import nearest

MOST_MESSAGES, MOST_STOP_IDS = 1024, 256


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _parts(value: Any) -> Any:
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


def _nothing(value: float) -> float:
    if value != 0:
        raise ValueError("only 0 is taken")
    return value


def _one(value: int) -> int:
    if value != 1:
        raise ValueError("only 1 is taken: one answer for each request")
    return value


Zero = Annotated[float, AfterValidator(_nothing)]


class RequestFields(BaseModel):
    """Nothing is converted, and nothing is ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        return {key: each for key, each in value.items() if each is not None} if isinstance(value, dict) else value


class ImageUrl(RequestFields):
    url: str
    detail: Literal["auto"] = "auto"


class ContentPart(RequestFields):
    """A text or an image of a message."""

    type: Literal["text", "image_url"]
    text: str | None = None
    image_url: ImageUrl | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> ContentPart:
        for name in ("text", "image_url"):
            if (name == self.type) != (getattr(self, name) is not None):
                raise ValueError(f"a part of type {self.type} has {self.type} and nothing else")
        return self


class ChatMessage(RequestFields):
    role: Literal["system", "user", "assistant"]
    content: Annotated[list[ContentPart], BeforeValidator(_parts), Field(min_length=1)]


class StreamOptions(RequestFields):
    include_usage: bool = False


class JsonSchemaFormat(RequestFields):
    schema_: dict[str, Any] = Field(alias="schema")
    name: str = ""
    description: str = ""
    strict: bool = True  # always held to


class ResponseFormat(RequestFields):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> ResponseFormat:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("json_schema belongs to type json_schema, and must be there")
        return self


class StructuredOutputs(RequestFields):
    """vLLM's own: one of the two."""

    regex: str | None = None
    json_: dict[str, Any] | None = Field(None, alias="json")

    @model_validator(mode="after")
    def _is_one(self) -> StructuredOutputs:
        if (self.regex is None) == (self.json_ is None):
            raise ValueError("expected regex or json")
        return self


class CommonFields(RequestFields):
    """What both kinds of requests take."""

    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: Zero = 0.0
    presence_penalty: Zero = 0.0
    seed: int | None = None
    stop: Annotated[list[str], BeforeValidator(_listed)] = []
    stop_token_ids: Annotated[list[int], Field(max_length=MOST_STOP_IDS)] = []
    ignore_eos: bool = False
    n: Annotated[int, AfterValidator(_one)] = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_regex: str | None = None
    priority: int = 0
    deadline_ms: float | None = None
    task_head: bool | None = None
    user: str | None = None

    @property
    def usage_streamed(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def alternatives(self) -> int | None:
        """How many log probabilities of each token are asked for; None: none, not even its own."""
        raise NotImplementedError

    def given(self, *names: str) -> dict[str, Any]:
        """Those of these fields that the request has."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class ChatFields(CommonFields):
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MOST_MESSAGES)]
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int | None, Field(ge=0, le=MOST_LOGPROBS)] = None

    @property
    def alternatives(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionFields(CommonFields):
    prompt: str | list[Any]
    logprobs: int | None = None
    echo: Literal[False] = False

    @property
    def alternatives(self) -> int | None:
        return self.logprobs


class AdapterFields(RequestFields):
    """Of a request that removes an adapter; as vLLM names them."""

    lora_name: str


class LoadAdapterFields(AdapterFields):
    """Of one that adds it."""

    lora_path: str


Fields = TypeVar("Fields", bound=RequestFields)
NESTED = (ChatMessage, ContentPart, ImageUrl, StreamOptions, ResponseFormat, JsonSchemaFormat, StructuredOutputs)


def read_fields(body: bytes, kind: type[Fields]) -> Fields:
    """Raises ApiError, naming the field."""
    try:
        values = json.loads(body, parse_constant=_no_constant, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ApiError(400, "the body is not a JSON object")
    try:
        fields = kind.model_validate(values)
    except ValidationError as error:
        raise _named(error, kind) from error
    except RecursionError as error:
        raise ApiError(400, "the body is nested too deeply") from error
    return fields


def _named(error: ValidationError, kind: type[RequestFields]) -> ApiError:
    """The first of the errors."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = ""
    for step in first["loc"]:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    field = path.removeprefix(".")
    if first["type"] == "extra_forbidden":
        own = kind.model_fields if len(first["loc"]) == 1 else {n for each in NESTED for n in each.model_fields}
        meant = nearest(str(first["loc"][-1]), [name.rstrip("_") for name in own])
        hint = f"; did you mean {meant}?" if meant else ""
        return ApiError(400, f"{field}: not a field that is taken{hint}", field=field, code="unknown_field")
    text = first["msg"].removeprefix("Value error, ")
    return ApiError(400, f"{field}: {text}", field=field)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _without_repeats(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen = set[str]()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key[:64]!r} stands in one object twice")
            seen.add(key)
    return made
