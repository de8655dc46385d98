"""What an evaluation and a search say of the time that is left.

Guards: an estimate that is made up before anything was measured; episodes that are done and still counted; the time in
which worlds are made, counted as if every step took as long; short episodes, expected to last until the limit.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from auras_ros.evaluate.campaign import Campaign
from auras_ros.evaluate.pace import PLAY, TIME, Pace, expected_steps
from auras_ros.evaluate.settings import EvaluationSettings
from auras_ros.sim import worlds
from auras_ros.sim.pusht.world import PushTWorld
from auras_ros.sim.world import StepResult
from tests.evaluate.tables import tiny_checkpoint

QUICK, MANY = ("pusht", "quick"), ("pusht", "ddpm100")


def test_nothing_is_said_while_there_is_nothing_to_go_by() -> None:
    pace = Pace()
    pace.ahead[PLAY, QUICK] = 10
    pace.ahead[TIME, QUICK] = 2
    assert pace.left((PLAY, QUICK)) == ""
    pace.took((TIME, QUICK), 1, 4.0)
    assert pace.left((PLAY, QUICK)) == ""  # episodes are not plans
    assert pace.left((PLAY, QUICK), 2.0, 6.0) == ", about 28 s left"  # a plan of 4 s, 8 episodes of 3


def test_each_generation_plan_has_its_own_pace_and_an_unknown_one_that_of_the_others() -> None:
    pace = Pace()
    pace.ahead[PLAY, QUICK] = 10
    pace.took((PLAY, QUICK), 4, 8.0)
    assert pace.left((PLAY, QUICK)) == ", about 12 s left"
    pace.ahead[PLAY, MANY] = 3
    assert pace.left((PLAY, QUICK)) == ", about 18 s left"
    pace.took((PLAY, MANY), 1, 100.0)
    assert pace.left((PLAY, QUICK)) == ", about 4 min left"


def test_the_first_quarter_of_what_is_done_together_says_nothing() -> None:
    pace = Pace()
    pace.ahead[PLAY, QUICK] = 20
    assert pace.left((PLAY, QUICK), 2.4, 1.0, of=10) == ""
    assert pace.left((PLAY, QUICK), 2.5, 5.0, of=10) == ", about 35 s left"


def test_an_episode_is_expected_to_last_as_long_as_those_that_were_longer() -> None:
    assert expected_steps(0, [], 300) == 300
    assert expected_steps(10, [20, 30], 300) == 25
    assert expected_steps(25, [20, 30], 300) == 30
    assert expected_steps(30, [20, 30], 300) == 60
    assert expected_steps(200, [20, 30], 300) == 300


# -- a whole evaluation, on a clock of its own ------------------------------------------------------------------

MAKE_S, STEP_S = 60.0, 0.1  # of a world
LASTS = (26, 30, 28)  # control steps of the episodes, by their seed modulo 3


class Watched:
    """A clock that only worlds move, and what was said at which time of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lasts: tuple[int, ...]) -> None:
        self.now_s, self.said = 0.0, list[tuple[float, str]]()
        clock = self

        class SlowToMake(PushTWorld):
            def __init__(self, **options: Any) -> None:
                clock.now_s += MAKE_S
                super().__init__(**options)

            def reset(self, seed: int) -> None:
                super().reset(seed)
                self.left = lasts[seed % len(lasts)]

            def step(self, action: NDArray[np.float64]) -> StepResult:
                clock.now_s += STEP_S
                self.left -= 1
                return StepResult(0.0, success=self.left == 0)

            def image(self, camera: str, height: int, width: int) -> NDArray[np.uint8]:
                return np.zeros((height, width, 3), np.uint8)

        monkeypatch.setitem(worlds.SIMS, "pusht", worlds.Sim("", SlowToMake, worlds.PushTOptions()))

    def play(self, episodes: int, batch: int) -> None:
        settings = EvaluationSettings("tiny", "quick", modes=("seq", "auras"), clocks=("paused",))
        pace = Pace(lambda: self.now_s)
        assert Campaign(tiny_checkpoint(), settings, batch, self._say, pace=pace).run(range(episodes))

    def _say(self, text: str) -> None:
        self.said.append((self.now_s, text))

    def estimates(self, run: str) -> list[tuple[float, float]]:
        """What was said to be left and what was left, s, while this run was played."""
        found = [(at_s, re.search(r"about (\d+) (s|min) left", text)) for at_s, text in self.said if run in text]
        scale = {"s": 1.0, "min": 60.0}
        return [(scale[each[2]] * float(each[1]), self.now_s - at_s) for at_s, each in found if each]


def test_worlds_that_take_long_to_be_made_do_not_make_the_first_estimate_long(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, LASTS)
    watched.play(episodes=3, batch=3)
    at_s, text = watched.said[0]
    assert (at_s, text) == (3 * MAKE_S, "run 1 of 2, paused seq: 0 of 3 episodes over, 0 succeed")
    said_s, left_s = watched.estimates("run 1 of")[0]
    assert left_s / 3 <= said_s <= 3 * left_s


def test_episodes_that_end_long_before_the_limit_are_expected_to_be_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a first group, for which the limit is all that is known."""
    watched = Watched(monkeypatch, LASTS)
    watched.play(episodes=9, batch=3)
    later = [each for run in range(2, 7) for each in watched.estimates(f"run {run} of")]
    assert len(later) > 100
    for said_s, left_s in later:
        assert left_s / 2 - 1 <= said_s <= 2 * left_s + 1  # whole seconds are said


def test_a_lone_episode_says_nothing_before_a_quarter_of_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, (300,))
    watched.play(episodes=1, batch=1)
    first = next(i for i, (_, text) in enumerate(watched.said) if "left" in text)
    assert first == 75
    said_s, left_s = watched.estimates("run 1 of")[0]
    assert said_s == pytest.approx(left_s, abs=1)
