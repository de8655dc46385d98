"""A long evaluation: group by group, cut short without bias, the same in parts as in one.

Guards: episodes of an interrupted group counted (they are the quick ones); modes that have seen different seeds.
"""

from __future__ import annotations

from typing import Any

import pytest

from auras_ros.evaluate import campaign as module
from auras_ros.evaluate.campaign import Campaign
from auras_ros.evaluate.outcome import EpisodeRecord, ModeResult
from auras_ros.evaluate.parts import EvaluationPart, merge
from auras_ros.evaluate.settings import EvaluationSettings
from tests.evaluate.tables import tiny_checkpoint

DURATIONS = {"seq": 0.23, "auras": 0.13}


def settings(**changes: Any) -> EvaluationSettings:
    given: dict[str, Any] = {"modes": ("seq", "auras"), "sim": "pusht-drift", "max_steps": 6, "frame_steps": 2}
    return EvaluationSettings("tiny@0", "quick,pp_generation=2", **(given | changes)).charging(DURATIONS)


def test_parts_played_apart_are_the_whole() -> None:
    """One episode at a time, so that batches are alike; in larger ones rows differ in the last digits."""
    checkpoint = tiny_checkpoint()
    parts = []
    for seeds in (range(3), range(2), range(2, 3)):
        played = Campaign(checkpoint, settings(), batch=1)
        assert played.run(seeds)
        assert played.seeds == list(seeds)
        parts.append(EvaluationPart(settings(), played.outcomes))
    whole, *rest = parts
    assert merge(rest) == whole
    assert merge(rest).report().rows == whole.report().rows


class Interrupted:
    """Stands where `play` does; Ctrl-C comes in the given call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
        self.calls: list[tuple[str, str, bool, list[int]]] = []
        self._call = call
        monkeypatch.setattr(module, "play", self)

    def __call__(
        self, checkpoint: Any, plan: Any, seeds: Any, task: Any, timing: Any, plain: bool, watch: Any, worlds: Any
    ) -> ModeResult:
        self.calls.append((timing.name, plan.mode, plain, list(seeds)))
        if len(self.calls) == self._call:
            raise KeyboardInterrupt
        return ModeResult([EpisodeRecord(seed, True, 3) for seed in seeds])


def test_each_group_is_played_in_every_mode_on_every_clock_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Interrupted(monkeypatch, 0)
    whole = Campaign(tiny_checkpoint(), settings(modes=("seq", "par"), clocks=("paused",)), batch=2).run(range(7, 10))
    assert whole
    runs = [("paused", "seq", False), ("paused", "par", True), ("paused", "par", False)]
    assert play.calls == [(*run, group) for group in ([7, 8], [9]) for run in runs]


@pytest.mark.parametrize(("call", "kept"), [(1, []), (4, []), (5, [0, 1]), (8, [0, 1]), (9, [0, 1, 2, 3])])
def test_an_interrupted_group_leaves_nothing(monkeypatch: pytest.MonkeyPatch, call: int, kept: list[int]) -> None:
    Interrupted(monkeypatch, call)
    cut = Campaign(tiny_checkpoint(), settings(), batch=2)
    assert not cut.run(range(6))
    assert cut.seeds == kept
    assert all(outcome.seeds == kept for outcome in cut.outcomes.values())
    assert len(cut.outcomes) == (4 if kept else 0)


def test_it_says_how_far_it_is() -> None:
    said: list[str] = []
    Campaign(tiny_checkpoint(), settings(clocks=("paused",), max_steps=2), batch=2, say=said.append).run(range(3))
    assert said[0] == "run 1 of 4, paused seq: 0 of 2 episodes over, 0 succeed"
    assert said[1].startswith("run 1 of 4, paused seq: 0 of 2 episodes over, 0 succeed, about ")
    assert said[-1].startswith("run 4 of 4, paused auras: 1 of 1 episodes over, 0 succeed, about 0 s left")
    assert len(said) == 12  # before the first step of each run and after each of its two
