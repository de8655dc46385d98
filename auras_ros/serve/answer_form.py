"""Which fields say what form an answer has, and the grammar that holds the answer to it."""

from __future__ import annotations

import json
from typing import Any

from auras_ros.engine.request import Grammar, InvalidRequestError
from auras_ros.serve.fields import CommonFields, CompletionFields
from auras_ros.serve.tool_use import ToolUse

OBJECT = {"type": "object"}


def read_grammar(fields: CommonFields, tools: ToolUse | None) -> Grammar | None:
    """tools: that the answer may call. Raises InvalidRequestError if the answer's form is given twice."""
    given = _grammars(fields)
    if tools is not None:
        others = [name for name, _ in given if name != "response_format"]
        if others:
            raise InvalidRequestError(
                f"{others[0]}: the answer's form is given by tools too; tool_choice: none drops them"
            )
        return tools.grammar(_response_schema(fields))
    if len(given) > 1:
        raise InvalidRequestError(f"{given[1][0]}: the answer's form is given by {given[0][0]} too")
    return given[0][1] if given else None


def grammar_field(fields: CommonFields, kind: str = "") -> str:
    """Which field says what form the answer has. kind: of the grammar, if it is known."""
    if kind == "tools":
        return "tools"
    return next((name for name, _ in _grammars(fields)), "")


def token_field(fields: CommonFields, grammar: Grammar | None) -> str:
    """A field that only an answer of tokens can keep to; empty if there is none. grammar: of the answer."""
    if grammar is not None:
        return grammar_field(fields, grammar.kind)
    if fields.alternatives is not None:
        return "logprobs"
    if fields.prompt_logprobs is not None:
        return "prompt_logprobs"
    return "echo" if isinstance(fields, CompletionFields) and fields.echo else ""


def _response_schema(fields: CommonFields) -> dict[str, Any] | None:
    form = fields.response_format
    if form is None or form.type == "text":
        return None
    return OBJECT if form.json_schema is None else form.json_schema.schema_


def _grammars(fields: CommonFields) -> list[tuple[str, Grammar]]:
    """With the field that each comes from."""
    given = list[tuple[str, Grammar]]()
    if (schema := _response_schema(fields)) is not None:
        given.append(("response_format", Grammar("json_schema", json.dumps(schema))))
    outputs = fields.structured_outputs
    if outputs is not None:
        whitespace = outputs.whitespace_pattern or ""
        forms = _forms(outputs.json_, outputs.regex, outputs.choice, outputs.grammar, whitespace)
        if outputs.json_object:
            forms.append(Grammar("json_schema", json.dumps(OBJECT), whitespace))
        given += [("structured_outputs", grammar) for grammar in forms]
    whitespace = fields.guided_whitespace_pattern or ""
    for name, forms in (
        ("guided_json", _forms(fields.guided_json, None, [], None, whitespace)),
        ("guided_regex", _forms(None, fields.guided_regex, [], None, "")),
        ("guided_choice", _forms(None, None, fields.guided_choice, None, "")),
        ("guided_grammar", _forms(None, None, [], fields.guided_grammar, "")),
    ):
        given += [(name, grammar) for grammar in forms]
    return given


def _forms(
    schema: dict[str, Any] | str | None,
    regex: str | None,
    choices: list[str],
    grammar: str | None,
    whitespace: str,
) -> list[Grammar]:
    made = list[Grammar]()
    if schema is not None:
        made.append(Grammar("json_schema", schema if isinstance(schema, str) else json.dumps(schema), whitespace))
    if regex is not None:
        made.append(Grammar("regex", regex))
    if choices:
        made.append(Grammar("choice", json.dumps(choices)))
    if grammar is not None:
        made.append(Grammar("grammar", grammar))
    return made
