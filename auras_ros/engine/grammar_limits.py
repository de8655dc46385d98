"""What a grammar may be and cost: limits of its text, of numbers in a JSON schema, and of llguidance's own work.

Neither torch nor the engine is imported here: the child process that tries a grammar first (`grammar_child`) imports
this module too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from auras_ros.engine.tool_grammar import COMPACT, lark_of, read_called_tools

MOST_CHARACTERS = 1 << 16
MOST_WHITESPACE = 256  # characters of a regular expression
# Work of llguidance's lexer: a quarter of its default, which would hold all other requests up for 3 s.
FIRST_WORK = 200_000
STEP_WORK = 50_000
# States of the lexer, 1 to 2 kB each; llguidance's default of 250,000 is half a gigabyte.
MOST_STATES = 20_000

# A state of the lexer for each remainder: 10,000 take 0.1 s and 4 MB, 1,000,003 take 10 s and 290 MB.
MOST_MULTIPLE = 10_000
MOST_DECIMALS = 10
MOST_COUNT = 1 << 20
MOST_ENUM = 4096
COUNTS = (
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
)
# Keywords whose value maps names to schemas: a name in it is no keyword.
SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
# Keywords whose value is data and not a schema.
DATA = ("enum", "const", "default", "examples")


def check_text(kind: str, text: str) -> None:
    """Raises ValueError, which names the keyword, its value and the largest one allowed.

    It tells a client what to change. What it does not find, such as a product of several `multipleOf` or an exploding
    regular expression, the child process finds.
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"{len(text)} characters, expected {MOST_CHARACTERS} at most")
    if kind == "json_schema":
        _check_schema(_read(text))
    elif kind == "choice":
        _check_choices(_read(text))
    elif kind == "tools":
        values = _read(text)
        _check_schema(values["answer"])
        for tool in values["calls"]:
            try:
                _check_schema(tool["parameters"])
            except ValueError as error:
                raise ValueError(f"{tool['field']}: {error}") from error


def _read(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except RecursionError as error:
        raise ValueError("the schema is nested too deeply") from error


def _check_choices(choices: object) -> None:
    if not isinstance(choices, list) or not choices:
        raise ValueError("expected a list of texts")
    if len(choices) > MOST_ENUM:
        raise ValueError(f"{len(choices)} texts, expected {MOST_ENUM} at most")
    if not all(isinstance(choice, str) and choice for choice in choices):
        raise ValueError("expected a list of texts, none of which is empty")


def _check_schema(schema: object) -> None:
    for part in _schemas(schema):
        _check_keywords(part)


def _schemas(schema: Any) -> Iterator[Mapping[str, Any]]:
    """The schema and all those in it, without recursion."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting.extend(part)
        if not isinstance(part, dict):
            continue
        yield part
        for keyword, value in part.items():
            if keyword in SCHEMA_MAPS and isinstance(value, dict):
                waiting.extend(value.values())
            elif keyword not in DATA:
                waiting.append(value)


def _check_keywords(schema: Mapping[str, Any]) -> None:
    multiple = _number(schema.get("multipleOf"))
    if multiple is not None:
        _check_multiple(multiple)
    for keyword in COUNTS:
        count = _number(schema.get(keyword))
        if count is not None and count > MOST_COUNT:
            raise ValueError(f"{keyword}: {_shown(count)}, expected {MOST_COUNT} at most")
    values = schema.get("enum")
    if isinstance(values, Sequence) and len(values) > MOST_ENUM:
        raise ValueError(f"enum: {len(values)} values, expected {MOST_ENUM} at most")


def _check_multiple(value: Decimal) -> None:
    """Its digits count without the decimal point: 0.001 costs what 1 costs, 1000.001 what 1,000,001 costs."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # JSON has no infinity
    trailing_zeros = len(digits) - len("".join(map(str, digits)).rstrip("0")) if exponent < 0 else 0
    decimals = max(0, -exponent - trailing_zeros)
    if decimals > MOST_DECIMALS:
        raise ValueError(f"multipleOf: {_shown(value)}: {decimals} decimals, expected {MOST_DECIMALS} at most")
    if abs(value).adjusted() + decimals > MOST_DECIMALS or abs(value.scaleb(decimals)) > MOST_MULTIPLE:
        most = Decimal(MOST_MULTIPLE).scaleb(-decimals)
        with_decimals = f" with {decimals} decimals" if decimals else ""
        raise ValueError(f"multipleOf: {_shown(value)}, expected {most:f} at most{with_decimals}")


def _number(value: object) -> Decimal | None:
    """None for what is no number, true and false among it."""
    return Decimal(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else None


def _shown(value: object) -> str:
    return str(value)[:64]


def compile_matcher(tokenizer: Any, kind: str, text: str, whitespace: str = "") -> Any:
    """An `llguidance.LLMatcher`. tokenizer: an `llguidance.LLTokenizer`. Raises ValueError, with what is wrong."""
    made = _matcher(tokenizer, _compiled(kind, text, whitespace))
    if not made.is_error():
        return made
    if kind == "tools":  # which of them
        for tool in read_called_tools(text):
            alone = _matcher(tokenizer, _compiled("json_schema", json.dumps(tool.parameters), whitespace))
            if alone.is_error():
                raise ValueError(f"{tool.field}: {alone.get_error().splitlines()[0]}")
    raise ValueError(made.get_error().splitlines()[0])


def _compiled(kind: str, text: str, whitespace: str) -> str:
    """llguidance's own form. Raises ValueError."""
    from llguidance import LLMatcher, grammar_from

    if kind == "json_schema":
        options: Any = json_options(whitespace)
        compiled: str = LLMatcher.grammar_from_json_schema(text, defaults=options)
    elif kind == "regex":
        compiled = LLMatcher.grammar_from_regex(text)
    elif kind == "choice":
        compiled = LLMatcher.grammar_from_lark("start: " + " | ".join(map(json.dumps, json.loads(text))))
    elif kind == "tools":
        compiled = LLMatcher.grammar_from_lark(lark_of(text))
    else:
        compiled = grammar_from("grammar", text)
    return compiled


def json_options(whitespace: str) -> dict[str, Any]:
    """How JSON is written. A model must not go on with white space for ever, so there is none unless it is asked for.

    whitespace: a regular expression of what may stand between the parts of JSON; empty: nothing.
    """
    if not whitespace:
        return dict(COMPACT)
    return {**COMPACT, "whitespace_flexible": True, "whitespace_pattern": whitespace}


def _matcher(tokenizer: Any, compiled: str) -> Any:
    import llguidance

    limits = llguidance.LLParserLimits(
        initial_lexer_fuel=FIRST_WORK, step_lexer_fuel=STEP_WORK, max_lexer_states=MOST_STATES
    )
    return llguidance.LLMatcher(tokenizer, compiled, log_level=0, limits=limits)
