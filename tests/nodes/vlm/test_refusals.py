"""What cannot be asked is refused by name, and nothing else stops."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from auras_ros.engine import workers
from auras_ros.nodes.common.loaded_node import FAILURE
from auras_ros.nodes.vlm.question import StandingQuestion, question_fields, read_question, read_standing
from auras_ros.nodes.vlm.settings import VlmSettings
from auras_ros.ros.msg import String
from tests.nodes.payloads import HEADER, serialized
from tests.nodes.vlm.conftest import Bench

NOTHING = "{0}: missing: nothing received yet; /watch publishes /camera/{0}/image_raw and is silent"

UNLOADABLE = "vlm: what its parameters name cannot be loaded; the log on its own computer says why"


def test_bad_questions_are_refused_by_name_while_a_good_one_is_answered(bench: Bench) -> None:
    bench.fresh(question_limit_bytes=512)
    bench.gate.close()
    good = bench.ask()
    bench.watch.until(bench.gate.waits.is_set, "an answer under way")
    bad = {
        '{"text": ': "question: not JSON",
        '{"text": "a", "camra": "top"}': "question: unknown key 'camra'; known: adapter, camera, deadline_ms",
        '{"camera": "top"}': "question: text: missing",
        '{"text": "a", "camera": "back"}': "question: camera: 'back' is not one of `cameras`: top, side",
        '{"text": "a", "max_tokens": 0}': "question: max_tokens: expected a whole number from 1, got 0",
        '{"text": "a", "max_tokens": 100000}': "max_tokens: 100000 and the prompt's",
        '{"text": "a", "camera": "top", "frames": 65}': "frames: expected a whole number from 1 to 64, got 65",
        '{"text": "a", "frames": 2}': "question: frames: 2 of no camera",
        '{"text": "a <image> b"}': "has the special token '<image>'",
        '{"text": "a\\u0007b"}': "question: text: not text: it contains the character U+0007",
        "x" * 513: "question: longer than 512 bytes",
        "  ": "question: text: is empty",
    }
    for text, reason in bad.items():
        answer = bench.next_answer(lambda text=text: bench.ask(text=text))  # type: ignore[misc]
        assert answer["finish"] == "refused", answer
        assert reason in answer["detail"]
        assert answer["image"] is None
    bench.gate.open()
    assert bench.answer(good)["finish"] in ("stop", "length")
    said = bench.next_answer(lambda: bench.ask(camra="top"))
    assert said["id"] == f"q{bench.asked}", "a refused one has its id, where that can be read"
    bench.diagnosed.until("vlm: questions", "WARN", "the newest was refused: question: unknown key 'camra'")


def test_an_image_that_is_missing_stale_or_wrong_refuses_questions_about_it(bench: Bench) -> None:
    bench.fresh(camera_age_limit_ms=300.0)
    assert bench.answer(bench.ask(camera="top"))["detail"] == NOTHING.format("top")
    bench.image(encoding="32FC1")
    detail = bench.answer(bench.ask(camera="top"))["detail"]
    assert "its newest message was refused: bad_encoding: '32FC1' is a depth image" in detail
    bench.image(stamp_ns=time.time_ns() - 400_000_000)
    answer = bench.answer(bench.ask(camera="top"))
    assert (answer["finish"], answer["image"]) == ("refused", None)
    assert answer["detail"].startswith("top: stale: 4")
    assert " ms old by its stamp when it comes, limit 300 ms: a slow camera" in answer["detail"]
    assert bench.answer(bench.ask())["finish"] in ("stop", "length"), "a text alone is answered"
    bench.diagnosed.until("vlm: cameras", "ERROR", "questions are refused: top: stale")


def test_bytes_that_are_no_question_or_no_image_are_refused_and_counted(bench: Bench) -> None:
    bench.fresh(question_limit_bytes=512)
    too_long = "x" * 1_000_000
    for payload in (HEADER + b"\xff" * 64, serialized(String(data=too_long))):
        answer = bench.next_answer(lambda payload=payload: bench.question_topic.publish(payload))  # type: ignore[misc]
        assert (answer["finish"], answer["id"]) == ("refused", "")
        assert " bytes on /question: " in answer["detail"]
    cameras = bench.node.status.configured.cameras  # type: ignore[union-attr]

    def counted() -> bool:
        bench.image_topic.publish(HEADER + b"\xff" * 64)  # once more each time: best effort
        return bool(cameras._counters._refused["top"])

    bench.watch.until(counted, "an image that is none is counted")
    assert "bytes on /camera/top/image_raw: " in bench.answer(bench.ask(camera="top"))["detail"]
    assert bench.answer(bench.ask())["finish"] in ("stop", "length"), "a good question is answered"


def test_one_more_question_than_the_engine_takes_is_refused(bench: Bench) -> None:
    bench.fresh(running=1, waiting=1)
    bench.gate.close()
    taken = [bench.ask(), bench.ask()]
    bench.watch.until(bench.gate.waits.is_set, "an answer under way")
    engine = bench.node.status.configured.engine  # type: ignore[union-attr]
    bench.watch.until(lambda: engine.waiting == 1, "one waits")
    answer = bench.answer(bench.ask())
    assert (answer["finish"], "the engine is full: 2 requests" in answer["detail"]) == ("refused", True)
    bench.gate.open()
    assert all(bench.answer(name)["finish"] in ("stop", "length") for name in taken)
    assert bench.answer(bench.ask())["finish"] in ("stop", "length")


def test_a_folder_that_is_none_is_named_in_the_log_alone_and_another_is_configured_after_it(
    bench: Bench, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Other nodes are told the same of a folder that is there and of one that is not."""
    bench.stop()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt7"}))
    for folder, words in (("/no/such/folder", "/no/such/folder"), (str(tmp_path), "config.json: model_type: 'gpt7'")):
        bench.set(checkpoint=folder)
        capfd.readouterr()
        assert bench.node.trigger_configure() == FAILURE
        assert (bench.node.status.lifecycle, bench.node.status.text()) == ("unconfigured", f"refused: {UNLOADABLE}")
        bench.diagnosed.until("vlm: lifecycle", "ERROR", UNLOADABLE)
        logged = capfd.readouterr().err.splitlines()
        assert any("[local.vlm]: " in line and words in line for line in logged), logged
        assert any(f"[vlm]: cannot configure: {UNLOADABLE}" in line for line in logged), logged
    bench.fresh()
    assert bench.answer(bench.ask())["finish"] in ("stop", "length")
    bench.diagnosed.until("vlm: lifecycle", "OK", "active")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"length": 8}, "leave no room for an answer: this model's maximum context length is 8 tokens"),
        ({"cores": "999"}, "lane 'vlm': cores [999] are not available here"),
        ({"scheduler": "nova:2"}, "engine: scheduler: 'nova:2' is none of"),
        ({"scheduler": "nova", "cores": "0"}, "nova divides the cores, and one cannot be divided"),
        ({"threads": 64, "cores": "0"}, "lane 'vlm': threads 64 on 1 core(s)"),
    ],
    ids=str,
)
def test_what_does_not_fit_the_model_or_the_machine_is_refused_at_configure(
    bench: Bench, parameters: dict[str, Any], words: str
) -> None:
    bench.stop()
    bench.set(**parameters)
    assert bench.node.trigger_configure() == FAILURE
    assert words in bench.node.status.text()


