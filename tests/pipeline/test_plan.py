"""The plan: what is written is what is read, and whatever cannot work is refused by the name of its field.

Guards: a typing slip that silently gives the default plan; a setting that has no effect in the chosen mode; a plan
whose text in a report does not give the same plan again.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.pipeline.plan import MAX_STAGES, MODES, Plan, PlanError, stage_steps
from tests.pipeline.reference import split

AURAS_ONLY = ("pp_perception", "pp_generation", "fetch_offset", "alpha", "batched")

names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_", min_size=1)
reals = st.floats(0, 10, allow_nan=False)
common: dict[str, st.SearchStrategy[Any]] = {
    "generation": names,
    "frame_period_ms": st.floats(0, 60_000, allow_nan=False),
}
plans = st.one_of(
    st.builds(Plan, mode=st.sampled_from(["seq", "dec"]), **common),
    st.builds(Plan, mode=st.just("par"), concurrency=st.integers(1, MAX_STAGES), together=st.booleans(), **common),
    st.builds(
        Plan,
        mode=st.just("auras"),
        pp_perception=st.integers(1, MAX_STAGES),
        pp_generation=st.integers(1, MAX_STAGES),
        fetch_offset=st.sampled_from([-1, 0]),
        alpha=reals,
        batched=st.booleans(),
        **common,
    ),
)


@given(plans)
def test_a_plans_text_gives_the_plan_again(plan: Plan) -> None:
    assert Plan.parse(str(plan)) == plan


def test_a_plan_is_read_field_by_field() -> None:
    text = (
        "ddpm100, mode=auras,pp_perception=2,pp_generation=8,fetch_offset=-1,alpha=0.5,batched=false,frame_period_ms=40"
    )
    assert Plan.parse(text) == Plan("ddpm100", "auras", 2, 8, -1, 0.5, False, 40.0, 1)
    assert Plan.parse("mode=par,concurrency=3") == Plan(mode="par", concurrency=3)
    assert Plan.parse("quick,mode=par,concurrency=3,together=true") == Plan(
        "quick", "par", concurrency=3, together=True
    )
    assert Plan.parse("generation=fine") == Plan.parse("fine") == Plan("fine")
    assert Plan.parse("") == Plan() == Plan(generation="")
    assert Plan.parse(",alpha=1,mode=auras") == Plan(mode="auras", alpha=1.0)


def test_a_plan_that_names_no_generation_plan_means_the_checkpoints_first() -> None:
    assert str(Plan()) == ""
    assert str(Plan(mode="auras", pp_generation=2)) == "mode=auras,pp_generation=2"
    assert str(Plan(mode="dec").named("greedy")) == "greedy,mode=dec"
    assert str(Plan("fine", mode="dec").named("greedy")) == "fine,mode=dec"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (",", "'': expected NAME=VALUE"),
        ("quick,", "'': expected NAME=VALUE"),
        ("quick,mode", "'mode': expected NAME=VALUE"),
        ("quick,pp_gen=3", "'pp_gen=3': did you mean pp_generation?"),
        ("quick,fast", "'fast': expected NAME=VALUE"),
        ("quick,generation=fine", "generation: given twice"),
        ("quick,mode=seq,mode=dec", "mode: given twice"),
        ("quick,mode=turbo", "mode: must be one of seq, dec, par, auras, got 'turbo'"),
        ("quick,mode=auras,pp_generation=2.5", "pp_generation: must be a whole number, got '2.5'"),
        ("quick,mode=auras,alpha=steep", "alpha: must be a number, got 'steep'"),
        ("quick,batched=yes", "batched: must be true or false, got 'yes'"),
        ("quick,mode=par,together=1", "together: must be true or false, got '1'"),
    ],
)
def test_a_text_that_is_no_plan_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(PlanError, match="plan: ") as refused:
        Plan.parse(text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("mode", ["", "AURAS", None, 1]),
        ("generation", [None, 100, "a,b", "a=b"]),
        ("batched", [1, 0, "true", None]),
        ("pp_perception", [0, -1, MAX_STAGES + 1, 1.0, True, "2", None]),
        ("pp_generation", [0, -1, MAX_STAGES + 1, 1.0, True, "2", None]),
        ("fetch_offset", [1, -2, 0.0, False, None]),
        ("alpha", [-0.1, 10.1, float("nan"), float("inf"), True, "0.5", None]),
        ("frame_period_ms", [-1, 60_001, float("nan"), float("inf"), True, "40", None]),
    ],
)
def test_a_field_that_cannot_be_is_refused_by_name(field: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(PlanError, match=rf"^plan: {field}: must ") as refused:
            Plan(**{"mode": "auras", field: value})
        assert repr(value) in str(refused.value)


@pytest.mark.parametrize("value", [0, -1, MAX_STAGES + 1, 1.0, True, "2", None])
def test_workers_that_cannot_be_are_refused_by_name(value: Any) -> None:
    with pytest.raises(PlanError, match=r"^plan: concurrency: must be a whole number"):
        Plan(mode="par", concurrency=value)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pp_perception", 2),
        ("pp_generation", 2),
        ("fetch_offset", -1),
        ("alpha", 0.5),
        ("batched", False),
        ("concurrency", 2),
        ("together", True),
    ],
)
def test_a_field_without_meaning_in_the_mode_is_refused_by_name(mode: str, field: str, value: Any) -> None:
    only = "auras" if field in AURAS_ONLY else "par"
    if mode == only:
        assert getattr(Plan(mode=mode, **{field: value}), field) == value
        return
    with pytest.raises(PlanError, match=rf"^plan: {field}: .* has no meaning in mode {mode}, only {only}$"):
        Plan(mode=mode, **{field: value})


def test_a_plan_is_never_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Plan().mode = "auras"  # type: ignore[misc]


@given(plans, st.sampled_from(MODES), st.integers(1, MAX_STAGES))
def test_the_same_plan_in_another_mode_keeps_what_both_know(plan: Plan, mode: str, concurrency: int) -> None:
    other = plan.as_mode(mode, concurrency)
    assert other.mode == mode
    for kept in ("generation", "frame_period_ms"):
        assert getattr(other, kept) == getattr(plan, kept)
    assert other.concurrency == (concurrency if mode == "par" else 1)
    if mode == plan.mode == "auras":
        assert other == plan


@given(st.integers(1, 200), st.integers(1, MAX_STAGES), st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0, 2.0, 10.0]))
def test_steps_of_the_stages_are_those_of_the_rule(steps: int, stages: int, alpha: float) -> None:
    if steps < stages:
        with pytest.raises(PlanError, match=rf"plan: pp_generation: {stages} stages for {steps} generation steps"):
            stage_steps(steps, stages, alpha)
        return
    counts = stage_steps(steps, stages, alpha)
    assert list(counts) == split(steps, stages, alpha)
    assert sum(counts) == steps
    assert min(counts) >= 1
