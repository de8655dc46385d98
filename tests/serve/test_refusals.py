"""What is refused, and what the refusal names; nothing else stops because of it."""

from __future__ import annotations

import base64
import http.client
import json
import struct
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from auras_ros.checkpoints.vlm.pictures import PictureError
from auras_ros.engine.options import EngineOptions
from auras_ros.serve.errors import ApiError
from auras_ros.serve.image_urls import read_image
from tests.checkpoints.vlm.folders import image
from tests.serve.serving import LONG_S, Served, asking, picture, serving, until

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "left"}], "max_tokens": 2}
PLAIN = {"prompt": "left", "max_tokens": 2}


def part(**fields: Any) -> dict[str, Any]:
    return HELLO | {"messages": [{"role": "user", "content": [fields]}]}


def shown(url: str, **others: Any) -> dict[str, Any]:
    return HELLO | {"messages": asking("what", url)} | others


def tool(name: str, parameters: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": name, "parameters": parameters or {}}}]


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def call(arguments: str) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": "turn", "arguments": arguments}}


URL, VIDEO = "messages[0].content[0].image_url", "messages[0].content[0].video_url"
TOOLS, CALL = tool("turn"), call("{}")
TABLE: list[tuple[str, Any, str | None, str]] = [
    (CHAT, b"{", None, "the body is not JSON"),
    (CHAT, b"[1]", None, "not a JSON object"),
    (CHAT, b'{"messages": NaN}', None, "NaN is not a number"),
    (CHAT, b'{"seed": 1, "seed": 2}', None, "'seed' stands in one object twice"),
    (CHAT, b"[" * 60_000, None, "the body is not JSON"),
    (CHAT, b"[" * 100_000, None, "more than 65536 values"),
    (CHAT, {}, "messages", "Field required"),
    (CHAT, HELLO | {"messages": []}, "messages", "at least 1"),
    (CHAT, HELLO | {"temprature": 1}, "temprature", "did you mean temperature?"),
    (CHAT, HELLO | {"temperatur": [1]}, "temperatur", "did you mean temperature?"),
    (CHAT, HELLO | {"tool_choice": "required"}, "tool_choice", "there are no tools"),
    (CHAT, HELLO | {"tool_choice": "maybe", "tools": TOOLS}, "tool_choice.type", "'required'"),
    (CHAT, HELLO | {"tool_choice": named("other"), "tools": TOOLS}, "tool_choice", "'other' is not one of the tools"),
    (CHAT, HELLO | {"tools": TOOLS * 2}, "tools[1].function.name", "is there twice"),
    (CHAT, HELLO | {"tools": TOOLS * 129}, "tools", "129 given, expected at most 128"),
    (CHAT, HELLO | {"tools": tool("a b")}, "tools[0].function.name", "pattern"),
    (CHAT, HELLO | {"tools": [{"type": "custom", "custom": {"name": "a"}}]}, "tools[0].custom", "not a field"),
    (CHAT, HELLO | {"tools": TOOLS, "guided_regex": "a"}, "guided_regex", "by tools too"),
    (CHAT, HELLO | {"tools": tool("turn", {"not": {}}), "tool_choice": "required"},
     "tools[0].function.parameters", "not"),
    (CHAT, HELLO | {"tools": tool("turn", {"multipleOf": 1e6 + 3}), "tool_choice": named("turn")},
     "tools[0].function.parameters", "multipleOf: 1000003"),
    (CHAT, HELLO | {"tools": tool("turn", {"title": "<image>"})}, "tools", "special token '<image>'"),
    (CHAT, HELLO | {"n": 0}, "n", "greater than or equal to 1"),
    (CHAT, HELLO | {"n": 100}, "n", "100 answers in one request, expected 24 at most"),
    (CHAT, HELLO | {"best_of": 2}, "best_of", "expected n (1)"),
    (CHAT, HELLO | {"presence_penalty": 2.5}, "presence_penalty", "from -2 to 2"),
    (CHAT, HELLO | {"frequency_penalty": -3}, "frequency_penalty", "from -2 to 2"),
    (CHAT, HELLO | {"logit_bias": {"left": 1}}, "logit_bias", "'left' is not a token's number"),
    (CHAT, HELLO | {"logit_bias": {"5000": 1}}, "logit_bias", "token 5000 is not one of 320"),
    (CHAT, HELLO | {"logit_bias": {"5": 200}}, "logit_bias", "from -100 to 100"),
    (CHAT, HELLO | {"min_tokens": 3}, "min_tokens", "from 0 to max_tokens"),
    (CHAT, HELLO | {"prompt_logprobs": 21}, "prompt_logprobs", "20"),
    (CHAT, HELLO | {"prompt_logprobs": 1, "stream": True}, "prompt_logprobs", "not sent in a stream"),
    (CHAT, HELLO | {"modalities": ["text", "audio"]}, "modalities", 'only ["text"]'),
    (CHAT, HELLO | {"length_penalty": 0.5}, "length_penalty", "only 1"),
    (CHAT, HELLO | {"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs", "a field of its own"),
    (CHAT, HELLO | {"max_tokens": 0}, "max_tokens", "whole number from 1"),
    (CHAT, HELLO | {"max_tokens": "2"}, "max_tokens", "valid integer"),
    (CHAT, HELLO | {"max_tokens": 5000}, "max_tokens", "maximum context length is 4096"),
    (CHAT, HELLO | {"max_completion_tokens": 5}, "max_completion_tokens", "is max_tokens"),
    (CHAT, HELLO | {"temperature": -1}, "temperature", "from 0 to 100"),
    (CHAT, HELLO | {"top_p": 0}, "top_p", "not above 0"),
    (CHAT, HELLO | {"top_k": -2}, "top_k", "whole number"),
    (CHAT, HELLO | {"stop": ["a" * 257]}, "stop", "1 to 256 characters"),
    (CHAT, HELLO | {"stop": ["a"] * 17}, "stop", "17 given, expected at most 16"),
    (CHAT, HELLO | {"stop_token_ids": list(range(300))}, "stop_token_ids", "300 given, expected at most 256"),
    (CHAT, HELLO | {"logprobs": True, "top_logprobs": 21}, "top_logprobs", "20"),
    (CHAT, HELLO | {"top_logprobs": 2}, "top_logprobs", "logprobs"),
    (CHAT, HELLO | {"stream_options": {"include_usage": True}}, "stream_options", "stream"),
    (CHAT, HELLO | {"stream_options": {"usage": True}}, "stream_options.usage", "not a field"),
    (CHAT, HELLO | {"deadline_ms": 0}, "deadline_ms", "above 0"),
    (CHAT, HELLO | {"response_format": {"type": "yaml"}}, "response_format.type", "json_schema"),
    (CHAT, HELLO | {"response_format": {"type": "json_schema"}}, "response_format", "must be there"),
    (CHAT, HELLO | {"guided_regex": "("}, "guided_regex", "regex"),
    (CHAT, HELLO | {"guided_regex": "a{1000000}"}, "guided_regex", "regex: it is too complex"),
    (CHAT, HELLO | {"guided_regex": "a{1000000}", "stream": True}, "guided_regex", "regex: it is too complex"),
    (CHAT, HELLO | {"structured_outputs": {"regex": "a{1000000}"}}, "structured_outputs", "it is too complex"),
    (CHAT, HELLO | {"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex", "too"),
    (CHAT, HELLO | {"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs", "expected one of"),
    (CHAT, HELLO | {"structured_outputs": {"grammar": "start: nothing"}}, "structured_outputs", "grammar: "),
    (CHAT, HELLO | {"guided_choice": ["a", 1]}, "guided_choice[1]", "valid string"),
    (CHAT, HELLO | {"guided_json": 7}, "guided_json", "expected a JSON schema"),
    (CHAT, HELLO | {"guided_grammar": "start: nothing"}, "guided_grammar", "grammar: "),
    (CHAT, HELLO | {"messages": [{"role": "function", "content": "x"}]}, "messages[0].role", "'assistant'"),
    (CHAT, HELLO | {"messages": [{"role": "user", "content": None}]}, "messages[0]", "content: expected a text"),
    (CHAT, HELLO | {"messages": [{"role": "user", "content": "a", "tool_calls": [CALL]}]}, "messages[0]", "tool_calls"),
    (CHAT, HELLO | {"messages": [{"role": "user", "content": "a", "tool_call_id": "1"}]}, "messages[0]",
     "only a tool's result"),
    (CHAT, HELLO | {"messages": [{"role": "assistant", "tool_calls": [call("[1]")]}]},
     "messages[0].tool_calls[0].function.arguments", "not a JSON object"),
    (CHAT, HELLO | {"messages": [{"role": "assistant", "tool_calls": [call("{")]}]},
     "messages[0].tool_calls[0].function.arguments", "not JSON"),
    (CHAT, part(type="text"), "messages[0].content[0]", "a part of type text"),
    (CHAT, part(type="text", text=5), "messages[0].content[0].text", "valid string"),
    (CHAT, part(type="audio", text="x"), "messages[0].content[0].type", "'image_url'"),
    (CHAT, part(type="text", text="<image>"), "messages[0].content[0].text", "special token '<image>'"),
    (CHAT, part(type="text", text="a" * (1 << 19), txt="b"), "messages[0].content[0].txt", "did you mean text?"),
    (CHAT, part(type="image_url", image_url={"url": "data:", "detail": "high"}), URL, "expected data:image/png"),
    (CHAT, part(type="video_url", video_url={"url": "data:video/mp4;base64,AAAA"}), VIDEO, "a video's file is not"),
    (CHAT, part(type="video_url", video_url={"url": "data:video/jpeg;base64,AAAA"}), VIDEO, "expected a file of"),
    (CHAT, part(type="video_url", video_url={"url": "data:video/jpeg;base64,AAAA,"}), VIDEO, ""),
    (CHAT, part(type="video_url", video_url={"url": "http://a/b.mp4"}), VIDEO, "http: URLs are not taken"),
    (CHAT, shown("https://example.com/a.png"), URL, "https: URLs are not taken"),
    (CHAT, shown("file:///etc/passwd"), URL, "file: URLs are not taken"),
    (CHAT, shown("data:image/gif;base64,AAAA"), URL, "expected data:image/png"),
    (CHAT, shown("data:image/png;base64,A"), URL, "not base64"),
    (CHAT, shown("data:image/png;base64,AAAA"), URL, "expected a file of JPEG, PNG, WebP"),
    (CHAT, shown(picture(image(40, 60))[:200]), URL, ""),
    (CHAT, shown(picture(Image.new("L", (2000, 501)))), URL, "501 x 2000, at most 1000000 pixels"),
    (CHAT, shown(picture(Image.new("L", (900, 2)))), URL, "more than 200 times"),
    (CHAT, HELLO | {"messages": asking("x", *[picture(image(8, 8))] * 3)},
     "messages[0].content[2].image_url", "more than 2 images"),
    (TEXT, {}, "prompt", "Field required"),
    (TEXT, PLAIN | {"prompt": ""}, "prompt", "0 tokens"),
    (TEXT, PLAIN | {"prompt": []}, "prompt", "expected a text"),
    (TEXT, PLAIN | {"prompt": 5}, "prompt", "expected a text"),
    (TEXT, PLAIN | {"prompt": ["a", ["b"]]}, "prompt", "expected a text"),
    (TEXT, PLAIN | {"prompt": ["a"] * 25}, "prompt", "25 answers in one request, expected 24 at most"),
    (TEXT, PLAIN | {"prompt": [1, 2.5]}, "prompt", "expected a text"),
    (TEXT, PLAIN | {"prompt": [1, 100_000]}, "prompt", "100000, is not one of 320"),
    (TEXT, PLAIN | {"prompt": [1, -1]}, "prompt", "-1, is not one of 320"),
    (TEXT, PLAIN | {"prompt": [3]}, "prompt", "stands for an image"),
    (TEXT, PLAIN | {"prompt": "a <image>"}, "prompt", "a place for 1 images"),
    (TEXT, PLAIN | {"prompt": "x" * 20_000}, "prompt", "maximum context length is 4096"),
    (TEXT, PLAIN | {"prompt": [5] * 4096}, "prompt", "leave no room"),
    (TEXT, PLAIN | {"prompt": "\ud800"}, "prompt", "not a text"),
    (TEXT, PLAIN | {"echo": True, "logprobs": 1, "stream": True}, "echo", "not sent in a stream"),
    (TEXT, PLAIN | {"max_tokens": 0}, "max_tokens", "whole number from 1"),
    (TEXT, PLAIN | {"logprobs": 21}, "logprobs", "from 0 to 20"),
    (TEXT, PLAIN | {"suffix": "x"}, "suffix", "not a field"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "field", "text"), TABLE, ids=lambda each: str(each)[:40])
def test_a_bad_request_is_answered_with_what_is_wrong(
    served: Served, path: str, body: Any, field: str | None, text: str
) -> None:
    forms = {"guided_regex", "guided_grammar", "structured_outputs", "tool_choice"}
    if isinstance(body, dict) and body.keys() & forms:
        pytest.importorskip("llguidance")
    status, answer = served.post(path, body)
    error = answer["error"]
    assert (status, error["type"], error["param"]) == (400, "invalid_request_error", field), error
    assert text in error["message"]
    assert len(error["message"]) < 2000
    assert served.engine.running == served.engine.waiting == 0


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "left " * 3000}]}, "messages"),
        (CHAT, HELLO | {"max_tokens": 4096}, "max_tokens"),
        (TEXT, PLAIN | {"prompt": "left " * 3000}, "prompt"),
        (TEXT, PLAIN | {"prompt": [5] * 4096}, "prompt"),
        (TEXT, PLAIN | {"prompt": [5] * 5000}, "prompt"),
    ],
    ids=lambda each: str(each)[:30],
)
def test_what_is_too_long_has_one_code_and_one_sentence(
    served: Served, path: str, body: dict[str, Any], field: str
) -> None:
    """Programs look for either."""
    status, answer = served.post(path, body)
    error = answer["error"]
    assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", field)
    assert error["message"].startswith(f"{field}: ")
    assert "this model's maximum context length is 4096 tokens" in error["message"]


