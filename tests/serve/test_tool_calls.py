"""Calls in an answer's text, in pieces of every size.

Guards: a mark that is said because it came in two pieces; a call that is lost, or given before its JSON is whole; an
argument that holds the mark; text that only looks like a call.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from auras_ros.checkpoints.vlm.tool_form import HERMES, ToolForm
from auras_ros.serve.tool_calls import ToolCall, ToolCallReader

MISTRAL = ToolForm('[TOOL_CALLS][{"name": "', '", "arguments": ', '}, {"name": "', "}]", "name", "arguments")
LLAMA = ToolForm('{"name": "', '", "parameters": ', '}; {"name": "', "}", "name", "parameters")
TURN, END = ("turn", {"side": "left"}), ("say", {"text": 'a "b" </tool_call> [c] {d} \n é'})


def written(form: ToolForm, *calls: tuple[str, Any]) -> str:
    texts = [name + form.between + json.dumps(arguments, ensure_ascii=False) for name, arguments in calls]
    return form.head + form.middle.join(texts) + form.tail


def read(form: ToolForm, text: str, seed: int | None, single: bool = False) -> tuple[str, list[tuple[str, Any]]]:
    """seed: of the sizes of the pieces; None: all at once."""
    chance = random.Random(seed)
    reader, said = ToolCallReader(form, {"turn", "say"}, single), list[Any]()
    while text:
        size = len(text) if seed is None else chance.randrange(1, 6)
        said += reader.push(text[:size])
        text = text[size:]
    said += reader.end()
    calls = [(part.name, json.loads(part.arguments)) for part in said if isinstance(part, ToolCall)]
    assert reader.calls == len(calls)
    return "".join(part for part in said if isinstance(part, str)), calls


CASES: dict[str, tuple[ToolForm, str, str, list[tuple[str, Any]]]] = {
    "one": (HERMES, written(HERMES, TURN), "", [TURN]),
    "two": (HERMES, written(HERMES, TURN, END), "", [TURN, END]),
    "said before": (HERMES, "I turn it.\n" + written(HERMES, END), "I turn it.", [END]),
    "said after": (HERMES, written(HERMES, TURN) + " done", " done", [TURN]),
    "said between": (HERMES, written(HERMES, TURN) + " and " + written(HERMES, END), " and", [TURN, END]),
    "without end": (HERMES, written(HERMES, TURN).removesuffix("\n</tool_call>"), "", [TURN]),
    "compact": (HERMES, '<tool_call>{"arguments":{"side":"left"},"name":"turn"}</tool_call>', "", [TURN]),
    "arguments as a text": (
        HERMES, '<tool_call>{"name": "turn", "arguments": "{\\"side\\": \\"left\\"}"}</tool_call>', "", [TURN]
    ),
    "mistral": (MISTRAL, "So: " + written(MISTRAL, TURN, END), "So:", [TURN, END]),
    "llama": (LLAMA, written(LLAMA, TURN, END), "", [TURN, END]),
    "llama says": (LLAMA, "it is {left}", "it is {left}", []),
    "nothing": (HERMES, "the tee <tool is left \n", "the tee <tool is left \n", []),
    "empty": (HERMES, "", "", []),
}  # fmt: skip


@pytest.mark.parametrize("seed", [None, *range(6)])
@pytest.mark.parametrize("name", CASES)
def test_text_and_calls_are_told_apart(name: str, seed: int | None) -> None:
    form, text, said, calls = CASES[name]
    assert read(form, text, seed) == (said, calls)


STAYS = [
    '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>',
    '<tool_call>\n{"name": ["turn"], "arguments": {}}\n</tool_call>',
    '<tool_call>\n{"name": "turn", "arguments": [1]}\n</tool_call>',
    '<tool_call>\n{"name": "turn", "arguments": {"a": NaN}}\n</tool_call>',
    '<tool_call>\n{"name": "turn", "argu',
    "<tool_call>\nturn(left)\n</tool_call> and so on",
    "<tool_call>" + "[" * 5000 + "</tool_call>",
    "<tool_call></tool_call>",
]


@pytest.mark.parametrize("text", STAYS, ids=lambda each: each[10:40])
@pytest.mark.parametrize("seed", [None, 1])
def test_what_is_no_call_stays_text(text: str, seed: int | None) -> None:
    assert read(HERMES, text, seed) == (text, [])


@pytest.mark.parametrize("text", [written(HERMES, TURN, END), written(HERMES, TURN) + written(HERMES, END)])
def test_one_call_where_only_one_is_wanted(text: str) -> None:
    assert read(HERMES, text, 3, single=True) == ("", [TURN])


def test_a_call_comes_as_soon_as_it_is_whole() -> None:
    reader = ToolCallReader(HERMES, {"turn"}, False)
    text = written(HERMES, TURN)
    assert reader.push(text[:-1]) == []
    (call,) = reader.push(text[-1] + " then")[:1]
    assert isinstance(call, ToolCall)
    assert call.id.startswith("call_")
