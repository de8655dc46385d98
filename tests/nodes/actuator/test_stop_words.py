"""The bookkeeping of required buttons: when one counts as heard, and when as silent."""

from __future__ import annotations

import pytest

from auras_ros.nodes.actuator.stop_words import StopRules, StopTopic, StopWords

LIMIT_S = 0.5
WHO = b"b" * 16


@pytest.fixture
def topic() -> StopTopic:
    return StopTopic("emergency_stop", "/emergency_stop")


def repeat(topic: StopTopic, times_s: list[float], pressed: bool = False) -> None:
    for at_s in times_s:
        topic.repeat(WHO, pressed, at_s, LIMIT_S)


def test_three_words_in_a_row_are_a_button(topic: StopTopic) -> None:
    repeat(topic, [1.0, 1.1])
    assert topic.heard() == {}
    repeat(topic, [1.2])
    assert list(topic.heard()) == [WHO]
    assert topic.silent_at_s(LIMIT_S) == pytest.approx(1.7)


def test_a_gap_begins_the_row_again(topic: StopTopic) -> None:
    repeat(topic, [1.0, 1.1, 1.7, 1.8])
    assert topic.heard() == {}
    repeat(topic, [1.9])
    assert list(topic.heard()) == [WHO]


def test_words_that_come_together_are_one(topic: StopTopic) -> None:
    """Guards against a history of ten words that is taken for a live button."""
    repeat(topic, [1.0 + 0.0001 * index for index in range(10)])
    assert topic.heard() == {}
    topic.repeat(WHO, True, 1.001, LIMIT_S)
    assert topic.buttons[WHO].pressed, "its newest word counts all the same"


def test_an_older_word_than_the_newest_counts_for_nothing(topic: StopTopic) -> None:
    """An answer to an earlier challenge that arrives later."""
    repeat(topic, [1.0, 1.1, 1.2], pressed=True)
    topic.repeat(WHO, False, 1.1, LIMIT_S)
    assert topic.buttons[WHO].pressed
    assert topic.buttons[WHO].heard_s == 1.2


def test_silence_is_told_once_and_a_silent_button_counts_no_more(topic: StopTopic) -> None:
    repeat(topic, [1.0, 1.1, 1.2])
    assert topic.silent(1.7, LIMIT_S) == []
    assert topic.silent(1.71, LIMIT_S) == [WHO]
    assert topic.silent(1.72, LIMIT_S) == []
    assert topic.heard() == {}
    assert topic.silent_at_s(LIMIT_S) is None
    repeat(topic, [2.0, 2.1, 2.2])
    assert list(topic.heard()) == [WHO]


def test_publishers_of_one_word_do_not_push_a_button_out(topic: StopTopic) -> None:
    repeat(topic, [1.0, 1.1, 1.2])
    for number in range(3000):
        topic.repeat(b"%016d" % number, False, 1.3, LIMIT_S)
    assert WHO in topic.heard()
    assert len(topic.buttons) <= 1000


def test_a_publisher_that_is_gone_leaves_its_press(topic: StopTopic) -> None:
    repeat(topic, [1.0, 1.1, 1.2], pressed=True)
    topic.press(WHO, 1)
    topic.forget(WHO)
    assert topic.heard() == {}
    assert topic.down == {WHO: 1}


def test_only_a_required_stop_has_to_be_released_by_a_person(topic: StopTopic) -> None:
    for required, latched in ((True, "emergency stop pressed"), (False, "")):
        words = StopWords([topic], StopRules(required=required))
        words.note_press(topic, WHO, "emergency stop pressed")
        words.note_release(topic, WHO)
        assert words.latched == latched
        assert topic.down == {}


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (StopRules(), "not required"),
        (StopRules(required=True, max_silence_s=0.0), "required, changes only: silence counts as released"),
        (StopRules(required=True, key=b"k" * 32), "required, repeated within 500 ms, signed"),
    ],
)
def test_the_rule_is_said(rules: StopRules, said: str) -> None:
    assert str(rules) == said


def test_a_rule_without_a_key_says_what_a_forger_can_do() -> None:
    assert "not signed: who forges a button's words can keep it silent" in str(StopRules(required=True))
