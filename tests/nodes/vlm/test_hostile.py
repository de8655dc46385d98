"""The node under attack from its topics, its parameters and its services: each attempt is refused with its reason, and
the next good question is answered.

Guards: a question, an image or a parameter that ends the node, that keeps it from answering, or that forges a line.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from auras_ros.measure.memory import resident_bytes
from auras_ros.nodes.common.loaded_node import FAILURE
from auras_ros.ros.msg import String
from tests.nodes.payloads import HEADER, serialized
from tests.nodes.vlm.conftest import TEXT, Bench

LIMIT_BYTES = 4096
ANSWERED = ("stop", "length")
DIGITS = "9" * 4000
GROWTH = 256 << 20  # bytes of this process, over all attacks of a test


def question(**fields: Any) -> str:
    return json.dumps({"text": TEXT, "max_tokens": 1, **fields})


QUESTIONS: dict[str, tuple[str, str]] = {
    "empty": ("", "question: text: is empty"),
    "blank": ("\n \t", "question: text: is empty"),
    "truncated": ('{"text": "a', "question: not JSON"),
    "a-list": ('{"text": ["a"]}', "question: text: expected a text, got ['a']"),
    "no-text": ("{}", "question: text: missing"),
    "null": ('{"text": null}', "text: expected a text, got None"),
    "deep": ('{"text": ' + "[" * 2000, "question: not JSON"),
    "deep-objects": ('{"a":' * 800, "question: not JSON"),
    "too-long": ("x" * (LIMIT_BYTES + 1), f"question: longer than {LIMIT_BYTES} bytes"),
    "half-a-surrogate-pair": ('{"text": "a\\ud800"}', "question: not JSON"),
    "control-characters": ('{"text": "a\\u001b[2J"}', "it contains the character U+001B"),
    "a-nul": ('{"text": "a\\u0000"}', "it contains the character U+0000"),
    "an-unknown-key": (question(__class__="x"), "question: unknown key '__class__'"),
    "a-key-that-forges-a-line": (question(**{"a\n[FATAL] gone": 1}), r"unknown key 'a\n[FATAL] gone'"),
    "a-camera-that-forges-a-line": (question(camera="a\n[FATAL] \x1b"), r"camera: 'a\n[FATAL] \x1b' is not one of"),
    "a-camera-of-numbers": (question(camera=3), "camera: expected a text, got 3"),
    "a-path-as-camera": (question(camera="../../etc/passwd"), "is not one of `cameras`"),
    "an-adapter-that-is-none": (question(adapter="x\n\x1b[2J"), "adapter: "),
    "an-adapter-of-lists": (question(adapter=["x"]), "adapter: expected a text"),
    "a-long-id": (question(id="x" * 129), "id: longer than 128 characters"),
    "no-tokens": (question(max_tokens=0), "max_tokens: expected a whole number from 1, got 0"),
    "half-a-token": (question(max_tokens=0.5), "max_tokens: expected a whole number from 1, got 0.5"),
    "tokens-of-4000-digits": ('{"text": "a", "max_tokens": ' + DIGITS[:3000] + "}", "max_tokens: "),
    "negative-tokens": (question(max_tokens=-(10**30)), "max_tokens: expected a whole number"),
    "a-truth-value": (question(max_tokens=True), "max_tokens: expected a whole number from 1, got True"),
    "endless-priority": (question(priority=10**30), "priority: expected a whole number"),
    "no-time": (question(deadline_ms=0), "deadline_ms: expected a time above 0, got 0"),
    "no-number": ('{"text": "a", "deadline_ms": NaN}', "deadline_ms: expected a time above 0, got nan"),
    "infinite": ('{"text": "a", "deadline_ms": Infinity}', "deadline_ms: expected a time above 0, got inf"),
    "overflow": ('{"text": "a", "deadline_ms": 1e999}', "deadline_ms: expected a time above 0, got inf"),
    "frames-of-nothing": (question(frames=2), "question: frames: 2 of no camera"),
    "frames-without-end": (question(camera="top", frames=10**9), "frames: expected a whole number from 1 to 64"),
    "negative-stride": (question(camera="top", stride=-1), "stride: expected a whole number from 1 to 64"),
    "a-head-of-text": (question(head="yes"), "head: expected true or false, got 'yes'"),
    "a-head-that-is-none": (question(head=True), "head"),
    "a-stream-of-numbers": (question(stream=1), "stream: expected true or false, got 1"),
    "the-same-key-again": ('{"text": "a", "text": 3}', "text: expected a text, got 3"),
    "a-special-token": (question(text="a <image> b"), "has the special token '<image>'"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_hostile_question_is_refused_and_the_next_one_is_answered(name: str, bench: Bench) -> None:
    text, said = QUESTIONS[name]
    bench.fresh(question_limit_bytes=LIMIT_BYTES)
    refused = bench.next_answer(lambda: bench.ask(text=text))
    assert refused["finish"] == "refused", refused
    assert said in refused["detail"]
    assert "\n" not in refused["detail"]
    assert "\x1b" not in refused["detail"]
    assert bench.answer(bench.ask())["finish"] in ANSWERED


LARGEST: dict[str, str] = {
    "the-longest-time": question(deadline_ms=1e300),
    "the-smallest-time": question(deadline_ms=5e-324),
    "the-last-priority": question(priority=1_000_000),
    "the-longest-text": "a " * 60,
    "other-scripts": question(text="\u0627\u0644\u0642\u0631\u0635 \u9ad8 \U0001f916"),
    "a-template": question(text="{{ 9 ** 9 }} {% raw %}"),
    "an-id-of-quotes": question(id='"}{"'),
}


@pytest.mark.parametrize("name", LARGEST)
def test_what_is_only_strange_ends_with_an_answer(name: str, bench: Bench) -> None:
    bench.fresh(question_limit_bytes=LIMIT_BYTES)
    answer = bench.next_answer(lambda: bench.ask(text=LARGEST[name]))
    assert answer["finish"] in (*ANSWERED, "deadline", "refused")
    assert bench.answer(bench.ask())["finish"] in ANSWERED


PAYLOADS: dict[str, bytes] = {
    "a-length-of-4-GB": HEADER + struct.pack("<I", 0xFFFFFFFF) + b"abc\0",
    "no-characters": HEADER + struct.pack("<I", 0) + b"\0\0\0\0",
    "one-more-than-there-is": HEADER + struct.pack("<I", 9) + b"abcdefg\0",
    "not-utf-8": HEADER + struct.pack("<I", 4) + b"\xff\xfe\xfd\0",
    "ones": HEADER + b"\xff" * 64,
    "a-megabyte": serialized(String(data="x" * 1_000_000)),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_payload_that_is_no_question_is_no_end(name: str, bench: Bench) -> None:
    bench.fresh(question_limit_bytes=LIMIT_BYTES)
    bench.question_topic.publish(PAYLOADS[name])
    assert bench.answer(bench.ask())["finish"] in ANSWERED


IMAGES: dict[str, dict[str, Any]] = {
    "no-pixels": {"data": b""},
    "fewer-pixels": {"data": b"\0" * 100},
    "more-pixels": {"data": b"\0" * 100_000},
    "no-height": {"height": 0},
    "no-width": {"width": 0},
    "the-largest-size": {"height": 2**32 - 1, "width": 2**32 - 1, "step": 2**32 - 1},
    "a-size-that-wraps": {"height": 2**31, "width": 2**31, "step": 0},
    "a-step-of-nothing": {"step": 0},
    "a-step-that-is-short": {"step": 1},
    "a-depth-image": {"encoding": "32FC1"},
    "no-encoding": {"encoding": ""},
    "an-encoding-that-forges-a-line": {"encoding": "rgb8\n[FATAL] \x1b[2J"},
    "a-long-encoding": {"encoding": "x" * 100_000},
}


@pytest.mark.parametrize("name", IMAGES)
def test_a_hostile_image_is_refused_and_questions_about_it_too(name: str, bench: Bench) -> None:
    bench.fresh()
    bench.image(**IMAGES[name])
    refused = bench.answer(bench.ask(camera="top"))
    assert refused["finish"] == "refused", refused
    assert refused["detail"].startswith("top: ")
    assert "\n" not in refused["detail"]
    assert len(refused["detail"]) < 2000
    bench.image()
    assert bench.answer(bench.ask(camera="top"))["finish"] in ANSWERED


ENTRY = {"name": "goal", "text": "is it?", "camera": "top"}


def folder_of(path: Path, config: bytes | None) -> str:
    if config is not None:
        (path / "config.json").write_bytes(config)
    return str(path)


def pipe_in(path: Path) -> str:
    os.mkfifo(path / "config.json")
    return str(path)


PARAMETERS: dict[str, tuple[dict[str, Any] | Callable[[Path], dict[str, Any]], str]] = {
    "no-checkpoint": ({"checkpoint": ""}, "checkpoint"),
    "a-device": ({"checkpoint": "/dev/zero"}, "/dev/zero"),
    "a-path-that-forges-a-line": ({"checkpoint": "/no\n[FATAL] gone"}, "gone"),
    "a-path-of-10000-characters": ({"checkpoint": "/" + "x" * 10_000}, "xxx"),
    "an-empty-folder": (lambda path: {"checkpoint": folder_of(path, None)}, "config.json: file not found"),
    "a-config-of-nonsense": (lambda path: {"checkpoint": folder_of(path, b"[" * 100_000)}, "config.json: not JSON"),
    "a-config-in-another-encoding": (lambda path: {"checkpoint": folder_of(path, b"\xff\xfe{}")}, "config.json"),
    "a-pipe-as-config": (lambda path: {"checkpoint": pipe_in(path)}, "config.json: file not found"),
    "cameras-without-names": ({"cameras": ",,,"}, "vlm: cameras: '' is not a name"),
    "a-camera-that-forges-a-line": ({"cameras": "top,a\nb"}, r"vlm: cameras: 'a\nb' is not a name"),
    "cameras-without-end": ({"cameras": ",".join(f"c{n}" for n in range(10_000))}, "vlm: cameras: 10000 are more than"),
    "standing-of-nonsense": ({"standing": "[" * 100_000}, "vlm: standing: not JSON"),
    "standing-without-end": (
        {"standing": json.dumps([{**ENTRY, "name": f"q{n}"} for n in range(10_000)])},
        "vlm: standing: 10000 are more than",
    ),
    "standing-twice": ({"standing": json.dumps([ENTRY, ENTRY])}, "is there twice"),
    "standing-never": ({"standing": json.dumps([{**ENTRY, "every_frames": 0}])}, "every_frames"),
    "adapters-of-nonsense": ({"loras": "a"}, "vlm: loras: expected name=folder, got 'a'"),
    "an-adapter-twice": ({"loras": "a=x,a=y"}, "loras"),
    "cores-of-5000-digits": ({"cores": "9" * 5000}, "vlm: cores: expected core numbers"),
    "cores-that-are-not-there": ({"cores": "999999"}, "999999"),
    "negative-cores": ({"cores": "-1"}, "-1"),
    "a-scheduler-of-nonsense": ({"scheduler": "\n" + "x" * 5000}, "scheduler"),
    "no-room": ({"length": 1}, "room"),
    "a-table-that-is-a-device": ({"max_loras": 1, "lora_ways": "/dev/zero"}, "lora_ways"),
}


UNTOLD = "vlm: what its parameters name cannot be loaded; the log on its own computer says why"


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_hostile_parameter_is_refused_with_its_name(
    name: str, bench: Bench, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """At once, or when the node is configured, which is unconfigured then as before. What was found in files is in the
    node's own log alone."""
    bench.stop()
    made, said = PARAMETERS[name]
    given = made(tmp_path) if callable(made) else made
    before = [bench.node.get_parameter(parameter) for parameter in given]
    try:
        reasons = [each.reason for each in bench.set(**given) if not each.successful]
        if not reasons:
            assert bench.node.trigger_configure() == FAILURE
            assert bench.node.status.lifecycle == "unconfigured"
            reasons = [bench.node.status.text()]
        told = capfd.readouterr().err if UNTOLD in reasons[0] else reasons[0]
        assert said in told
        assert len(told) < 25_000
    finally:
        assert all(each.successful for each in bench.node.set_parameters(before))


def test_after_all_of_it_the_node_is_configured_and_answers(bench: Bench) -> None:
    before = resident_bytes()
    bench.fresh()
    for _ in range(5):
        assert bench.answer(bench.ask())["finish"] in ANSWERED
    assert resident_bytes() - before < GROWTH
    assert bench.node.working()
