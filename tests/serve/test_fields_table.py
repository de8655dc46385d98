"""docs/serve.md says what clients may send: every example of its tables, sent with OpenAI's own client.

Guards: a field that the page takes and the server refuses, or the other way round; a field that is ignored and changes
the answer; a row that nobody tries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from auras_ros.cli import serve as command
from auras_ros.parameters import ParameterError
from auras_ros.serve.options import NEEDLESS, VLLM_NAMES, make_options
from tests.checkpoints.vlm.folders import image
from tests.serve.serving import Served, picture

openai = pytest.importorskip("openai")

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"
VERDICTS = ("taken", "ignored", "refused")
FUNCTION = {"name": "turn", "parameters": {"type": "object", "properties": {"side": {"enum": ["left", "right"]}}}}
GIVEN = {
    "TOOLS": json.dumps([{"type": "function", "function": FUNCTION}]),
    "IMAGE": json.dumps(picture(image(40, 60))),
    "FRAMES": json.dumps(
        "data:video/jpeg;base64,"
        + ",".join(picture(image(40, 60, seed), "JPEG").partition(",")[2] for seed in range(2))
    ),
}
QUESTION = [{"role": "user", "content": "where is the tee"}]
TOKENS = 6


class Row(NamedTuple):
    """names: in the first column. example: what is sent; None in a table without examples."""

    table: str
    names: tuple[str, ...]
    verdict: str
    example: Any


def rows() -> Iterator[Row]:
    """The rows of all tables whose second column is a verdict, with the heading or the name that stands above them."""
    table = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            table = line.lstrip("# ")
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) < 3:
            continue
        if cells[1] == "" and cells[0] in ("role", "field of a message", "part of a message"):
            table = cells[0]
        if cells[1] not in VERDICTS:
            continue
        names = tuple(re.findall(r"`([^`]+)`", cells[0])) or (cells[0],)
        text = cells[2].strip("`")
        for name, value in GIVEN.items():
            text = re.sub(rf"\b{name}\b", lambda _, value=value: value, text)  # type: ignore[misc]
        has_example = table in EXAMPLES
        yield Row(table, names, cells[1], json.loads(text) if has_example else None)


EXAMPLES = (
    "Both kinds of requests", "Conversations", "Completions", "role", "field of a message", "part of a message",
)  # fmt: skip
ROWS = list(rows())


def of(*tables: str) -> Any:
    chosen = [row for row in ROWS if row.table in tables]
    return pytest.mark.parametrize("row", chosen, ids=[f"{row.table[:4]}-{row.names[0]}" for row in chosen])


def chat(served: Served, messages: list[dict[str, Any]], fields: dict[str, Any]) -> Any:
    """What it says, or the refusal. Fields that the client does not know are sent as they are."""
    body = {"temperature": 0, "max_tokens": TOKENS, "ignore_eos": True} | fields
    return said(served.client().chat.completions, {"messages": messages}, body)


def complete(served: Served, fields: dict[str, Any]) -> Any:
    body = {"temperature": 0, "max_tokens": TOKENS, "ignore_eos": True} | fields
    prompt = body.pop("prompt", "the tee is on")
    return said(served.client().completions, {"prompt": prompt}, body)


def said(resource: Any, needed: dict[str, Any], body: dict[str, Any]) -> Any:
    stream = bool(body.pop("stream", False))
    model = body.pop("model", "tiny")
    try:
        made = resource.create(model=model, stream=stream, extra_body=body, **needed)
        if stream:
            return [chunk.model_dump() for chunk in made]
        return [choice.model_dump(exclude={"logprobs", "stop_reason"}) for choice in made.choices]
    except openai.BadRequestError as error:
        return error


def check(row: Row, made: Any, plain: Any) -> None:
    if row.verdict == "refused":
        assert isinstance(made, openai.BadRequestError), made
        named = "role" if row.table == "role" else re.split("[: .]", row.names[0])[0]
        assert named in str(made.message) or named in str(made.param)
        return
    assert not isinstance(made, Exception), made
    assert made
    if row.verdict == "ignored":
        assert made == plain


@of("Both kinds of requests", "Conversations")
def test_a_field_of_a_conversation_is_what_the_page_says(served: Served, row: Row) -> None:
    if "guided" in row.names[0] or "structured" in row.names[0] or "response_format" in row.names[0]:
        pytest.importorskip("llguidance")
    assert any(name in row.example or name.partition(":")[0] in row.example for name in row.names)
    check(row, chat(served, QUESTION, row.example), chat(served, QUESTION, {}))


@of("Both kinds of requests", "Completions")
def test_a_field_of_a_completion_is_what_the_page_says(served: Served, row: Row) -> None:
    if "guided" in row.names[0] or "structured" in row.names[0] or "response_format" in row.names[0]:
        pytest.importorskip("llguidance")
    check(row, complete(served, row.example), complete(served, {}))


@of("role")
def test_a_role_is_what_the_page_says(served: Served, row: Row) -> None:
    check(row, chat(served, [*QUESTION, row.example, *QUESTION], {}), None)


@of("field of a message")
def test_a_field_of_a_message_is_what_the_page_says(served: Served, row: Row) -> None:
    check(row, chat(served, [QUESTION[0] | row.example], {}), chat(served, QUESTION, {}))


@of("part of a message")
def test_a_part_of_a_message_is_what_the_page_says(served: Served, row: Row) -> None:
    text = {"type": "text", "text": "what"}
    plain = json.loads(json.dumps(row.example))
    if row.verdict == "ignored":
        del plain["image_url"]["detail"]
    made = chat(served, [{"role": "user", "content": [row.example, text]}], {})
    if isinstance(made, Exception):
        assert "messages[0].content[0]" in str(made)
        assert row.verdict == "refused"
        return
    assert row.verdict != "refused"
    assert made == chat(served, [{"role": "user", "content": [plain, text]}], {})


@pytest.mark.parametrize("detail", ["auto", "low", "high", "original"])
def test_a_hint_at_a_pictures_detail_changes_nothing(served: Served, detail: str) -> None:
    def seen(**hint: str) -> Any:
        part = {"type": "image_url", "image_url": {"url": picture(image(40, 60)), **hint}}
        return chat(served, [{"role": "user", "content": [part]}], {})

    assert seen(detail=detail) == seen()


@of("Routes that other servers have")
def test_a_route_is_what_the_page_says(served: Served, row: Row) -> None:
    method, path = row.names[0].split()
    bodies = {
        "/tokenize": {"prompt": "the tee"},
        "/detokenize": {"tokens": [40, 41]},
        "/v1/responses": {"input": "where", "max_output_tokens": 3},
        "/v1/embeddings": {"input": "where"},
    }
    status = served.get(path)[0] if method == "GET" else served.post(path, bodies.get(path, {}))[0]
    assert (status == 200) == (row.verdict == "taken")
    assert status in (200, 400, 404)


OPTIONS = [(row, name) for row in ROWS if row.table == "Options by vLLM's names" for name in row.names]


@pytest.mark.parametrize(("row", "name"), OPTIONS, ids=lambda each: each if isinstance(each, str) else "")
def test_an_option_is_what_the_page_says(
    row: Row, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On the command line and in a file."""
    option = name.removeprefix("--").replace("-", "_")
    values = {"name": "m", "prefix_cache": True, "chunked": True, "api_key": "secret"}
    given: dict[str, Any] = {}
    monkeypatch.setattr(command, "_serve", lambda own, engine: given.update(vars(own) | vars(engine)) or 0)
    value = values.get(VLLM_NAMES.get(option, option), 2)
    is_switch = row.verdict == "ignored" or value is True
    arguments = [str(tmp_path), name] + ([] if is_switch else [str(value)])
    if row.verdict == "refused":
        with pytest.raises(SystemExit):
            command.run(arguments)
        assert name in capsys.readouterr().err
        with pytest.raises(ParameterError, match=f"no option '{option}'"):
            make_options({option: value})
        return
    assert command.run(arguments) == 0
    if row.verdict == "ignored":
        assert option in NEEDLESS
        make_options({option: True})
        return
    own, engine = make_options({option: value})
    assert given[VLLM_NAMES.get(option, option)] == value
    assert (vars(own) | vars(engine))[VLLM_NAMES.get(option, option)] == value


