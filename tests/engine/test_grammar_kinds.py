"""Choices, grammars and calls of tools, and the white space of JSON.

Guards: JSON that is mostly blanks; a choice whose text is read as a pattern; a tool's schema that nobody names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.checkpoints.vlm.tool_form import HERMES
from auras_ros.engine.engine import Engine
from auras_ros.engine.request import Answer, Grammar, InvalidRequestError, VlmRequest
from auras_ros.engine.tool_grammar import CalledTool, CallText, write_tool_grammar
from auras_ros.models.sampler import Sampling
from tests.checkpoints.vlm.folders import Written
from tests.engine.making import answers, chat, ended, engine_of

pytest.importorskip("llguidance")
pytest.importorskip("transformers")
pytest.importorskip("PIL")

SIDES = {"type": "object", "properties": {"side": {"enum": ["left", "right"]}, "steps": {"enum": [1, 2]}}}
STRICT = SIDES | {"required": ["side", "steps"], "additionalProperties": False}
TEXT = CallText(HERMES.head, HERMES.between, HERMES.middle, HERMES.tail)
TURN, STOP = CalledTool("turn", STRICT, "tools[0].parameters"), CalledTool("stop", {}, "tools[1].parameters")


@pytest.fixture(scope="module")
def engine(written: Callable[[str], Written]) -> Engine:
    return engine_of(written("llava").path, block=4, waiting=64)


@pytest.fixture(scope="module")
def prompt(engine: Engine) -> VlmPrompt:
    return chat(engine.checkpoint, "is the tee left?")


@pytest.fixture(autouse=True)
def nothing_left(engine: Engine) -> Any:
    yield
    ended(engine)


def asked(engine: Engine, prompt: VlmPrompt, grammar: Grammar, count: int = 6, **others: Any) -> list[Answer]:
    """Greedy, and warm with several seeds."""
    warm = Sampling(temperature=1.5)
    requests = [VlmRequest(prompt, grammar=grammar, max_tokens=300, **others)]
    requests += [
        VlmRequest(prompt, grammar=grammar, max_tokens=300, sampling=warm, seed=seed, **others) for seed in range(count)
    ]
    return answers(engine, requests)


def test_json_has_no_white_space_unless_it_is_asked_for(engine: Engine, prompt: VlmPrompt) -> None:
    for answer in asked(engine, prompt, Grammar("json_schema", json.dumps(STRICT))):
        assert answer.finish == "stop"
        assert answer.text == json.dumps(json.loads(answer.text), separators=(",", ":"))
    spaced = asked(engine, prompt, Grammar("json_schema", json.dumps(STRICT), " "))
    assert all(re.fullmatch(r'\{ ?"side" ?: ?"\w+" ?, ?"steps" ?: ?\d ?\}', answer.text) for answer in spaced)
    assert any(" " in answer.text for answer in spaced)


CHOICES = ["left", "a+b (c)?", 'say "no"', "back\\slash", "zwei\nlines"]


def test_an_answer_is_one_of_the_choices(engine: Engine, prompt: VlmPrompt) -> None:
    made = asked(engine, prompt, Grammar("choice", json.dumps(CHOICES)), 24)
    assert {answer.text for answer in made} <= set(CHOICES)
    assert len({answer.text for answer in made}) > 1
    assert all(answer.finish == "stop" for answer in made)


GRAMMARS = {
    "lark": 'start: side " " NUMBER\nside: "left" | "right"\nNUMBER: /[0-9]{2}/',
    "gbnf": 'root ::= side " " [0-9] [0-9]\nside ::= "left" | "right"\n',
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_grammar_is_taken_in_either_notation(engine: Engine, prompt: VlmPrompt, name: str) -> None:
    for answer in asked(engine, prompt, Grammar("grammar", GRAMMARS[name])):
        assert re.fullmatch("(left|right) [0-9]{2}", answer.text)


def calls_in(text: str) -> list[dict[str, Any]]:
    return [json.loads(call) for call in re.findall(r"<tool_call>\n(.*?)\n</tool_call>", text, re.DOTALL)]


def test_calls_have_the_form_of_the_template_and_the_schema(engine: Engine, prompt: VlmPrompt) -> None:
    called = set[str]()
    for answer in asked(engine, prompt, Grammar("tools", write_tool_grammar(TEXT, [TURN, STOP], True)), 12):
        (call,) = calls_in(answer.text)
        called.add(call["name"])
        if call["name"] == "turn":
            assert set(call["arguments"]) == {"side", "steps"}
            assert call["arguments"]["side"] in ("left", "right")
        assert answer.text.startswith(HERMES.head)
    assert called == {"turn", "stop"}


def test_several_calls_may_follow_one_another(engine: Engine, prompt: VlmPrompt) -> None:
    grammar = Grammar("tools", write_tool_grammar(TEXT, [TURN], False))
    counts = [len(calls_in(answer.text)) for answer in asked(engine, prompt, grammar, 12) if answer.finish == "stop"]
    assert min(counts) >= 1
    assert max(counts) > 1


def test_an_answer_may_be_calls_or_json(engine: Engine, prompt: VlmPrompt) -> None:
    grammar = Grammar("tools", write_tool_grammar(TEXT, [TURN], True, {"enum": [1, 2, 3]}))
    texts = {answer.text[:11] for answer in asked(engine, prompt, grammar, 16)}
    assert "<tool_call>" in texts
    assert texts & {"1", "2", "3"}


def test_a_special_token_of_the_form_is_that_token(engine: Engine, prompt: VlmPrompt) -> None:
    special = engine.checkpoint.prompts.special_tokens["<image>"]
    text = CallText("<image>[", "=", "; ", "]", {"<image>": special})
    grammar = Grammar("tools", write_tool_grammar(text, [TURN], True))
    for answer in asked(engine, prompt, grammar, 4, skip_special=False):
        assert answer.ids[0] == special
        assert answer.text.startswith("<image>[turn={")


REFUSED: dict[str, tuple[Grammar, str]] = {
    "choices": (Grammar("choice", "[]"), "choice: expected a list of texts"),
    "empty choice": (Grammar("choice", '["a", ""]'), "choice: expected a list of texts, none of which is empty"),
    "many choices": (Grammar("choice", json.dumps(["a"] * 5000)), "choice: 5000 texts, expected 4096 at most"),
    "grammar": (Grammar("grammar", "start: nothing"), "grammar: "),
    "gbnf": (Grammar("grammar", 'root ::= "a" (('), "grammar: "),
    "exploding": (Grammar("grammar", "start: /a{1000000}/"), "grammar: it is too complex"),
    "keyword": (
        Grammar("tools", write_tool_grammar(TEXT, [STOP, CalledTool("turn", {"not": {}}, "tools[7].f")], True)),
        "tools: tools[7].f: ",
    ),
    "multiple": (
        Grammar("tools", write_tool_grammar(TEXT, [CalledTool("t", {"multipleOf": 1e6 + 3}, "tools[0].f")], True)),
        "tools: tools[0].f: multipleOf: 1000003",
    ),
    "blank": (Grammar("json_schema", '{"type": "object"}', "("), "json_schema: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_grammar_is_named(engine: Engine, prompt: VlmPrompt, name: str) -> None:
    grammar, text = REFUSED[name]
    with pytest.raises(InvalidRequestError) as refused:
        engine.submit(VlmRequest(prompt, grammar=grammar))
    assert str(refused.value).startswith(text)
