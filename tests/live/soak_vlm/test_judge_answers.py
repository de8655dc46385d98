"""What is wrong with an answer is found and said; what a client that goes, or a deadline, leaves of one is right."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from auras_ros.live.soak.usage import Reading
from auras_ros.live.soak_vlm.asks import GivenAnswer, KnownAsk, Trial, asks, trials
from auras_ros.live.soak_vlm.client import WireAnswer, http_bytes, read_http
from auras_ros.live.soak_vlm.hostile import HostileAsk, hostile
from auras_ros.live.soak_vlm.judge import BrokenPromises, nearly_equal, wrong
from auras_ros.live.soak_vlm.mix import (
    FEWEST,
    KIB_A_REQUEST,
    NOISE_KIB,
    RISEN,
    OverloadResult,
    VlmSoakResult,
    VlmSoakSettings,
    judge_rise,
)
from auras_ros.live.soak_vlm.overload import REFUSED_MS, judge_times, p99
from auras_ros.live.soak_vlm.summary import vlm_report, vlm_table

ASK = KnownAsk("left", "/v1/completions", {"prompt": "a"}, GivenAnswer("left or right", "length", (3, 4), False))
DONE = b"data: [DONE]\n\n"


def whole(text: str, finish: str = "length", **more: Any) -> bytes:
    choice = {"text": text, "finish_reason": finish, **more}
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}).encode()


def events(*texts: str) -> bytes:
    parts = [json.dumps({"choices": [{"delta": {"content": text}, "finish_reason": None}]}) for text in texts]
    return b"".join(b"data: " + part.encode() + b"\n\n" for part in parts)


def came(body: bytes, status: int = 200, left: bool = False) -> WireAnswer:
    return WireAnswer(status, body, not left, left, 1.0)


ENDED = b'data: {"choices": [{"delta": {}, "finish_reason": "length"}]}\n\n'
USED = b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}\n\n'


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (whole("left or right"), ""),
        (whole("right or left"), "right or left"),
        (whole("left or"), "'left or'"),
        (whole("left or right", "stop"), "finish='stop'"),
        (whole("left or right").replace(b"3", b"5"), "(5, 4)"),
        (whole("left", finish_detail="deadline"), ""),
        (whole("l\ufffd", finish_detail="deadline"), ""),
        (whole("right", finish_detail="deadline"), "'right' does not begin 'left or right'"),
        (b"{}", "no answer: KeyError"),
        (b"", "no answer: JSONDecodeError"),
    ],
)
def test_a_whole_answer_is_the_one_it_got_alone(body: bytes, named: str) -> None:
    found = wrong(Trial(0, "whole", b"", ASK), came(body))
    assert named in found if named else found == ""


@pytest.mark.parametrize(
    ("body", "left", "named"),
    [
        (events("left or", " right") + ENDED + USED + DONE, False, ""),
        (events("left or", " right") + ENDED + USED, False, "[DONE]"),
        (events("left or") + ENDED + USED + DONE, False, "'left or'"),
        (events("left or") + b'data: {"error": {}}\n\n' + DONE, False, "no answer"),
        (events("left or") + b'data: {"choi', True, ""),
        (events("right") + b'data: {"choi', True, "'right' does not begin"),
    ],
)
def test_a_stream_is_the_answer_in_parts(body: bytes, left: bool, named: str) -> None:
    found = wrong(Trial(0, "streamed", b"", ASK, streamed=True), came(body, left=left))
    assert named in found if named else found == ""


def test_a_failure_is_no_answer_even_of_who_went() -> None:
    for left in (False, True):
        assert "status 500" in wrong(Trial(0, "whole", b"", ASK), came(b"oh", 500, left))
    assert wrong(Trial(0, "whole", b"", ASK), came(b"", 0, left=True)) == ""
    assert "status 0" in wrong(Trial(0, "whole", b"", ASK), came(b"", 0))


@pytest.mark.parametrize(
    ("status", "body", "named"),
    [
        (400, b'{"error": {"message": "prompt: too long"}}', ""),
        (400, b'{"error": {"message": "something is wrong"}}', "names 'prompt'"),
        (500, b'{"error": {"message": "prompt: too long"}}', "got 500"),
        (200, whole("left"), "got 200"),
        (400, b"prompt", "names 'prompt'"),
    ],
)
def test_what_is_hostile_is_refused_by_name(status: int, body: bytes, named: str) -> None:
    found = wrong(Trial(0, "hostile", b"", hostile=HostileAsk(b"", 400, "prompt")), came(body, status))
    assert named in found if named else found == ""


def test_half_a_response_is_known_as_half() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert read_http(head + b"3\r\nabc\r\n0\r\n\r\n") == (200, b"abc", True)
    assert read_http(head + b"3\r\nabc\r\n3\r\nd") == (200, b"abc", False)
    assert read_http(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc") == (200, b"abc", False)
    assert read_http(b"") == (0, b"", False)
    assert read_http(b"nonsense\r\n\r\n")[0] == 0


def test_tokens_that_are_nearly_as_likely_are_seen() -> None:
    def chat(*gaps: float) -> bytes:
        content = [{"top_logprobs": [{"logprob": -1.0}, {"logprob": -1.0 - gap}]} for gap in gaps]
        return json.dumps({"choices": [{"logprobs": {"content": content}}]}).encode()

    def completion(*gaps: float) -> bytes:
        top = [{"a": -1.0, "b": -1.0 - gap} for gap in gaps]
        return json.dumps({"choices": [{"logprobs": {"top_logprobs": top}}]}).encode()

    for form in (chat, completion):
        assert nearly_equal(form(0.5, 1e-6, 0.5))
        assert not nearly_equal(form(0.5, 0.01))


def test_everything_follows_from_the_seed_and_every_hostile_kind_comes() -> None:
    known = asks(3, 20, grammar=True)
    assert known == asks(3, 20, grammar=True) != asks(4, 20, grammar=True)
    drawn = trials(3, 400, known, 1)
    assert drawn == trials(3, 400, known, 1) != trials(4, 400, known, 1)
    kinds = {each.kind for each in drawn}
    assert {f"hostile: {name}" for name in hostile(random.Random(), 1)} < kinds
    assert {"whole", "streamed", "deadline", "left while sending", "left while prepared", "left the stream"} < kinds
    assert any(not each.greedy for each in known)
    assert {each.path for each in known} == {"/v1/chat/completions", "/v1/completions"}
    assert not any("guided_regex" in each.fields for each in asks(3, 20, grammar=False))


def test_what_the_second_half_leaves_is_broken() -> None:
    bound = NOISE_KIB + FEWEST * KIB_A_REQUEST
    for kib, descriptors, threads, kinds in (
        (bound, RISEN, RISEN, set()),
        (bound + 1, 0, 0, {"memory grows"}),
        (0, RISEN + 1, 0, {"descriptors grow"}),
        (0, 0, RISEN + 1, {"threads grow"}),
    ):
        broken = BrokenPromises()
        judge_rise([Reading(1.0, 1e5, 9, 9), Reading(2.0, 1e5 + kib, 9 + descriptors, 9 + threads)], FEWEST, broken)
        assert broken.kinds.keys() == kinds
    judge_rise([Reading(1.0, 1e5, 9, 9), Reading(2.0, 1e6, 9, 9)], FEWEST - 1, broken := BrokenPromises())
    assert not broken.kinds
    judge_rise([], 100, broken := BrokenPromises())
    assert broken.kinds.keys() == {"process ended"}


def test_times_beyond_the_bounds_are_broken() -> None:
    for offered, admitted, refused, kinds in (
        (100.0, 200.0, REFUSED_MS, set()),
        (80.0, 200.0, REFUSED_MS, {"not offered"}),
        (100.0, 201.0, REFUSED_MS, {"late"}),
        (100.0, 200.0, REFUSED_MS + 1, {"refused late"}),
    ):
        load = OverloadResult(10.0, [100.0], 200.0, offered)
        load.admitted_ms, load.refused_ms = [1.0] * 97 + [admitted] * 3, [1.0] * 90 + [refused] * 10
        judge_times(load, broken := BrokenPromises())
        assert broken.kinds.keys() == kinds
    judge_times(OverloadResult(10.0, [100.0], 200.0, 100.0), broken := BrokenPromises())
    assert broken.kinds == {"late": 1, "refused late": 1}
    assert (p99([1.0]), p99([*map(float, range(100))])) == (1.0, 98.0)


def test_the_report_has_what_repeats_a_broken_promise() -> None:
    result = VlmSoakResult(VlmSoakSettings(seed=7))
    assert "no violation" in vlm_table(vlm_report(result, interrupted=False))
    trial = Trial(5, "whole", http_bytes("/v1/completions", b'{"prompt": "\xff"}'), ASK)
    result.times["whole"] = [1.0, 2.0]
    result.readings = [Reading(1.0, 1024.0, 9, 9), Reading(2.0, 2048.0, 9, 9)]
    result.overload = OverloadResult(10.0, [100.0], 200.0, 100.0)
    result.broken.add("wrong answer", "'a', alone 'b'", trial)
    made = vlm_report(result, interrupted=True)
    text = vlm_table(made)
    assert "1 violations:\n  wrong answer: request 5 (whole): 'a', alone 'b'" in text
    assert "+1024 KiB" in text
    kept = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert kept["broken_requests"][0]["bytes_latin1"].encode("latin-1") == trial.raw
    assert (kept["seed"], kept["interrupted"]) == (7, True)
