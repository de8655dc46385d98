"""Chat templates in Jinja's sandbox, with what transformers gives one: loop controls, `tojson`, `raise_exception`,
`strftime_now`, and `generation` blocks, whose marks only training reads.

Jinja's sandbox keeps a template from Python's objects and from files, but not from taking for ever. What bounds memory
and time is the process that it runs in (`template_process`). The limits here, for all ranges of one rendering together,
for products and for powers, only give the most frequent mistakes a clear error at once.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_TURNS = 100_000  # of all ranges of one rendering
MOST_PRODUCT = 1 << 20  # of a text or a list; for numbers the product itself


class Generation(Extension):
    """`{% generation %}` marks what the assistant said; it stays as it is."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's own form)

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Products are limited, and there are no powers."""

    intercepted_binops = frozenset(("*", "**"))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            raise SecurityError("powers are not allowed")
        sizes = [len(each) if isinstance(each, str | list | tuple) else abs(each) for each in (left, right)]
        if sizes[0] * sizes[1] > MOST_PRODUCT:
            raise SecurityError(f"a product is larger than {MOST_PRODUCT}")
        return left * right


class ChatTemplate:
    """A compiled template; `render` is safe to call from several threads."""

    def __init__(self, template: Template) -> None:
        self._template = template

    def render(self, **values: Any) -> str:
        """Raises whatever the template raises."""
        left = MOST_TURNS

        def bounded(*args: int) -> range:
            nonlocal left
            made = range(*args)
            left -= len(made)
            if left < 0:
                raise SecurityError(f"ranges of more than {MOST_TURNS} turns")
            return made

        return self._template.render(range=bounded, **values)


def compiled(source: str) -> ChatTemplate:
    """Raises TemplateError, and what Python's compiler raises."""
    made = ChatEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
    made.filters["tojson"] = _json
    del made.globals["lipsum"]
    made.globals |= {"raise_exception": _raise, "strftime_now": lambda form: datetime.now().strftime(form)}
    return ChatTemplate(made.from_string(source))


def _json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """JSON that escapes nothing for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise TemplateError(message)
