"""Tool calls with OpenAI's own client, over a template that knows tools and over one that does not.

The weights are random, so what the model decides with `auto` is put in its mouth by the grammar of `required`; the way
from its text to the call is the server's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from auras_ros.serve.tool_use import ToolUse
from tests.checkpoints.vlm import tool_templates
from tests.checkpoints.vlm.folders import image, write
from tests.serve.serving import Served, asking, picture, serving

openai = pytest.importorskip("openai")
pytest.importorskip("llguidance")

SIDE = {
    "type": "object", "additionalProperties": False, "required": ["side", "steps"],
    "properties": {"side": {"enum": ["left", "right"]}, "steps": {"$ref": "#/$defs/few"}},
    "$defs": {"few": {"enum": [1, 2]}},
}  # fmt: skip
TOOLS = [
    {
        "type": "function",
        "function": {"name": "turn", "description": "turn the tee", "parameters": SIDE, "strict": True},
    },
    {"type": "function", "function": {"name": "stop"}},
]
WARM: dict[str, Any] = {"model": "tiny", "temperature": 1.5, "max_tokens": 1000}
NAMED = {"type": "function", "function": {"name": "turn"}}


@pytest.fixture(scope="module")
def knowing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A tiny Qwen2.5-VL whose template knows tools."""
    path = tmp_path_factory.mktemp("models") / "tiny"
    with torch.no_grad():
        write("qwen2_5_vl", path)
    (path / "chat_template.jinja").write_text(tool_templates.HERMES)
    with serving(path) as made:
        yield made


@pytest.fixture(params=["template with tools", "template without"])
def tooled(request: pytest.FixtureRequest, knowing: Served, served: Served) -> Served:
    return knowing if request.param == "template with tools" else served


def ask(tooled: Served, messages: Any = None, **fields: Any) -> Any:
    given = {"tools": TOOLS, "tool_choice": "required", "seed": 1} | fields
    return tooled.client().chat.completions.create(messages=messages or asking("turn it"), **(WARM | given))


def check_call(call: Any) -> str:
    """Its name."""
    arguments = json.loads(call.function.arguments)
    if call.function.name == "turn":
        assert set(arguments) == {"side", "steps"}
        assert arguments["side"] in ("left", "right")
        assert arguments["steps"] in (1, 2)
    else:
        assert (call.function.name, arguments) == ("stop", {})
    assert (call.type, call.id[:5]) == ("function", "call_")
    name: str = call.function.name
    return name


def test_required_calls_are_calls_of_the_tools(tooled: Served) -> None:
    names, counts = set[str](), set[int]()
    for seed in range(8):
        choice = ask(tooled, seed=seed).choices[0]
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
        names |= {check_call(call) for call in choice.message.tool_calls}
        counts.add(len(choice.message.tool_calls))
    assert names == {"turn", "stop"}
    assert max(counts) > 1
    one = [ask(tooled, seed=seed, parallel_tool_calls=False).choices[0].message.tool_calls for seed in range(8)]
    assert {len(calls) for calls in one} == {1}


def test_a_named_tool_is_called_once(tooled: Served) -> None:
    for seed in range(3):
        choice = ask(tooled, seed=seed, tool_choice=NAMED).choices[0]
        assert choice.finish_reason == "stop"
        (call,) = choice.message.tool_calls
        assert check_call(call) == "turn"


def test_a_stream_has_the_same_calls(tooled: Served) -> None:
    whole = ask(tooled).choices[0]
    chunks = list(ask(tooled, stream=True))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    calls = [call for delta in deltas for call in delta.tool_calls or []]
    assert [call.index for call in calls] == list(range(len(whole.message.tool_calls)))
    assert [call.function for call in calls] == [
        replace_type(call.function, calls[0].function) for call in whole.message.tool_calls
    ]
    assert "".join(delta.content or "" for delta in deltas) == ""
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def replace_type(given: Any, like: Any) -> Any:
    """A call of a whole answer as one of a stream's."""
    return type(like)(name=given.name, arguments=given.arguments)