def test_an_engine_that_failed_says_so_and_is_configured_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.fresh()
    engine = bench.node.status.configured.engine  # type: ignore[union-attr]
    with monkeypatch.context() as patched:
        patched.setattr(engine, "_drain", lambda: 1 // 0)
        first = bench.answer(bench.ask())
    assert (first["finish"], "the engine failed" in first["detail"]) == ("error", True)
    assert bench.answer(bench.ask())["finish"] == "refused"
    bench.diagnosed.until("vlm: engine", "ERROR", "failed: ZeroDivisionError")
    assert bench.node.status.text().startswith("the engine failed: ZeroDivisionError")
    assert bench.node.working()
    bench.stop()
    bench.fresh()
    assert bench.answer(bench.ask())["finish"] in ("stop", "length")


def test_a_forward_that_fails_ends_its_question_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.fresh()
    bench.image()
    with monkeypatch.context() as patched:
        patched.setattr(workers.VisionWorker, "__call__", lambda self, dispatch: 1 // 0)
        answers = [bench.answer(name) for name in (bench.ask(camera="top"), bench.ask())]
    assert (answers[0]["finish"], answers[0]["detail"][:14]) == ("error", "vision failed:")
    assert answers[1]["finish"] in ("stop", "length")


def test_parameters_are_refused_while_active(bench: Bench) -> None:
    bench.fresh()
    (answer,) = bench.node.set_parameters([bench.node.get_parameter("camera")])
    assert (answer.successful, "deactivate it first" in answer.reason) == (False, True)


def test_a_hostile_question_is_refused_at_once() -> None:
    began_s = time.thread_time()
    with pytest.raises(ValueError, match="longer than 4096 bytes"):
        question_fields("{" * 10_000_000, 4096)
    assert time.thread_time() - began_s < 0.1
    with pytest.raises(ValueError, match="question: not JSON"):
        question_fields("{" * 4096, 4096)
    for wrong in ({"text": 1}, {"text": "a", "priority": True}, {"text": "a", "deadline_ms": float("inf")},
                  {"text": "a", "stream": 1}, {"text": "a", "id": "x" * 129}):  # fmt: skip
        with pytest.raises(ValueError, match=f"question: {list(wrong)[-1]}: "):
            read_question(wrong, (), 4096)


ENTRY = {"name": "goal", "text": "is it?", "camera": "top"}
VIDEO = json.dumps([{**ENTRY, "frames": 6, "stride": 2}])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("[", "standing: not JSON"),
        ({}, "standing: expected a JSON list, got dict"),
        ([1], "standing[0]: expected an object, got int"),
        ([{**ENTRY, "camera": "back"}], "standing[0]: question: camera: 'back' is not one of"),
        ([{**ENTRY, "camera": ""}], "standing[0]: camera: missing"),
        ([{**ENTRY, "name": ""}], "standing[0]: name: missing"),
        ([{**ENTRY, "every_frame": 2}], "standing[0]: question: unknown key 'every_frame'"),
        ([{**ENTRY, "every_frames": 0}], "standing[0]: every_frames: every_frames: 0 is not an integer"),
        ([{**ENTRY, "id": "a"}], "standing[0]: id: a standing question has a name"),
        ([ENTRY, ENTRY], "standing[1]: name: 'goal' is there twice"),
    ],
    ids=str,
)
def test_a_standing_question_that_cannot_be_asked_is_named(given: Any, words: str) -> None:
    text = given if isinstance(given, str) else json.dumps(given)
    with pytest.raises(ValueError, match="standing") as caught:
        VlmSettings(cameras="top", standing=text).check()
    assert f"vlm: {words}" in str(caught.value)


