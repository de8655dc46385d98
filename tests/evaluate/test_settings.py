"""What an evaluation is asked to compare: each thing that cannot be used is refused by name, before anything runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from auras_ros.evaluate.charged import Charged
from auras_ros.evaluate.paused import Paused
from auras_ros.evaluate.settings import EvaluationSettings, SettingsError, parse_durations, parse_plan, plan_named
from auras_ros.pipeline.plan import Plan, PlanError

DURATIONS = {"seq": 0.3, "dec/perceive": 0.01, "dec/generate": 0.29, "par": 0.5, "auras": 0.08, "spare": 1.0}


def test_each_mode_takes_what_it_shares_of_the_plan_and_par_comes_twice() -> None:
    settings = EvaluationSettings("c", "ddpm100,pp_generation=8,alpha=0.5", concurrency=3)
    found = {one.name: (str(one.plan), one.plain) for one in settings.contenders()}
    assert found == {
        "seq": ("ddpm100", False),
        "dec": ("ddpm100,mode=dec", False),
        "par": ("ddpm100,mode=par,concurrency=3", True),
        "par-aligned": ("ddpm100,mode=par,concurrency=3", False),
        "auras": ("ddpm100,mode=auras,pp_generation=8,alpha=0.5", False),
    }


def test_the_mode_may_be_left_out_of_the_plan() -> None:
    assert parse_plan("quick,pp_generation=4") == parse_plan("quick,mode=auras,pp_generation=4")
    assert parse_plan("quick") == Plan("quick", mode="auras")
    assert parse_plan("") == Plan(mode="auras")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "greedy"),
        (",pp_generation=4", "greedy,pp_generation=4"),
        ("mode=auras,alpha=1", "greedy,mode=auras,alpha=1"),
        ("fine,alpha=1", "fine,alpha=1"),
        ("generation=fine", "generation=fine"),
    ],
)
def test_what_is_played_and_kept_names_the_generation_plan(text: str, named: str) -> None:
    assert plan_named(text, "greedy") == named
    assert parse_plan(plan_named(text, "greedy")) == parse_plan(text).named("greedy")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("quick,mode=seq", "plan: mode: .* got seq"),
        ("quick,concurrency=3", "plan: concurrency: 3 has no meaning in mode auras, only par"),
        ("quick,stages=3", "plan: 'stages=3'"),
        ("quick,pp_generation=0", "plan: pp_generation"),
    ],
)
def test_a_plan_that_is_not_one_of_auras_is_refused(text: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        parse_plan(text)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sim": "kitchen"}, "sim 'kitchen' is not known; known: pusht, pusht-drift"),
        ({"modes": ("seq", "fast")}, "modes: no 'fast'; known: seq, dec, par, auras"),
        ({"modes": ("seq", "seq")}, "modes: expected each once"),
        ({"modes": ()}, "modes: expected each once and at least one, got none"),
        ({"clocks": ("wall",)}, "clocks: no 'wall'; known: paused, charged"),
        ({"concurrency": 0}, "concurrency: must be at least 1, got 0"),
        ({"frame_steps": 0}, "frame_steps: must be at least 1, got 0"),
        ({"max_steps": 0}, "max_steps: must be in \\[1, 1000\\], got 0"),
        ({"max_steps": 1001}, "max_steps: must be in \\[1, 1000\\], got 1001"),
        ({"sim": "pusht:drift_px=-0.5"}, r"pusht: drift_px: must be in \[0.0, 19.0\], got -0.5"),
        ({"durations_s": {"seq": -1.0}}, "durations: seq: must be seconds"),
        ({"durations_s": {"seq": float("nan")}}, "durations: seq: must be seconds"),
        ({"durations_s": {"seq": 360.0}}, r"durations: seq: must be seconds in \[0, 60\), got 360.0"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        EvaluationSettings("c", "quick", **changes)


def test_a_plan_that_cannot_work_is_refused_at_once() -> None:
    with pytest.raises(PlanError, match="alpha"):
        EvaluationSettings("c", "quick,alpha=-1")


def test_the_charged_clock_needs_the_durations_of_its_modes_and_keeps_no_others() -> None:
    settings = EvaluationSettings("c", "quick", modes=("seq", "dec"))
    assert dict(settings.charging(DURATIONS).durations_s) == {
        "seq": 0.3,
        "dec/perceive": 0.01,
        "dec/generate": 0.29,
    }
    with pytest.raises(SettingsError, match="durations: dec/generate is missing; needed are seq, dec/perceive"):
        settings.charging({"seq": 0.3, "dec/perceive": 0.01})
    paused = EvaluationSettings("c", "quick", clocks=("paused",))
    assert dict(paused.charging({}).durations_s) == {}


def test_timings() -> None:
    settings = EvaluationSettings("c", "quick", frame_steps=6).charging(DURATIONS)
    assert settings.timing("paused") == Paused(6)
    timing = settings.timing("charged")
    assert isinstance(timing, Charged)
    assert timing.durations_ns["auras"] == 80_000_000
    assert timing.jitter == 0.0


def test_the_jitter_is_drawn_from_the_seed_of_its_group() -> None:
    settings = EvaluationSettings("c", "quick", jitter=0.3).charging(DURATIONS)
    assert settings.timing("charged", 40) == replace(settings.timing("charged"), seed=40)
    assert settings.timing("charged").jitter == 0.3
    assert EvaluationSettings.from_dict(settings.to_dict()) == settings
    with pytest.raises(SettingsError, match=r"jitter: must be in \[0, 1\], got 1.5"):
        EvaluationSettings("c", "quick", jitter=1.5)


def test_settings_survive_json() -> None:
    settings = EvaluationSettings("c", "quick", sim="pusht-drift", waits=True).charging(DURATIONS)
    assert EvaluationSettings.from_dict(settings.to_dict()) == settings
    assert settings.task.sim == "pusht-drift"
    assert settings.task.waits


def test_durations_from_a_list() -> None:
    assert parse_durations("seq=0.36, dec/generate=0.3,auras=8e-2") == {"seq": 0.36, "dec/generate": 0.3, "auras": 0.08}
    with pytest.raises(SettingsError, match="durations: no 'sqe'; known: seq"):
        parse_durations("sqe=1")
    with pytest.raises(SettingsError, match="durations: seq: must be seconds, got '360ms'"):
        parse_durations("seq=360ms")
