"""How a chat template writes calls of tools, and how tools are written for a template that knows none.

A template that knows tools shows it: with tools it renders another text. Two conversations with calls in them are then
rendered, and the text around names and arguments is the form of a call: `<tool_call>` of Hermes and Qwen,
`[TOOL_CALLS]` of Mistral, plain JSON of Llama 3. Any form is read in which a call is a JSON object of a name and its
arguments.

A template that knows no tools gets them as text in Hermes' form: the tools in the system message, calls in the
assistant's, results in the user's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from auras_ros.checkpoints.tokenizer import PromptError

Message = Mapping[str, Any]
Render = Callable[[Sequence[Message], Sequence[Mapping[str, Any]] | None, bool], str]
"""Messages, tools, and whether the assistant's turn begins at the end -> the template's text."""

FIRST, SECOND = "probe_first", "probe_second"  # names of tools in the conversations that are rendered
KEY, VALUE = "probe_key", "probe_value"
ARGUMENTS = re.compile(r'\{\s*"' + KEY + r'"\s*:\s*"' + VALUE + r'"\s*\}')
NAME_FIRST = re.compile(r'(?s)(?P<begin>.*?)(?P<object>\{\s*"(?P<key>\w+)"\s*:\s*")$')
ARGUMENTS_NEXT = re.compile(r'"\s*,\s*"(?P<key>\w+)"\s*:\s*$')
LEAST_MARK = 3  # characters of a mark that cannot be part of JSON by chance


@dataclass(frozen=True)
class ToolForm:
    """The text of one or more calls: `head`, a name, `between`, arguments as JSON, then for each further call `middle`,
    a name, `between` and arguments, and at the end `tail`."""

    head: str
    between: str
    middle: str
    tail: str
    name_key: str
    arguments_key: str

    @property
    def begin_mark(self) -> str:
        """What begins calls in an answer; empty: a JSON object at its beginning does."""
        found = NAME_FIRST.match(self.head)
        return found["begin"].strip() if found else ""

    @property
    def end_mark(self) -> str:
        """What ends a call; empty: the answer's end does."""
        mark = self.tail.strip().removeprefix("}").strip()
        return mark if len(mark) >= LEAST_MARK else ""


HERMES = ToolForm(
    head='<tool_call>\n{"name": "',
    between='", "arguments": ',
    middle='}\n</tool_call>\n<tool_call>\n{"name": "',
    tail="}\n</tool_call>",
    name_key="name",
    arguments_key="arguments",
)


def read_tool_form(render: Render) -> ToolForm | None:
    """The template's own form of calls; None: it knows no tools. Raises PromptError for a form that cannot be read."""
    user = {"role": "user", "content": [{"type": "text", "text": "probe"}]}
    tools = [_probe_tool(FIRST), _probe_tool(SECOND)]
    try:
        if render([user], tools, True) == render([user], None, True):
            return None
        prompt = render([user], tools, True)
        said = render([user, {"role": "assistant", "content": [{"type": "text", "text": VALUE}]}], tools, False)
        one = render([user, _probe_calls(FIRST)], tools, False)
        two = render([user, _probe_calls(FIRST, SECOND)], tools, False)
    except PromptError as error:
        raise PromptError(f"tools: the folder's chat template does not take them: {error}") from error
    turn_end = said.rpartition(VALUE)[2]
    form = _form_of(_after(prompt, one, turn_end), _after(prompt, two, turn_end))
    if form is None:
        raise PromptError(
            "tools: the folder's chat template writes calls of tools in a form that is not known: expected JSON "
            "objects of a name and its arguments"
        )
    return form


def write_tools(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None) -> list[Message]:
    """The conversation in texts alone, in Hermes' form, for a template that knows no tools."""
    made = list[Message]()
    for message in messages:
        if message["role"] == "tool":
            result = [_text("<tool_response>\n"), *message["content"], _text("\n</tool_response>")]
            if made and made[-1].get("results"):  # results of calls of one turn are one message
                made[-1] = {**made[-1], "content": [*made[-1]["content"], _text("\n"), *result]}
            else:
                made.append({"role": "user", "content": result, "results": True})
        elif calls := message.get("tool_calls"):
            parts = list(message["content"])
            before = "\n" if parts else ""
            made.append({"role": "assistant", "content": [*parts, _text(before + _calls(calls))]})
        else:
            made.append(message)
    made = [
        {**{key: message[key] for key in message if key != "results"}, "content": _joined(message["content"])}
        for message in made
    ]
    return _with_tools(made, tools) if tools else made


def _with_tools(messages: list[Message], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    text = (
        f"These functions can be called:\n<tools>\n{lines}\n</tools>\n"
        "A call is the function's name and its arguments as JSON, between these tags:\n"
        '<tool_call>\n{"name": "the name", "arguments": {"argument": "value"}}\n</tool_call>'
    )
    if messages and messages[0]["role"] == "system":
        first = messages[0]
        return [{**first, "content": _joined([*first["content"], _text(f"\n\n{text}")])}, *messages[1:]]
    return [{"role": "system", "content": [_text(text)]}, *messages]


def _joined(parts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Texts that follow one another as one: some templates write a space after each."""
    made = list[Mapping[str, Any]]()
    for part in parts:
        if part["type"] == "text" and made and made[-1]["type"] == "text":
            made[-1] = _text(made[-1]["text"] + part["text"])
        else:
            made.append(part)
    return made


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _calls(calls: Sequence[Mapping[str, Any]]) -> str:
    """Calls as an answer has them."""
    texts = [
        call["function"]["name"] + HERMES.between + json.dumps(call["function"]["arguments"], ensure_ascii=False)
        for call in calls
    ]
    return HERMES.head + HERMES.middle.join(texts) + HERMES.tail


def _probe_tool(name: str) -> dict[str, Any]:
    properties = {KEY: {"type": "string"}}
    parameters = {"type": "object", "properties": properties, "required": [KEY]}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}


def _probe_calls(*names: str) -> dict[str, Any]:
    calls = [
        {"id": f"call{index:05}", "type": "function", "function": {"name": name, "arguments": {KEY: VALUE}}}
        for index, name in enumerate(names)
    ]
    return {"role": "assistant", "content": [], "tool_calls": calls}


def _after(prompt: str, conversation: str, turn_end: str) -> str:
    """What the assistant says, without the end of its turn."""
    begin = prompt if conversation.startswith(prompt) else prompt.rstrip()
    if not conversation.startswith(begin):
        return ""
    return conversation[len(begin) :].removesuffix(turn_end)


def _form_of(one: str, two: str) -> ToolForm | None:
    """one, two: what the assistant says with one call and with two; None for another form."""
    if one.count(FIRST) != 1 or two.count(FIRST) != 1 or two.count(SECOND) != 1:
        return None
    arguments = [ARGUMENTS.search(one), *ARGUMENTS.finditer(two)]
    if len(arguments) != 3 or arguments[0] is None:
        return None
    only, first, second = (found for found in arguments if found is not None)
    head, _, rest = one.partition(FIRST)
    between = rest[: only.start() - len(head) - len(FIRST)]
    middle = two[first.end() : two.index(SECOND)]
    name, following = NAME_FIRST.match(head), ARGUMENTS_NEXT.match(between)
    if name is None or following is None or not middle or second.start() < two.index(SECOND):
        return None
    return ToolForm(head, between, middle, one[only.end() :], name["key"], following["key"])
