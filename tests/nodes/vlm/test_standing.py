"""Standing questions: every n-th new image, always the newest, never two at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.nodes.vlm.conftest import Bench

GOAL = {"name": "goal", "text": "is the tee on its goal?", "camera": "top", "every_frames": 3, "max_tokens": 2}


def test_it_is_asked_at_every_third_new_image_of_its_camera(bench: Bench) -> None:
    bench.fresh(standing=json.dumps([GOAL]))
    stamps = []
    for number in range(1, 7):
        stamps.append(bench.image())
        bench.image("side")
        bench.image(stamp_ns=stamps[-1])  # a camera that repeats one image
        if number % 3 == 0:
            bench.answer(f"goal/{number // 3}")
    assert [(each["id"], each["standing"]) for each in bench.answers] == [("goal/1", "goal"), ("goal/2", "goal")]
    assert [each["image"]["stamp_ns"] for each in bench.answers] == [stamps[2], stamps[5]]
    assert bench.answers[0]["question"] == GOAL["text"]


def test_while_its_answer_is_to_come_images_are_skipped_and_counted(bench: Bench) -> None:
    """Guards: a queue of questions about images that are old when they are answered."""
    bench.fresh(standing=json.dumps([GOAL]))
    bench.gate.close()
    stamps = [bench.image() for _ in range(3)]
    bench.watch.until(bench.gate.waits.is_set, "an answer under way")
    stamps += [bench.image() for _ in range(8)]
    bench.gate.open()
    assert bench.answer("goal/1")["image"]["stamp_ns"] == stamps[2]
    bench.watch.until(lambda: not bench.node.status.answering.open_questions, "its end")  # type: ignore[union-attr]
    newest = bench.image()
    assert bench.answer("goal/2")["image"]["stamp_ns"] == newest
    answering: Any = bench.node.status.answering
    (goal,) = answering.standing
    assert (goal.frames, goal.asked, goal.skipped) == (12, 2, 2)
    bench.diagnosed.until("vlm: questions", "OK", "answered")
    values = lambda: bench.diagnosed.values("vlm: questions")  # noqa: E731
    bench.watch.until(lambda: values().get("goal skipped") == "2", "the count in diagnostics")


def test_a_persons_question_goes_before_a_standing_one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the engine: each answer has a thread of its own, and two that end together may be published either way."""
    bench.fresh(standing=json.dumps([{**GOAL, "every_frames": 1}]), running=1)
    bench.gate.close()
    first = bench.ask()
    bench.watch.until(bench.gate.waits.is_set, "an answer under way")
    bench.image()
    second = bench.ask()
    engine = bench.node.status.configured.engine  # type: ignore[union-attr]
    ended, end = list[int](), engine._end
    monkeypatch.setattr(
        engine,
        "_end",
        lambda active, *rest, **more: (ended.append(active.request.priority), end(active, *rest, **more)),
    )
    bench.watch.until(lambda: engine.waiting == 2, "both wait")
    bench.gate.open()
    for name in (first, second, "goal/1"):
        assert bench.answer(name)["finish"] in ("stop", "length")
    assert ended == [0, 0, 1]
