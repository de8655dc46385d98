"""What is asked of a scene, in which words, and what the answer is.

Every answer is one of a few words, or two numbers. A question that a scene leaves open (the tee is nearly aligned; two
colours are equally frequent) is not asked of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from auras_ros.sim.pusht.world import SIZE_PX, SUCCESS_COVERAGE
from auras_ros.train.vlm.scenes import COLOURS, MOST, NEAR_COVERAGE, Scene, draw_scene

ALIGNED_DEG = 5.0  # up to here the tee need not turn
TURNED_DEG = 10.0  # from here on it must
OPPOSITE_DEG = 170.0  # beyond, both ways are as long
HELD_OUT = 1 << 32  # seeds from here on are never trained with


@dataclass(frozen=True)
class Topic:
    """One type of question. wordings: `{}` stands for a colour. answers: all of them; none for `place`, whose answers
    are numbers. answer: of a scene and a colour; None where the scene leaves it open."""

    wordings: tuple[str, ...]
    answers: tuple[str, ...]
    answer: Callable[[Scene, str], str | None]

    @property
    def colours(self) -> tuple[str, ...]:
        """The colours that it asks about; an empty word if it asks about none."""
        return tuple(COLOURS) if "{}" in self.wordings[0] else ("",)


@dataclass(frozen=True, eq=False)
class TableQuestion:
    """Of a scene: its words and its answer."""

    scene: Scene
    text: str
    answer: str


def _goal(scene: Scene, _colour: str) -> str:
    return "yes" if scene.coverage > SUCCESS_COVERAGE else "no"


def _turn(scene: Scene, _colour: str) -> str | None:
    degrees = abs(np.rad2deg(scene.turn))
    if degrees <= ALIGNED_DEG:
        return "neither"
    if not TURNED_DEG <= degrees <= OPPOSITE_DEG:
        return None
    return "right" if scene.turn > 0 else "left"


def _place(scene: Scene, _colour: str) -> str:
    x, y = np.rint(scene.centre / SIZE_PX * 100).astype(int)
    return f"x {x} y {y}"


def _way(scene: Scene, _colour: str) -> str:
    return "yes" if any(scene.in_the_way) else "no"


def _count(scene: Scene, colour: str) -> str:
    return str(scene.count(colour))


def _colour(scene: Scene, _colour: str) -> str | None:
    counts = {name: scene.count(name) for name in COLOURS}
    most = [name for name, count in counts.items() if count == max(counts.values())]
    if not scene.things:
        return "none"
    return most[0] if len(most) == 1 else None


TOPICS = {
    "goal": Topic(
        (
            "Is the tee on its goal?",
            "Does the tee cover its goal?",
            "Is the tee where it should be?",
            "Has the tee reached the goal?",
        ),
        ("yes", "no"),
        _goal,
    ),
    "turn": Topic(
        (
            "Which way must the tee turn?",
            "Must the tee turn left or right?",
            "In which direction should the tee rotate?",
            "How must the tee be turned?",
        ),
        ("left", "right", "neither"),
        _turn,
    ),
    "place": Topic(
        (
            "Where is the tee?",
            "What is the position of the tee?",
            "At which place is the tee?",
            "Where on the table is the tee?",
        ),
        (),
        _place,
    ),
    "way": Topic(
        (
            "Is something in the way?",
            "Is there anything between the tee and its goal?",
            "Is the way to the goal blocked?",
            "Does any thing block the way?",
        ),
        ("yes", "no"),
        _way,
    ),
    "count": Topic(
        (
            "How many {} things are there?",
            "How many things are {}?",
            "Count the {} things.",
            "How many {} things are on the table?",
        ),
        tuple(str(each) for each in range(MOST + 1)),
        _count,
    ),
    "colour": Topic(
        (
            "Which colour do most things have?",
            "What colour are most of the things?",
            "Which colour is the most frequent?",
            "Of which colour are there the most things?",
        ),
        (*COLOURS, "none"),
        _colour,
    ),
}


def held_out(name: str, count: int, seed: int = 0) -> Iterator[TableQuestion]:
    """`count` questions of one type on scenes that no training saw, one a scene; each answer is equally frequent.

    Half of the scenes whose answer to `goal` is no are near misses. `place` is asked where the tee is away from its
    goal: else every second answer would be the same.
    """
    topic, random = TOPICS[name], np.random.default_rng([HELD_OUT, seed, count])
    left = _quotas(name, count)
    for number in range(HELD_OUT + (seed << 32) + (list(TOPICS).index(name) << 28), 1 << 62):
        scene, colour = draw_scene(number), str(random.choice(topic.colours))
        answer = topic.answer(scene, colour)
        group = _group(name, scene, answer)
        if answer is not None and left.get(group, 0):
            left[group] -= 1
            yield TableQuestion(scene, str(random.choice(topic.wordings)).format(colour), answer)
        if not any(left.values()):
            return


def _group(name: str, scene: Scene, answer: str | None) -> str | None:
    """What of a type is asked equally often: its answers, and for `goal` near misses."""
    near = scene.coverage >= NEAR_COVERAGE
    if name == "place":
        return None if near else "away"
    return "near miss" if name == "goal" and answer == "no" and near else answer


def _quotas(name: str, count: int) -> dict[str | None, int]:
    shares = {"goal": {"yes": 2, "no": 1, "near miss": 1}, "place": {"away": 1}}
    given = shares.get(name, dict.fromkeys(TOPICS[name].answers, 1))
    each, rest = divmod(count, sum(given.values()))
    made: dict[str | None, int] = {group: share * each for group, share in given.items()}
    made[next(iter(given))] += rest
    return made


def blind_share(name: str) -> float:
    """What always giving one answer scores on balanced questions; 0 for `place`, whose answers are numbers."""
    answers = TOPICS[name].answers
    return 1 / len(answers) if answers else 0.0
