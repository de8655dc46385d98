"""OpenAI's own client against the server: the answers are the model's, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from auras_ros.serve.token_text import TokenTexts
from tests.checkpoints.vlm.decoding import greedy
from tests.checkpoints.vlm.folders import image
from tests.serve.serving import Served, asking, picture

openai = pytest.importorskip("openai")
TOKENS = 12
SCHEMA = {
    "type": "object", "additionalProperties": False, "required": ["goal", "count"],
    "properties": {"goal": {"type": "boolean"}, "count": {"enum": [1, 2, 3]}},
}  # fmt: skip


def expected(served: Served, text: str, *pictures: Any) -> tuple[list[int], str]:
    """Greedy tokens without an engine, and their text."""
    parts = [{"type": "image"}] * len(pictures) + [{"type": "text", "text": text}]
    prompts = served.reference.prompts
    ids = greedy(served.reference.model, prompts.chat([{"role": "user", "content": parts}], pictures), TOKENS)
    return ids, prompts.tokenizer.decode(ids, skip_special_tokens=True)


def ask(served: Served, text: str, *urls: str, **others: Any) -> Any:
    fields = {
        "model": "tiny",
        "max_tokens": TOKENS,
        "extra_body": {"ignore_eos": True},
        "messages": asking(text, *urls),
    }
    return served.client().chat.completions.create(**(fields | others))


@pytest.mark.parametrize("pictures", [(), (image(40, 60),), (image(40, 60), image(33, 32, 1))], ids=len)
def test_a_conversation_is_answered_as_the_model_answers(served: Served, pictures: tuple[Any, ...]) -> None:
    ids, text = expected(served, "how many red things", *pictures)
    made = ask(served, "how many red things", *map(picture, pictures), logprobs=True, top_logprobs=2)
    choice = made.choices[0]
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", text, "length")
    texts = TokenTexts(served.reference.prompts.tokenizer)
    assert [each.token for each in choice.logprobs.content] == [texts(token).label for token in ids]
    for each in choice.logprobs.content:
        assert [top.logprob for top in each.top_logprobs] == sorted(
            (top.logprob for top in each.top_logprobs), reverse=True
        )
        assert (each.token, each.logprob) == (each.top_logprobs[0].token, each.top_logprobs[0].logprob)
    assert (made.object, made.model, made.id[:9]) == ("chat.completion", "tiny", "chatcmpl-")
    assert made.usage.completion_tokens == TOKENS
    assert made.usage.total_tokens == made.usage.prompt_tokens + TOKENS


@pytest.mark.parametrize("logprobs", [False, True])
def test_a_stream_says_the_same(served: Served, logprobs: bool) -> None:
    fields: dict[str, Any] = {"logprobs": True, "top_logprobs": 1} if logprobs else {}
    whole = ask(served, "the tee", picture(image(40, 60)), **fields)
    chunks = list(
        ask(served, "the tee", picture(image(40, 60)), stream=True, stream_options={"include_usage": True}, **fields)
    )
    assert {(each.id, each.object) for each in chunks} == {(chunks[0].id, "chat.completion.chunk")}
    assert chunks[0].choices[0].delta.role == "assistant"
    pieces = [choice for each in chunks for choice in each.choices]
    assert "".join(piece.delta.content or "" for piece in pieces) == whole.choices[0].message.content
    assert [piece.finish_reason for piece in pieces if piece.finish_reason] == ["length"]
    if logprobs:
        entries = [entry for piece in pieces if piece.logprobs for entry in piece.logprobs.content]
        assert entries == whole.choices[0].logprobs.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].choices == []
    assert [each.usage for each in chunks[:-1]] == [None] * (len(chunks) - 1)


def test_a_completion_takes_text_or_tokens(served: Served) -> None:
    prompts = served.reference.prompts
    prompt = prompts.plain("the tee is on")
    ids = greedy(served.reference.model, prompt, TOKENS)
    text = prompts.tokenizer.decode(ids, skip_special_tokens=True)
    fields: dict[str, Any] = {"model": "tiny", "max_tokens": TOKENS, "extra_body": {"ignore_eos": True}}
    client = served.client().completions
    for asked in ("the tee is on", prompt.ids.tolist(), ["the tee is on"], [prompt.ids.tolist()]):
        made = client.create(prompt=asked, **fields)
        assert (made.choices[0].text, made.choices[0].finish_reason) == (text, "length")
    made = client.create(prompt="the tee is on", logprobs=2, **fields).choices[0]
    texts = TokenTexts(prompts.tokenizer)
    assert made.logprobs.tokens == [texts(each).label for each in ids]
    assert len(made.logprobs.text_offset) == len(made.logprobs.token_logprobs) == TOKENS
    assert [max(each.values()) for each in made.logprobs.top_logprobs] == made.logprobs.token_logprobs
    chunks = list(client.create(prompt="the tee is on", logprobs=2, stream=True, **fields))
    assert "".join(each.choices[0].text for each in chunks) == text
    entries = [each.choices[0].logprobs for each in chunks if each.choices[0].logprobs]
    assert [token for each in entries for token in each.tokens] == made.logprobs.tokens
    assert [offset for each in entries for offset in each.text_offset] == made.logprobs.text_offset


def test_an_answer_has_the_form_that_was_asked_for(served: Served) -> None:
    pytest.importorskip("llguidance")
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    made = ask(served, "where", response_format=form, max_tokens=200, extra_body={})
    answer = json.loads(made.choices[0].message.content)
    assert (type(answer["goal"]), answer["count"] in (1, 2, 3), made.choices[0].finish_reason) == (bool, True, "stop")
    for extra, expected_text in (
        ({"guided_regex": "(left|right)"}, ("left", "right")),
        ({"structured_outputs": {"regex": "[0-9]"}}, tuple("0123456789")),
        ({"structured_outputs": {"json": {"const": 7}}}, ("7",)),
    ):
        assert ask(served, "where", max_tokens=50, extra_body=extra).choices[0].message.content in expected_text
    some = ask(served, "where", response_format={"type": "json_object"}, max_tokens=3, extra_body={})
    assert some.choices[0].message.content.startswith("{")


def test_a_stop_text_is_not_in_the_answer(served: Served) -> None:
    _, text = expected(served, "the block")
    stop = text[4]
    made = ask(served, "the block", stop=[stop])
    assert (made.choices[0].message.content, made.choices[0].finish_reason) == (text.split(stop)[0], "stop")
    chunks = list(ask(served, "the block", stop=stop, stream=True))
    assert "".join(each.choices[0].delta.content or "" for each in chunks) == text.split(stop)[0]
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_a_seed_gives_the_same_answer_again(served: Served) -> None:
    made = [ask(served, "left", temperature=1.5, top_p=0.9, seed=seed) for seed in (3, 3, 4)]
    first, again, other = (each.choices[0].message.content for each in made)
    assert first == again != other


def test_a_deadline_is_told_as_a_length_with_its_reason(served: Served) -> None:
    made = ask(served, "left", max_tokens=3000, extra_body={"deadline_ms": 30, "ignore_eos": True})
    choice = made.choices[0]
    assert (choice.finish_reason, choice.finish_detail) == ("length", "deadline")
    assert made.usage.completion_tokens < 3000


def test_the_model_is_listed(served: Served) -> None:
    client = served.client()
    assert [each.id for each in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").max_model_len == served.engine.length
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve("other")
    assert refused.value.code == "model_not_found"


def test_null_fields_count_as_absent(served: Served) -> None:
    made = served.post(
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "left", "name": None}], "max_tokens": 1, "stop": None, "tools": None},
    )
    assert made[0] == 200
