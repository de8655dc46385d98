"""Several answers to one request, what they begin with, and why they ended; whole and streamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from auras_ros.engine.options import EngineOptions
from tests.checkpoints.vlm.folders import image
from tests.serve.serving import Served, asking, picture, serving, until

openai = pytest.importorskip("openai")

TOKENS = 8
WARM: dict[str, Any] = {"model": "tiny", "max_tokens": TOKENS, "temperature": 1.5, "seed": 3}
KEEP = {"ignore_eos": True}


def chat(served: Served, **fields: Any) -> Any:
    extra = KEEP | fields.pop("extra_body", {})
    return served.client().chat.completions.create(messages=asking("where"), extra_body=extra, **(WARM | fields))


def complete(served: Served, prompt: Any, **fields: Any) -> Any:
    extra = KEEP | fields.pop("extra_body", {})
    return served.client().completions.create(prompt=prompt, extra_body=extra, **(WARM | fields))


def test_each_of_several_answers_has_the_next_seed(served: Served) -> None:
    made = chat(served, n=3)
    alone = [chat(served, seed=3 + index).choices[0].message.content for index in range(3)]
    assert [choice.message.content for choice in made.choices] == alone
    assert [choice.index for choice in made.choices] == [0, 1, 2]
    assert len(set(alone)) == 3
    assert made.usage.completion_tokens == 3 * TOKENS
    assert made.usage.prompt_tokens == chat(served).usage.prompt_tokens  # the prompt is one


def test_several_answers_are_streamed_side_by_side(served: Served) -> None:
    whole = chat(served, n=2)
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(chat(served, n=2, stream=True, stream_options=options))
    texts, ends = ["", ""], [None, None]
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            ends[choice.index] = choice.finish_reason or ends[choice.index]
    assert texts == [choice.message.content for choice in whole.choices]
    assert ends == ["length", "length"]
    counts = [chunk.usage.completion_tokens for chunk in chunks]
    assert all(count <= TOKENS for count in counts[:-1])
    assert (counts[-1], chunks[-1].choices) == (2 * TOKENS, [])
    assert [choice.delta.role for chunk in chunks for choice in chunk.choices if choice.delta.role] == ["assistant"] * 2


def test_every_prompt_of_a_list_is_answered(served: Served) -> None:
    ids = served.reference.prompts.plain("the block").ids.tolist()
    made = complete(served, ["the tee", "the block"], n=2)
    alone = [complete(served, text, seed=seed).choices[0].text for text in ("the tee", "the block") for seed in (3, 4)]
    assert [choice.text for choice in made.choices] == alone
    assert [choice.index for choice in made.choices] == [0, 1, 2, 3]
    assert complete(served, [ids, ids]).choices[1].text == alone[2]
    chunks = list(complete(served, ["the tee", "the block"], stream=True))
    texts = ["".join(c.choices[0].text for c in chunks if c.choices[0].index == index) for index in (0, 1)]
    assert texts == [alone[0], alone[2]]


def test_an_answer_begins_with_its_prompt_where_that_is_asked_for(served: Served) -> None:
    text = "the tee is on"
    plain = complete(served, text, logprobs=1).choices[0]
    made = complete(served, text, echo=True, logprobs=1).choices[0]
    assert made.text == text + plain.text
    count = len(served.reference.prompts.plain(text).ids)
    assert len(made.logprobs.tokens) == count + TOKENS
    assert made.logprobs.token_logprobs[0] is None
    assert made.logprobs.top_logprobs[0] is None
    assert all(logprob <= 0 for logprob in made.logprobs.token_logprobs[1:])
    assert "".join(made.logprobs.tokens[:count]) == text
    alone = complete(served, text, echo=True, logprobs=1, max_tokens=0)
    assert (alone.choices[0].text, alone.usage.completion_tokens) == (text, 0)
    assert alone.choices[0].logprobs.token_logprobs == made.logprobs.token_logprobs[:count]
    ids = served.reference.prompts.plain(text).ids.tolist()
    assert complete(served, ids, echo=True).choices[0].text == made.text
    chunks = list(complete(served, text, echo=True, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == made.text


def test_log_probabilities_of_the_prompt_have_vllms_form(served: Served) -> None:
    made = chat(served, extra_body={"prompt_logprobs": 1})
    ids = served.post("/tokenize", {"messages": asking("where")})[1]["tokens"]
    entries = made.prompt_logprobs
    assert entries[0] is None
    assert [str(token) in entry for token, entry in zip(ids[1:], entries[1:], strict=True)] == [True] * (len(ids) - 1)
    assert all({"logprob", "rank", "decoded_token"} == set(one) for entry in entries[1:] for one in entry.values())
    choice = complete(served, "the tee", extra_body={"prompt_logprobs": 0}).choices[0]
    assert len(choice.prompt_logprobs) == len(served.reference.prompts.plain("the tee").ids)


def test_an_answer_says_what_stopped_it(served: Served) -> None:
    greedy = {"temperature": 0}
    whole = chat(served, **greedy, logprobs=True).choices[0]
    text = next(letter for letter in whole.message.content if letter.isascii())
    by_text = chat(served, **greedy, stop=[text]).choices[0]
    assert (by_text.finish_reason, by_text.stop_reason) == ("stop", text)
    tokens = [entry.token for entry in whole.logprobs.content]
    vocabulary = {served.reference.prompts.tokenizer.decode([token]): token for token in range(20, 320)}
    token = next(vocabulary[each] for each in tokens[1:] if each in vocabulary and each not in tokens[:1])
    by_token = chat(served, **greedy, extra_body={"stop_token_ids": [token]}).choices[0]
    assert (by_token.finish_reason, by_token.stop_reason) == ("stop", token)
    chunks = list(chat(served, **greedy, stop=[text], stream=True))
    assert chunks[-1].choices[0].stop_reason == text
    assert (whole.finish_reason, whole.stop_reason) == ("length", None)


def test_frames_of_a_video_are_pictures_in_their_order(served: Served) -> None:
    frames = [picture(image(40, 60, seed), "JPEG") for seed in range(2)]
    video = "data:video/jpeg;base64," + ",".join(frame.partition(",")[2] for frame in frames)

    def say(*parts: dict[str, Any]) -> str:
        messages = [{"role": "user", "content": [*parts, {"type": "text", "text": "what moved"}]}]
        made = served.client().chat.completions.create(
            model="tiny", messages=messages, max_tokens=TOKENS, temperature=0, extra_body=KEEP
        )
        text: str = made.choices[0].message.content
        return text

    pictures = [{"type": "image_url", "image_url": {"url": frame}} for frame in frames]
    assert say({"type": "video_url", "video_url": {"url": video}}) == say(*pictures)
    assert say(*pictures) != say(*reversed(pictures))


def test_each_answer_takes_a_place(folder: Path) -> None:
    """Of those that run and wait; afterwards all are free again."""
    options = EngineOptions(kv_mib=16, block=4, running=2, waiting=2)
    with serving(folder, options) as small:
        client = small.client()
        fields: dict[str, Any] = {"model": "tiny", "messages": asking("where"), "max_tokens": 400, "extra_body": KEEP}
        assert len(client.chat.completions.create(**(fields | {"n": 4, "max_tokens": 2})).choices) == 4
        stream = client.chat.completions.create(n=3, stream=True, **fields)
        next(iter(stream))
        with pytest.raises(openai.RateLimitError):
            client.chat.completions.create(n=2, **fields)
        stream.close()
        until(lambda: small.engine.open == 0 and small.service.preparing == 0)
        assert small.post("/v1/completions", {"prompt": ["a"] * 4, "max_tokens": 1})[0] == 200
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(n=5, **fields)
        assert refused.value.param == "n"
