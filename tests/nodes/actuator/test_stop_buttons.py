"""A release of the emergency stop while somebody presses: it names who has to release, and releases nothing."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from auras_ros.nodes.actuator.stop_buttons import StopButtons
from auras_ros.nodes.actuator.stop_words import StopRules, StopTopic, StopWords

HELD, NEW = b"h" * 16, b"n" * 16


class Graph:
    """A node that knows one publisher. While it is asked, `meanwhile` happens."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] = lambda: None
        self.name = "button"

    def get_publishers_info_by_topic(self, _name: str) -> list[Any]:
        self.meanwhile()
        return [SimpleNamespace(endpoint_gid=list(HELD), node_namespace="/", node_name=self.name)]


@pytest.fixture
def topic() -> StopTopic:
    return StopTopic("emergency_stop", "/emergency_stop")


@pytest.fixture
def words(topic: StopTopic) -> StopWords:
    return StopWords([topic], StopRules())


def release(words: StopWords, publisher: bytes) -> tuple[bool, str]:
    """Release while `publisher` presses."""
    graph: Any = Graph()
    graph.meanwhile = lambda: words.note_press(words.topics[0], publisher, "pressed")
    return StopButtons(graph, words).release()


def test_a_button_that_repeats_its_press_is_named(topic: StopTopic, words: StopWords) -> None:
    words.note_press(topic, HELD, "pressed")
    assert release(words, HELD) == (False, "still pressed by /button: release it there")


def test_a_press_by_a_publisher_that_is_not_known_yet_is_not_released(topic: StopTopic, words: StopWords) -> None:
    assert release(words, NEW) == (False, "pressed again at this moment: try again")
    assert list(topic.down) == [NEW]


def test_a_name_is_kept_though_ros_loses_it_before_the_publisher(words: StopWords) -> None:
    """As Fast DDS does when a publisher is destroyed: who is gone is said by its name."""
    graph: Any = Graph()
    buttons = StopButtons(graph, words)
    graph.name = "_NODE_NAME_UNKNOWN_"
    buttons.look()
    assert buttons.name(HELD) == "a node of unknown name"
    graph.name = "button"
    buttons.look()
    graph.name = "_NODE_NAME_UNKNOWN_"
    buttons.look()
    assert buttons.name(HELD) == "/button"
