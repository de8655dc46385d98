"""Calls of tools as a grammar: what the model writes around names and arguments, and a JSON schema for the arguments.

Neither torch nor the engine is imported here: the child process that tries a grammar first imports this module too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

SPACED = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON as templates write it, and as the model has seen it."""
COMPACT = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
MOST_CALLS = 8  # of one answer: a model must not go on with them for ever
COMBINED = ("$ref", "anyOf", "oneOf", "allOf", "enum", "const")  # of a schema without a type


@dataclass(frozen=True)
class CalledTool:
    """A tool that an answer may call. field: where the request has its parameters, for errors."""

    name: str
    parameters: Mapping[str, Any]
    field: str


@dataclass(frozen=True)
class CallText:
    """What stands around the calls of an answer: `head`, a name, `between`, arguments, then for each further call
    `middle`, a name, `between` and arguments, and at the end `tail`. specials: ids of the special tokens in them."""

    head: str
    between: str
    middle: str
    tail: str
    specials: Mapping[str, int] = field(default_factory=dict)


def write_tool_grammar(
    text: CallText, tools: Sequence[CalledTool], single: bool, answer: Mapping[str, Any] | None = None
) -> str:
    """The text of a `Grammar` of kind `tools`. single: one call and no more. answer: a schema for an answer without
    calls; None: there are calls."""
    calls = [asdict(tool) for tool in tools]
    return json.dumps({"text": asdict(text), "calls": calls, "single": single, "answer": answer})


def read_called_tools(text: str) -> list[CalledTool]:
    return [CalledTool(**tool) for tool in json.loads(text)["calls"]]


def lark_of(text: str) -> str:
    """llguidance's notation of what `write_tool_grammar` made."""
    values = json.loads(text)
    around, calls = CallText(**values["text"]), [CalledTool(**tool) for tool in values["calls"]]
    further = ""
    if not values["single"]:
        further = f" ({_literal(around.middle, around.specials)} call){{0,{MOST_CALLS - 1}}}"
    rules = ["start: calls" if values["answer"] is None else "start: calls | answer"]
    rules.append(
        f"calls: {_literal(around.head, around.specials)} call{further} {_literal(around.tail, around.specials)}"
    )
    rules.append("call: " + " | ".join(f"call_{index}" for index in range(len(calls))))
    for index, tool in enumerate(calls):
        name = _literal(tool.name + around.between, around.specials)
        rules.append(f"call_{index}: {name} %json {json.dumps(_of_arguments(tool.parameters))}")
    if values["answer"] is not None:
        rules.append(f"answer: %json {json.dumps({**values['answer'], 'x-guidance': COMPACT})}")
    return "\n".join(rules)


def _of_arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a call's arguments, which are an object. A tool without parameters is called without arguments."""
    if not schema:
        return {"type": "object", "properties": {}, "additionalProperties": False, "x-guidance": SPACED}
    is_typed = "type" in schema or any(key in schema for key in COMBINED)
    return {**({} if is_typed else {"type": "object"}), **schema, "x-guidance": SPACED}


def _literal(text: str, specials: Mapping[str, int]) -> str:
    """The text in Lark's notation; a special token is named by its id."""
    if not text:
        return '""'
    if not specials:
        return json.dumps(text)
    pieces = re.split("(" + "|".join(map(re.escape, sorted(specials, key=len, reverse=True))) + ")", text)
    return " ".join(f"<[{specials[piece]}]>" if piece in specials else json.dumps(piece) for piece in pieces if piece)
