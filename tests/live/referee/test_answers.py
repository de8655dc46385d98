"""What the demo says of the model's answers: whether they are right about the goal is the table's word, image by image.

Guards: an answer compared with another image's table; one without an end taken for an answer.
"""

from __future__ import annotations

from typing import Any

import pytest

from auras_ros.live.referee.answers import KEPT, TableAnswers


def answer(stamp_ns: int, text: str, name: str = "goal", finish: str = "stop") -> dict[str, Any]:
    image = {"stamp_ns": stamp_ns, "age_end_ms": 20.0 + stamp_ns}
    return {"standing": name, "question": f"{name}?", "text": text, "finish": finish, "image": image}


def test_an_answer_about_the_goal_is_compared_with_the_table_of_its_image() -> None:
    answers = TableAnswers()
    answers.status(1, 0.96)
    answers.status(2, 0.94)
    for each in (answer(1, " yes"), answer(2, " no"), answer(2, " yes"), answer(3, " no"), answer(2, " x 1", "place")):
        answers.answer(each)
    figures = answers.figures()
    assert (figures["goal_answers_right"], figures["goal_answers_wrong"]) == (2, 1)
    assert (figures["answers"], figures["answer_age_ms_max"]) == (5, 23.0)
    assert answers.newest == {"goal?": "no", "place?": "x 1"}
    assert ("on its goal?", "right in 2 of 3") in answers.table()


def test_what_has_no_end_is_counted_and_not_shown() -> None:
    answers = TableAnswers()
    answers.answer(answer(1, " ye", finish="deadline"))
    assert answers.newest == {}
    assert answers.figures() == {
        "answers": 0, "answers_unfinished": 1, "goal_answers_right": 0, "goal_answers_wrong": 0,
    }  # fmt: skip


def test_the_oldest_tables_are_forgotten() -> None:
    answers = TableAnswers()
    for stamp_ns in range(KEPT + 1):
        answers.status(stamp_ns, 1.0)
    answers.answer(answer(0, " no"))
    answers.answer(answer(1, " yes"))
    assert answers.right + answers.wrong == 1


def test_what_is_no_answer_is_refused() -> None:
    with pytest.raises(KeyError):
        TableAnswers().answer({"text": "yes"})