def test_standing_questions_are_read() -> None:
    (goal,) = read_standing(json.dumps([{**ENTRY, "every_frames": 5}]), ("top",), 4096)
    assert isinstance(goal, StandingQuestion)
    assert (goal.name, goal.every_frames, goal.question.priority, goal.question.stream) == ("goal", 5, 1, False)
    assert read_standing(" ", (), 4096) == ()


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"cameras": "top,,side"}, "vlm: cameras: '' is not a name"),
        ({"cameras": "top,top"}, "vlm: cameras: 'top,top' has a name twice"),
        ({"camera": "top"}, "vlm: camera: 'top' is not one of `cameras`"),
        ({"cameras": "top", "standing": VIDEO, "frames_kept": 10}, "frames_kept: 10, and `standing` reaches back 11"),
        ({"cores": "1;2"}, "vlm: cores: expected core numbers such as 2,3"),
    ],
    ids=str,
)
def test_parameters_that_do_not_fit_together_are_named(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="vlm: ") as caught:
        VlmSettings(**parameters).check()
    assert words in str(caught.value)


def test_what_hangs_is_seen_by_the_heartbeat(bench: Bench) -> None:
    """A forward, and the making of a prompt: both are what the heartbeat takes for late, and for hung in the end."""
    bench.fresh()
    work: Any = bench.node.status.work
    assert work.under_way() == {}
    bench.gate.close()
    name = bench.ask()
    bench.watch.until(bench.gate.waits.is_set, "an answer under way")
    assert list(work.under_way()) == ["decode"]
    held = threading.Event()
    prompts = bench.node.status.configured.engine.checkpoint.prompts  # type: ignore[union-attr]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(prompts, "chat", lambda *words: held.wait() and None)
        bench.ask()
        bench.watch.until(lambda: len(work.under_way()) == 2, "a prompt being made")
        assert set(work.under_way()) == {"decode", "preparation"}
        held.set()
        bench.gate.open()
        bench.answer(name)