def test_another_models_name_is_404(served: Served) -> None:
    status, answer = served.post(CHAT, HELLO | {"model": "gpt"})
    assert (status, answer["error"]["param"], answer["error"]["code"]) == (404, "model", "model_not_found")


def test_other_addresses_methods_and_types_are_errors_of_the_same_form(served: Served) -> None:
    assert [served.get(path)[0] for path in ("/", "/v1", "/docs", "/openapi.json", CHAT)] == [404, 404, 404, 404, 405]
    assert "error" in json.loads(served.get("/v1/nothing")[1])
    status, answer = served.post(CHAT, HELLO, Content_Type="text/plain")
    assert (status, "application/json" in answer["error"]["message"]) == (415, True)


def test_a_large_body_is_refused_while_it_comes(served: Served) -> None:
    """Announced, or in chunks of which nobody said how many there are."""
    large = HELLO | {"user": "x" * (1 << 20)}
    status, answer = served.post(CHAT, large)
    assert (status, answer["error"]["code"]) == (413, "body_too_large")
    sending = http.client.HTTPConnection("127.0.0.1", served.port, timeout=LONG_S)
    chunks = (json.dumps(large).encode()[at : at + 65536] for at in range(0, (1 << 20) + 4096, 65536))
    sending.request("POST", CHAT, chunks, {"Content-Type": "application/json"}, encode_chunked=True)
    assert sending.getresponse().status == 413
    sending.close()
    assert served.post(CHAT, HELLO)[0] == 200


