"""Requests that are small to send and were large to answer; and work that nobody waits for any more."""

from __future__ import annotations

import base64
import json
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from auras_ros.live.soak_vlm.attacks.bodies import progressive_jpeg
from auras_ros.serve.errors import ApiError
from auras_ros.serve.fields import ChatFields, CommonFields, CompletionFields
from auras_ros.serve.image_urls import read_image
from auras_ros.serve.json_body import MOST_VALUES, read_json
from auras_ros.serve.request_fields import read_fields
from tests.checkpoints.vlm.folders import image
from tests.serve.serving import LONG_S, Served, asking, picture, serving, until
from tests.serve.test_server import send

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = {"messages": asking("left"), "max_tokens": 2}
MIB = 1 << 20


def list_of(item: bytes, count: int) -> bytes:
    return b"[" + (item + b",") * (count - 1) + item + b"]"


def chat(content: bytes = b'"a"', rest: bytes = b"") -> bytes:
    return b'{"messages": [{"role": "user", "content": ' + content + b"}]" + rest + b"}"


NAMES = b"".join(b', "x%d": 1' % number for number in range(60_000))
LISTS: dict[str, tuple[bytes, str | None, str]] = {
    "stop, 700,000": (chat(rest=b', "stop": ' + list_of(b"1", 700_000)), None, f"more than {MOST_VALUES} values"),
    "stop, 8 million": (chat(rest=b', "stop": ' + list_of(b"1", 8_000_000)), None, f"more than {MOST_VALUES} values"),
    "content, 700,000": (chat(list_of(b"1", 700_000)), None, f"more than {MOST_VALUES} values"),
    "stop": (chat(rest=b', "stop": ' + list_of(b"1", 65_000)), "stop", "65000 given, expected at most 16"),
    "stop ids": (chat(rest=b', "stop_token_ids": ' + list_of(b'"a"', 65_000)), "stop_token_ids", "at most 256"),
    "content": (chat(list_of(b"1", 65_000)), "messages[0].content", "65000 given, expected at most 1024"),
    "messages": (b'{"messages": ' + list_of(b"{}", 30_000) + b"}", "messages", "30000 given, expected at most 1024"),
    "parts": (chat(list_of(b"{}", 1024)), "messages[0].content[0].type", "Field required"),
    "names": (chat(rest=NAMES), "x0", "not a field that is taken"),
    "names of a message": (b'{"messages": [{"role": "user", "content": "a"' + NAMES + b"}]}", "messages[0].x0", "not"),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_errors_costs_what_the_list_costs(name: str) -> None:
    """An error for each element took 850 MB for a body of 2 MB."""
    body, field, text = LISTS[name]
    tracemalloc.start()
    try:
        with pytest.raises(ApiError) as refused:
            read_fields(body, ChatFields)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 * MIB + 3 * len(body)
    assert (refused.value.status, refused.value.field) == (400, field)
    assert text in refused.value.message
    assert len(refused.value.message) < 500


@pytest.mark.parametrize("inside", [",", "[{", '\\"', "\\\\", ',\\",\\\\'])
def test_what_stands_in_a_text_is_no_value(inside: str) -> None:
    """A long prompt may be a table, or a program."""
    text = inside * (MOST_VALUES + 10)
    fields = read_fields(chat(b'"' + text.encode() + b'"', b', "stop": [",", "[\\""]'), ChatFields)
    assert isinstance(fields, ChatFields)
    assert fields.messages[0].content[0].text == json.loads(f'"{text}"')
    assert fields.stop == [",", '["']


@pytest.mark.parametrize("end", ["\\", '\\\\\\"', ""])
def test_values_cannot_hide_behind_a_text(end: str) -> None:
    """Quotation marks and backslashes that do not pair up are no JSON, or hide nothing."""
    body = b'{"a": "' + end.encode() + b'", "b": ' + list_of(b"1", MOST_VALUES + 10) + b', "c": ""}'
    with pytest.raises(ApiError, match=r"more than|not JSON"):
        read_json(body)


def test_a_prompt_of_sixty_thousand_tokens_is_read() -> None:
    fields = read_fields(b'{"prompt": ' + list_of(b"5", 60_000) + b"}", CompletionFields)
    assert isinstance(fields, CompletionFields)
    assert fields.prompt == [5] * 60_000


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"prompt": [' + b"1" * 4000 + b"]}", "a number of 4000 characters, expected 64 at most"),
        (b'{"prompt": [1.' + b"1" * 4000 + b"]}", "a number of 4002 characters"),
        (b'{"' + b"a" * 5000 + b'": 1}', "a key of 5000 characters, expected 4096 at most"),
        (b'{"prompt": "' + b"\\n" * (2 * MIB + 1) + b'"}', "more than 2097152 backslashes"),
        (b'{"prompt": "\xff"}', "not JSON"),
    ],
    ids=["int", "float", "key", "escapes", "utf-8"],
)
def test_other_json_beyond_a_bound_is_named(body: bytes, text: str) -> None:
    with pytest.raises(ApiError, match=text):
        read_fields(body, CompletionFields)


def test_a_long_unknown_name_is_shortened(served: Served) -> None:
    status, answer = served.post(CHAT, HELLO | {"x" * 4000: 1})
    assert (status, answer["error"]["code"]) == (400, "unknown_field")
    assert len(answer["error"]["message"]) < 200


def test_unknown_names_that_are_null_are_absent() -> None:
    fields = read_fields(chat(rest=b', "tools": null, "seed": null'), ChatFields)
    assert fields.seed is None


