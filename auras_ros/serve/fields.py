"""The fields of a request, as OpenAI names them, and vLLM's beyond these. Every other one is refused by its name.

Lengths are looked at before what is in a list, and validation stops at the first error: an error for each of a million
elements took gigabytes.

A field that is null counts as absent, as it does for OpenAI.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    model_validator,
)

from auras_ros.engine.request import MOST_LOGPROBS, MOST_STOPS
from auras_ros.serve.errors import ApiError
from auras_ros.serve.json_body import SHOWN, read_json
from auras_ros.spelling import nearest

MOST_MESSAGES, MOST_STOP_IDS = 1024, 256
MOST_PARTS = 1024  # of a message's content


def _at_most(count: int) -> BeforeValidator:
    """Looks at a list's length before anything in it."""

    def check(value: Any) -> Any:
        if isinstance(value, list) and len(value) > count:
            raise ValueError(f"{len(value)} given, expected at most {count}")
        return value

    return BeforeValidator(check)


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
        """Only the first unknown name is left: pydantic builds an error for each."""
        if not isinstance(value, dict):
            return value
        known = {field.alias or name for name, field in cls.model_fields.items()}
        given = {name: value[name] for name in known if value.get(name) is not None}
        unknown = next((name for name in value if name not in known and value[name] is not None), None)
        if unknown is not None:
            given[unknown] = value[unknown]
        return given


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
    content: Annotated[
        list[ContentPart], FailFast(), BeforeValidator(_parts), _at_most(MOST_PARTS), Field(min_length=1)
    ]


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
    stop: Annotated[list[str], FailFast(), BeforeValidator(_listed), _at_most(MOST_STOPS)] = []
    stop_token_ids: Annotated[list[int], FailFast(), _at_most(MOST_STOP_IDS)] = []
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

    def forget_prompt(self) -> None:
        """Frees texts and images, which an answer does not need while it is made."""
        raise NotImplementedError

    def given(self, *names: str) -> dict[str, Any]:
        """Those of these fields that the request has."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class ChatFields(CommonFields):
    messages: Annotated[list[ChatMessage], FailFast(), _at_most(MOST_MESSAGES), Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int | None, Field(ge=0, le=MOST_LOGPROBS)] = None

    @property
    def alternatives(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    def forget_prompt(self) -> None:
        self.messages = []


class CompletionFields(CommonFields):
    prompt: str | list[Any]
    logprobs: int | None = None
    echo: Literal[False] = False

    @property
    def alternatives(self) -> int | None:
        return self.logprobs

    def forget_prompt(self) -> None:
        self.prompt = ""


class AdapterFields(RequestFields):
    """Of a request that removes an adapter; as vLLM names them."""

    lora_name: str


class LoadAdapterFields(AdapterFields):
    """Of one that adds it."""

    lora_path: str


Fields = TypeVar("Fields", bound=RequestFields)
NESTED = (ChatMessage, ContentPart, ImageUrl, StreamOptions, ResponseFormat, JsonSchemaFormat, StructuredOutputs)


def read_fields(body: bytes, kind: type[Fields]) -> Fields:
    """Raises ApiError, naming the field. At the first error validation stops."""
    values = read_json(body)
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
        path += f"[{step}]" if isinstance(step, int) else f".{step[:SHOWN]}"
    field = path.removeprefix(".")
    if first["type"] == "extra_forbidden":
        own = kind.model_fields if len(first["loc"]) == 1 else {n for each in NESTED for n in each.model_fields}
        meant = nearest(str(first["loc"][-1])[:SHOWN], [name.rstrip("_") for name in own])
        hint = f"; did you mean {meant}?" if meant else ""
        return ApiError(400, f"{field}: not a field that is taken{hint}", field=field, code="unknown_field")
    text = first["msg"].removeprefix("Value error, ")
    return ApiError(400, f"{field}: {text}", field=field)
