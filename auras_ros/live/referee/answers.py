"""What the vision-language model says while the demo plays: its newest answers, how old they are, how often it is right
about the goal. It knows no ROS."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Any

from auras_ros.live.referee.measures import Spread

GOAL = "goal"  # the standing question whose answer the table's status knows
COVERED = "coverage"  # Push-T's sub-goal
COVERAGE = 0.95  # docs/pusht-vlm.md: its answer is yes beyond this, whatever the demo calls a success
KEPT = 100  # newest statuses


class TableAnswers:
    """Feed it answers and statuses as they come while an episode is played."""

    def __init__(self) -> None:
        self.newest: dict[str, str] = {}  # question -> answer, in the order in which they were first answered
        self.finished: Counter[str] = Counter()
        self.right = self.wrong = 0  # about the goal
        self._ages_ms: list[float] = []
        self._covered: OrderedDict[int, bool] = OrderedDict()

    def status(self, stamp_ns: int, coverage: float) -> None:
        """How much of the goal is covered in the image of this stamp."""
        self._covered[stamp_ns] = coverage > COVERAGE
        while len(self._covered) > KEPT:
            self._covered.popitem(last=False)

    def answer(self, fields: Mapping[str, Any]) -> None:
        """An answer of the topic `answer`. Raises KeyError or TypeError if it is none."""
        self.finished[str(fields["finish"])] += 1
        if fields["finish"] != "stop":
            return
        text, image = str(fields["text"]).strip(), fields["image"]
        self.newest[str(fields["question"])] = text
        self._ages_ms.append(float(image["age_end_ms"]))
        covered = self._covered.get(int(image["stamp_ns"]))
        if fields["standing"] == GOAL and covered is not None:
            right = text == ("yes" if covered else "no")
            self.right, self.wrong = self.right + right, self.wrong + (not right)

    def figures(self) -> dict[str, float]:
        """For the summary; ages are those of the image at the answer's end."""
        found: dict[str, float] = {"answers": self.finished["stop"], "answers_unfinished": self.unfinished}
        spread = Spread.of(self._ages_ms)
        if spread is not None:
            found |= {f"answer_age_ms_{key}": value for key, value in vars(spread).items()}
        return found | {"goal_answers_right": self.right, "goal_answers_wrong": self.wrong}

    def table(self) -> list[tuple[str, str]]:
        """Lines for people."""
        spread = Spread.of(self._ages_ms)
        ages = "" if spread is None else f", {spread.p50:.0f} ms after the image (p99 {spread.p99:.0f})"
        lines = [("answers", f"{self.finished['stop']}{ages}; {self.unfinished} without an end")]
        lines.append(("on its goal?", f"right in {self.right} of {self.right + self.wrong}"))
        return lines + [("last said", f"{question} {text}") for question, text in self.newest.items()]

    @property
    def unfinished(self) -> int:
        return self.finished.total() - self.finished["stop"]