def test_texts_and_images_are_freed_before_the_answer(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[CommonFields]()
    whole = served.service.take

    async def take(*given: Any) -> Any:
        asked = await whole(*given)
        seen.append(asked.fields)
        return asked

    monkeypatch.setattr(served.service, "take", take)
    assert served.post(CHAT, HELLO)[0] == 200
    (fields,) = seen
    assert isinstance(fields, ChatFields)
    assert fields.messages == []


@pytest.mark.parametrize("multiple", [1_000_003, 2_000_003, 5_000_011])
@pytest.mark.parametrize("within", [False, True])
def test_a_large_multiple_is_refused_by_its_keyword(served: Served, multiple: int, within: bool) -> None:
    pytest.importorskip("llguidance")
    schema: dict[str, Any] = {"type": "integer", "multipleOf": multiple}
    if within:
        schema = {"type": "object", "properties": {"a": {"allOf": [{"type": "integer"}, schema]}}}
    status, answer = served.post(TEXT, {"prompt": "a", "max_tokens": 12, "structured_outputs": {"json": schema}})
    assert (status, answer["error"]["param"]) == (400, "structured_outputs")
    assert f"multipleOf: {multiple}, expected 10000 at most" in answer["error"]["message"]


def test_a_schema_that_explodes_is_refused_and_others_are_answered(served: Served) -> None:
    pytest.importorskip("llguidance")
    schema = {"type": "integer", "allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]}
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    status, answer = served.post(CHAT, HELLO | {"response_format": form})
    assert (status, answer["error"]["param"]) == (400, "response_format")
    assert "it is too complex: it takes more than" in answer["error"]["message"]
    assert served.post(CHAT, HELLO)[0] == 200


def test_a_grammar_that_compiles_holds_nobody_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """`/health` stood, as a lock was held; and requests without a grammar waited for a thread."""
    pytest.importorskip("llguidance")
    began, go_on = threading.Event(), threading.Event()
    check = served.engine._grammars.check

    def slow(grammar: Any) -> None:
        began.set()
        assert go_on.wait(LONG_S)
        check(grammar)

    monkeypatch.setattr(served.engine._grammars, "check", slow)
    with ThreadPoolExecutor(4) as pool:
        asked = HELLO | {"guided_regex": "yes|no"}
        waiting = [pool.submit(served.post, CHAT, asked) for _ in range(3)]
        try:
            assert began.wait(LONG_S)
            assert served.get("/health")[0] == 200
            assert served.post(CHAT, HELLO)[0] == 200
            assert not any(answer.done() for answer in waiting)
        finally:
            go_on.set()
        assert [answer.result(LONG_S)[0] for answer in waiting] == [200] * 3


def scanned(scans: int) -> dict[str, Any]:
    data = base64.b64encode(progressive_jpeg(1000, 1000, scans)).decode()
    return HELLO | {"messages": asking("what", f"data:image/jpeg;base64,{data}")}


def test_a_picture_of_a_thousand_scans_is_refused_before_it_is_decoded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert served.post(CHAT, scanned(8))[0] == 200
    import cv2

    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("the decoder ran"))
    status, answer = served.post(CHAT, scanned(1000))
    assert (status, answer["error"]["param"]) == (400, "messages[0].content[0].image_url")
    assert "more than 100 scans" in answer["error"]["message"]


class HeldImages:
    """Stands before the decoder: the first image waits until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()
        self.count = 0
        monkeypatch.setattr("auras_ros.serve.conversation.read_image", self)

    def __call__(self, url: str, most_pixels: int) -> Any:
        self.count += 1
        self.began.set()
        assert self.go_on.wait(LONG_S)
        return read_image(url, most_pixels)


TWO_IMAGES = HELLO | {"messages": asking("what", picture(image(8, 8)), picture(image(9, 9)))}


def test_images_of_a_client_that_is_gone_are_not_decoded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the rest of a request that is prepared, nor one that waits for a thread."""
    with serving(folder, images=2, preparing=1) as served:
        held = HeldImages(monkeypatch)
        clients = list[Any]()
        check = served.service._check_wanted

        def note(client: Any) -> None:
            clients.append(client)
            check(client)

        monkeypatch.setattr(served.service, "_check_wanted", note)
        with send(served, TWO_IMAGES), send(served, TWO_IMAGES):
            assert held.began.wait(LONG_S)
            until(lambda: served.service.preparing == 2)
        until(lambda: all(client.gone for client in clients))
        held.go_on.set()
        until(lambda: served.service.preparing == 0)
        assert held.count == 1
        assert len(set(clients)) == 2
        assert served.engine.open == 0
        assert served.post(CHAT, TWO_IMAGES)[0] == 200


def test_at_the_end_of_the_server_images_that_wait_are_not_decoded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process cannot end before its threads: two images of a thousand scans took 134 s."""
    with serving(folder, images=2, preparing=1) as served, ThreadPoolExecutor(2) as pool:
        held = HeldImages(monkeypatch)
        answers = [pool.submit(served.post, CHAT, TWO_IMAGES) for _ in range(2)]
        assert held.began.wait(LONG_S)
        until(lambda: served.service.preparing == 2)
        served.service.close()
        held.go_on.set()
        got = [answer.result(LONG_S) for answer in answers]
        assert [status for status, _ in got] == [503, 503]
        assert {answer["error"]["code"] for _, answer in got} == {"engine_closed"}
        assert held.count == 1
