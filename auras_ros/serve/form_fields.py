"""The fields that say what form an answer has, under the names of OpenAI and of vLLM, old and new."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, FailFast, Field, model_validator

from auras_ros.engine.grammar_limits import MOST_ENUM, MOST_WHITESPACE
from auras_ros.serve.request_fields import RequestFields, at_most


def _schema(value: Any) -> Any:
    if not isinstance(value, dict | str):
        raise ValueError("expected a JSON schema, as an object or as its text")
    return value


Choices = Annotated[list[str], FailFast(), at_most(MOST_ENUM)]
Schema = Annotated[Any, BeforeValidator(_schema)]
Whitespace = Annotated[str, Field(max_length=MOST_WHITESPACE)]


class JsonSchemaFormat(RequestFields):
    """strict: the schema is always held to, whatever it says."""

    ignored: ClassVar[frozenset[str]] = frozenset({"strict", "name", "description"})

    schema_: dict[str, Any] = Field(alias="schema")


class ResponseFormat(RequestFields):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> ResponseFormat:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("json_schema belongs to type json_schema, and must be there")
        return self


class StructuredOutputs(RequestFields):
    """vLLM's own: one of the five forms."""

    ignored: ClassVar[frozenset[str]] = frozenset({"disable_any_whitespace", "disable_fallback", "_backend"})
    empty_counts: ClassVar[frozenset[str]] = frozenset({"json"})

    regex: str | None = None
    json_: Schema = Field(None, alias="json")
    choice: Choices = Field([])
    grammar: str | None = None
    json_object: bool = False
    whitespace_pattern: Whitespace | None = None

    @model_validator(mode="after")
    def _is_one(self) -> StructuredOutputs:
        given = [self.regex is not None, self.json_ is not None, bool(self.choice), self.grammar is not None]
        if sum(given) + self.json_object != 1:
            raise ValueError("expected one of json, json_object, regex, choice and grammar")
        return self