def test_a_small_file_cannot_become_a_large_image(served: Served) -> None:
    size = b"IHDR" + struct.pack(">IIBBBBB", 30_000, 30_000, 1, 0, 0, 0, 0)
    chunks = [size, b"IDAT" + zlib.compress(bytes(1 << 20)), b"IEND"]
    data = b"\x89PNG\r\n\x1a\n"
    for chunk in chunks:
        data += struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    status, answer = served.post(CHAT, shown(f"data:image/png;base64,{base64.b64encode(data).decode()}"))
    assert (status, answer["error"]["param"]) == (400, URL)
    assert "pixels" in answer["error"]["message"]


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_an_image_is_upright_and_rgb(form: str) -> None:
    """A picture that a camera stored lying on its side."""
    lying = Image.new("RGB", (40, 20))
    lying.paste((255, 255, 255), (0, 0, 40, 10))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise
    upright = read_image(picture(lying, form, exif=exif), 10_000)
    assert upright.shape == (40, 20, 3)
    assert upright[20, 2].mean() < 40 < 215 < upright[20, 17].mean()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    made = read_image(picture(Image.new(mode, (8, 9))), 100)
    assert (made.shape, made.dtype.name) == ((9, 8, 3), "uint8")


def test_hidden_colours_are_not_seen() -> None:
    """All other forms of files: tests/observation/test_pictures_from_bytes.py."""
    assert (read_image(picture(Image.new("RGBA", (8, 9), (255, 0, 0, 0))), 100) == 255).all()


