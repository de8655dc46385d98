"""What a grammar may be and cost: limits of its text, of numbers in a JSON schema, and of llguidance's own work.

Neither torch nor the engine is imported here: the child process that tries a grammar first (`grammar_child`) imports
this module too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

MOST_CHARACTERS = 1 << 16
SPACE = r"( |\n[ \t]{0,32})?"  # where JSON may have any: a model must not go on with it for ever
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
    if kind != "json_schema":
        return
    try:
        schema = json.loads(text, parse_float=Decimal)
    except RecursionError as error:
        raise ValueError("the schema is nested too deeply") from error
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


def compile_matcher(tokenizer: Any, kind: str, text: str) -> Any:
    """An `llguidance.LLMatcher`. tokenizer: an `llguidance.LLTokenizer`. Raises ValueError, with what is wrong."""
    import llguidance

    matcher = llguidance.LLMatcher
    if kind == "json_schema":
        compiled = matcher.grammar_from_json_schema(text, overrides={"whitespace_pattern": SPACE})
    else:
        compiled = matcher.grammar_from_regex(text)
    limits = llguidance.LLParserLimits(
        initial_lexer_fuel=FIRST_WORK, step_lexer_fuel=STEP_WORK, max_lexer_states=MOST_STATES
    )
    made = matcher(tokenizer, compiled, log_level=0, limits=limits)
    if made.is_error():
        raise ValueError(made.get_error().splitlines()[0])
    return made