def test_what_the_model_decides_to_call_is_a_call(tooled: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ToolUse.grammar
    monkeypatch.setattr(ToolUse, "grammar", lambda self, answer: real(replace(self, choice="required"), answer))
    for fields in ({"tool_choice": "auto"}, {"tool_choice": openai.NOT_GIVEN}):
        choice = ask(tooled, **fields).choices[0]
        assert choice.finish_reason == "tool_calls"
        assert [check_call(call) for call in choice.message.tool_calls]


def test_a_model_that_calls_nothing_says_what_it_says(tooled: Served) -> None:
    choice = ask(tooled, tool_choice="auto", temperature=0, max_tokens=8, extra_body={"ignore_eos": True}).choices[0]
    assert choice.message.tool_calls is None
    assert choice.message.content
    chunks = list(
        ask(tooled, tool_choice="auto", temperature=0, max_tokens=8, stream=True, extra_body={"ignore_eos": True})
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == choice.message.content


def test_without_a_choice_the_tools_are_not_there(tooled: Served) -> None:
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": 8, "extra_body": {"ignore_eos": True}}
    none = ask(tooled, tool_choice="none", **fields)
    plain = ask(tooled, tools=openai.NOT_GIVEN, tool_choice=openai.NOT_GIVEN, **fields)
    assert none.choices[0].message.content == plain.choices[0].message.content
    assert none.usage.prompt_tokens == plain.usage.prompt_tokens
    assert ask(tooled, tool_choice="auto", **fields).usage.prompt_tokens > plain.usage.prompt_tokens


def test_calls_and_results_go_to_the_model(tooled: Served) -> None:
    """As the client gives the answer back; with a picture as a result."""
    first = ask(tooled, tool_choice=NAMED)
    message = first.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "turned"}
    talk = [*asking("turn it"), message.model_dump(), result]
    fields: dict[str, Any] = {"tool_choice": "auto", "temperature": 0, "max_tokens": 4}
    second = ask(tooled, talk, **fields)
    prompt = tooled.post("/tokenize", {"messages": talk, "tools": TOOLS})[1]["tokens"]
    text = tooled.reference.prompts.tokenizer.decode(prompt, skip_special_tokens=False)
    assert second.usage.prompt_tokens == len(prompt)
    arguments = json.dumps(json.loads(message.tool_calls[0].function.arguments))
    assert f'{{"name": "turn", "arguments": {arguments}}}' in text
    assert "<tool_response>\nturned\n</tool_response>" in text
    shown = [{"type": "image_url", "image_url": {"url": picture(image(40, 60))}}]
    assert ask(tooled, [*talk[:-1], result | {"content": shown}], **fields).usage.prompt_tokens > len(prompt)


def test_an_answer_with_a_form_is_calls_or_that_form(tooled: Served) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "goal", "schema": {"enum": [True, False]}}}
    kinds = set[str]()
    for seed in range(12):
        choice = ask(tooled, seed=seed, tool_choice="auto", response_format=form).choices[0]
        if choice.message.tool_calls:
            assert all(check_call(call) for call in choice.message.tool_calls)
        else:
            assert choice.message.content in ("true", "false")
        kinds.add(choice.finish_reason)
    assert kinds == {"tool_calls", "stop"}


def test_a_call_that_the_length_cuts_off_stays_text(tooled: Served) -> None:
    choice = ask(tooled, max_tokens=12).choices[0]
    assert (choice.finish_reason, choice.message.tool_calls) == ("length", None)
    assert choice.message.content.startswith("<tool_")


def test_a_form_that_is_not_known_is_refused_by_name(tmp_path: Path) -> None:
    with torch.no_grad():
        write("qwen2_5_vl", tmp_path)
    (tmp_path / "chat_template.jinja").write_text(tool_templates.UNKNOWN)
    with serving(tmp_path, name="tiny") as made:
        status, answer = made.post("/v1/chat/completions", {"messages": asking("a"), "tools": TOOLS})
        assert (status, answer["error"]["param"]) == (400, "tools")
        assert "form that is not known" in answer["error"]["message"]
        assert made.post("/v1/chat/completions", {"messages": asking("a"), "max_tokens": 1})[0] == 200