def test_every_alias_and_every_name_of_the_reviews_is_a_row() -> None:
    named = {name.partition("=")[0] for row in ROWS for name in row.names}
    assert {f"--{name.replace('_', '-')}" for name in (*VLLM_NAMES, *NEEDLESS, "api_key")} <= named
    reviewed = (
        "tools tool_choice parallel_tool_calls store metadata service_tier prompt_cache_key safety_identifier "
        "modalities reasoning_effort image_url.detail n logit_bias frequency_penalty presence_penalty "
        "structured_outputs guided_json guided_choice guided_grammar min_tokens best_of skip_special_tokens "
        "chat_template_kwargs add_generation_prompt stream_options echo suffix prompt video_url developer tool name "
        "prompt_logprobs include_stop_str_in_output stop"
    )
    assert [field for field in reviewed.split() if field not in named] == []
    routes = {name.split()[-1] for row in ROWS for name in row.names if row.table.startswith("Routes")}
    wanted = {"/v1/embeddings", "/v1/responses", "/tokenize", "/detokenize", "/version", "/ping", "/load", "/sleep"}
    assert wanted <= routes


NOTHING: list[dict[str, Any]] = [
    {"tools": []}, {"tool_choice": "none"}, {"tool_choice": "auto"}, {"parallel_tool_calls": True}, {"logit_bias": {}},
    {"functions": []}, {"stop": ""}, {"stop": [""]}, {"structured_outputs": {}}, {"response_format": {}},
    {"response_format": {"type": "text"}}, {"n": 1}, {"logprobs": False}, {"seed": None}, {"audio": None},
    {"something_new": False}, {"something_new": []}, {"something_new": {}}, {"something_new": ""}, {"documents": []},
    {"use_beam_search": False}, {"continue_final_message": False}, {"guided_regex": ""}, {"stream_options": None},
]  # fmt: skip


@pytest.mark.parametrize("fields", NOTHING, ids=str)
def test_a_field_that_asks_for_nothing_changes_nothing(served: Served, fields: dict[str, Any]) -> None:
    assert chat(served, QUESTION, fields) == chat(served, QUESTION, {})


def test_a_hint_never_proposes_the_field_itself(served: Served) -> None:
    """Names of other objects are no hints either."""
    message = QUESTION[0] | {"detail": "low"}
    for body, field in (
        ({"messages": [message]}, "messages[0].detail"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "name": "b"}]}]},
         "messages[0].content[0].name"),
        ({"messages": QUESTION, "content": "x"}, "content"),
    ):  # fmt: skip
        status, answer = served.post("/v1/chat/completions", body)
        error = answer["error"]
        assert (status, error["param"], error["code"]) == (400, field, "unknown_field")
        meant = re.search(r"did you mean (\w+)\?", error["message"])
        assert meant is None or meant[1] != field.rpartition(".")[2]