def test_colours_for_print_are_refused_by_name() -> None:
    with pytest.raises(PictureError, match="CMYK is not taken: save it as RGB"):
        read_image(picture(Image.new("CMYK", (8, 9)), "JPEG"), 100)


def test_a_broken_file_is_a_refusal_wherever_it_breaks(served: Served) -> None:
    """Every decoder has its own errors."""
    for form in ("PNG", "JPEG", "WEBP"):
        data = base64.b64decode(picture(image(24, 24), form).partition(",")[2])
        for end in (1, 9, 20, 30, 60, len(data) // 2, len(data) - 20):
            url = f"data:image/{form.lower()};base64,{base64.b64encode(data[:end]).decode()}"
            status, answer = served.post(CHAT, shown(url))
            assert status == 200 or answer["error"]["param"] == URL, (form, end, answer)


def test_a_bad_request_does_not_hurt_a_good_one(served: Served) -> None:
    fields = {"max_tokens": 60, "extra_body": {"ignore_eos": True}, "messages": asking("how many")}
    alone = served.client().chat.completions.create(model="tiny", **fields).choices[0].message.content
    stream = served.client().chat.completions.create(model="tiny", stream=True, **fields)
    text = ""
    for index, chunk in enumerate(stream):
        text += chunk.choices[0].delta.content or ""
        if index % 8 == 0:
            assert served.post(CHAT, shown("data:image/png;base64,AAAA"))[0] == 400
    assert text == alone


def test_a_request_is_never_counted_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where the engine has it already, and whoever reads it has not left its place yet."""
    options = EngineOptions(kv_mib=16, block=4, running=1, waiting=1)
    with serving(folder, options, started=False) as full, ThreadPoolExecutor(1) as pool:
        submit, seen, others = full.engine.submit, list[ApiError | None](), list[threading.Thread]()

        def look() -> None:
            try:
                with full.service.place():
                    seen.append(None)
            except ApiError as error:
                seen.append(error)

        def submitted(*given: Any) -> Any:
            reply = submit(*given)
            others.append(threading.Thread(target=look))
            others[0].start()
            others[0].join(0.2)  # it waits until the place is left
            return reply

        monkeypatch.setattr(full.engine, "submit", submitted)
        answer = pool.submit(full.post, CHAT, HELLO)
        until(lambda: bool(seen))
        assert seen == [None]
        others[0].join()
        full.engine.start()
        assert answer.result(LONG_S)[0] == 200


def test_one_too_many_is_429_with_the_reason(folder: Path) -> None:
    openai = pytest.importorskip("openai")
    options = EngineOptions(kv_mib=16, block=4, running=1, waiting=1)
    with serving(folder, options, started=False) as full:
        client = full.client()
        with ThreadPoolExecutor(2) as pool:
            both = [pool.submit(full.post, CHAT, HELLO) for _ in range(2)]
            until(lambda: full.engine.waiting == 2)
            with pytest.raises(openai.RateLimitError) as refused:
                client.chat.completions.create(model="tiny", messages=HELLO["messages"])
            assert refused.value.response.headers["retry-after"] == "1"
            assert "the engine is full: 2 requests run or wait, 2 at most" in str(refused.value)
            assert refused.value.code == "engine_full"
            full.engine.start()
            assert [each.result(LONG_S)[0] for each in both] == [200, 200]
        assert full.metric('auras_refused_total{status="429"}') == 1
        assert full.post(CHAT, HELLO)[0] == 200
