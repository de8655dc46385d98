"""The Responses API and the routes beside it, with OpenAI's own client."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.checkpoints.vlm.folders import image
from tests.serve.serving import Served, asking, picture, serving

openai = pytest.importorskip("openai")

TOKENS = 8
TURN = {
    "type": "function", "name": "turn", "strict": True,
    "parameters": {
        "type": "object", "properties": {"side": {"enum": ["left", "right"]}}, "required": ["side"],
        "additionalProperties": False,
    },
}  # fmt: skip


def respond(served: Served, given: Any = "where is the tee", **fields: Any) -> Any:
    base = {"model": "tiny", "max_output_tokens": TOKENS, "temperature": 0}
    return served.client().responses.create(input=given, **(base | fields))


def chat_text(served: Served, messages: Any) -> str:
    made = served.client().chat.completions.create(model="tiny", messages=messages, max_tokens=TOKENS, temperature=0)
    text: str = made.choices[0].message.content
    return text


def test_it_says_what_a_conversation_says(served: Served) -> None:
    made = respond(served, instructions="be brief", store=True, metadata={"run": "7"})
    assert made.output_text == chat_text(
        served, [{"role": "system", "content": "be brief"}, {"role": "user", "content": "where is the tee"}]
    )
    assert (made.object, made.status, made.model) == ("response", "incomplete", "tiny")
    assert made.incomplete_details.reason == "max_output_tokens"
    assert (made.usage.output_tokens, made.usage.total_tokens) == (TOKENS, made.usage.input_tokens + TOKENS)
    url = picture(image(40, 60))
    parts = [{"type": "input_image", "image_url": url, "detail": "low"}, {"type": "input_text", "text": "what"}]
    assert respond(served, [{"role": "user", "content": parts}]).output_text == chat_text(served, asking("what", url))


def test_an_earlier_answer_can_be_given_back(served: Served) -> None:
    first = respond(served)
    talk = [{"role": "user", "content": "where is the tee"}, *first.output, {"role": "user", "content": "and now"}]
    again = respond(served, talk)
    wanted = chat_text(
        served,
        [
            {"role": "user", "content": "where is the tee"},
            {"role": "assistant", "content": first.output_text},
            {"role": "user", "content": "and now"},
        ],
    )
    assert again.output_text == wanted


def test_a_stream_has_the_events_of_the_api(served: Served) -> None:
    whole = respond(served)
    events = list(respond(served, stream=True))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
    ]  # fmt: skip
    assert kinds[-4:] == [
        "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete",
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert events[-1].response.output_text == whole.output_text
    assert events[-1].response.usage == whole.usage


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "turn"}], ids=str)
def test_tools_are_called_and_their_results_given_back(served: Served, choice: Any) -> None:
    pytest.importorskip("llguidance")
    fields: dict[str, Any] = {"tools": [TURN], "tool_choice": choice, "max_output_tokens": 300, "temperature": 1.5}
    made = respond(served, parallel_tool_calls=False, **fields)
    (call,) = made.output
    assert (call.type, call.name) == ("function_call", "turn")
    assert json.loads(call.arguments)["side"] in ("left", "right")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "turned"}
    talk = [{"role": "user", "content": "turn it"}, *made.output, result]
    assert respond(served, talk, tools=[TURN]).output_text
    events = list(respond(served, parallel_tool_calls=False, stream=True, **fields))
    done = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert json.loads(done[0].arguments)["side"] in ("left", "right")
    assert events[-1].response.output[0].arguments == done[0].arguments


def test_an_answer_has_the_form_that_was_asked_for(served: Served) -> None:
    pytest.importorskip("llguidance")
    form = {"type": "json_schema", "name": "goal", "schema": {"enum": [True, False]}, "strict": True}
    made = respond(served, text={"format": form})
    assert (made.output_text in ("true", "false"), made.status) == (True, "completed")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"background": True}, "background"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [TURN | {"parameters": {"not": {}}}], "tool_choice": "required"}, "tools[0].parameters"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://a/b.png"}]}]}, "input"),
    ({"input": [{"type": "item_reference", "id": "a"}]}, "input[0].type"),
    ({"input": "left " * 3000}, "input"),
    ({"max_output_tokens": 5000}, "max_output_tokens"),
    ({"include": ["file_search_call.results"]}, "include"),
    ({"truncation": "auto"}, "truncation"),
    ({"instruction": "a"}, "instruction"),
]


@pytest.mark.parametrize(("fields", "field"), REFUSED, ids=lambda each: str(each)[:40])
def test_what_needs_a_store_or_is_wrong_is_refused_by_its_own_name(
    served: Served, fields: dict[str, Any], field: str
) -> None:
    status, answer = served.post("/v1/responses", {"input": "where"} | fields)
    assert (status, answer["error"]["param"]) == (400, field), answer
    assert answer["error"]["message"].startswith(field)


def test_tokens_of_a_text_and_of_a_conversation(served: Served) -> None:
    prompts = served.reference.prompts
    status, made = served.post("/tokenize", {"prompt": "the tee", "return_token_strs": True})
    ids = prompts.plain("the tee").ids.tolist()
    assert (status, made["tokens"], made["count"], made["max_model_len"]) == (200, ids, len(ids), 4096)
    assert len(made["token_strs"]) == len(ids)
    assert served.post("/detokenize", {"model": "tiny", "tokens": ids})[1] == {"prompt": "the tee"}
    url = picture(image(40, 60))
    talked = served.post("/tokenize", {"model": "tiny", "messages": asking("what", url)})[1]
    usage = served.client().chat.completions.create(model="tiny", messages=asking("what", url), max_tokens=1).usage
    assert talked["count"] == usage.prompt_tokens
    ended = served.post("/tokenize", {"messages": asking("what", url), "add_generation_prompt": False})[1]
    assert ended["count"] < talked["count"]
    for path, body, field in (
        ("/tokenize", {}, ""),
        ("/tokenize", {"prompt": "a", "messages": asking("b")}, ""),
        ("/detokenize", {"tokens": [5, 5000]}, "tokens[1]"),
        ("/detokenize", {"tokens": ["a"]}, "tokens[0]"),
        ("/tokenize", {"prompt": "a" * (1 << 19), "promt": "b"}, "promt"),
    ):
        status, answer = served.post(path, body)
        assert (status, answer["error"]["param"] or "") == (400, field)
    assert served.post("/tokenize", {"model": "gpt", "prompt": "a"})[0] == 404


def test_the_small_routes(served: Served) -> None:
    from auras_ros import __version__

    assert json.loads(served.get("/version")[1]) == {"version": __version__}
    assert json.loads(served.get("/ping")[1])["status"] == json.loads(served.get("/health")[1])["status"] == "ok"
    assert served.post("/ping", {})[0] == 200
    assert json.loads(served.get("/load")[1]) == {"server_load": 0}
    with pytest.raises(openai.BadRequestError, match="make no embeddings"):
        served.client().embeddings.create(model="tiny", input="where")


def test_only_the_questions_whether_it_lives_need_no_token(folder: Any) -> None:
    with serving(folder, token="secret") as guarded:
        assert [guarded.get(path)[0] for path in ("/ping", "/health")] == [200, 200]
        assert [guarded.get(path)[0] for path in ("/version", "/load", "/v1/models")] == [401, 401, 401]
        assert guarded.post("/tokenize", {"prompt": "a"})[0] == 401
