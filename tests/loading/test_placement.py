"""Policies with most of their weights away: every family and every mode gives what it gives with all of them, bit for
bit, and says which stages bring weights in.

Guards: a family that reads a weight outside its module's forward; a prompt or a table that is lost on the way; a mode
whose threads take one another's weights away; a stage that is captured although its weights come and go.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from auras_ros.clock import MonotonicClock
from auras_ros.device import DeviceError, Offload, in_words, make_device
from auras_ros.device.weights import MB, least, survey
from auras_ros.loading import placement
from auras_ros.loading.pipeline import Pipeline, PipelineSettings
from auras_ros.loading.placement import place_policy, uses
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.policy import PromptedPolicy
from tests.pipeline.families import FORMS, actions, checkpoint, least_mb
from tests.policies import flow_checkpoints, vision_language_checkpoints


@cache
def least_of(kind: str) -> float:
    return least_mb(checkpoint(kind).policy(Plan.parse(FORMS[kind][0]).generation))


@pytest.fixture
def pipeline(tmp_path: Path) -> Callable[..., Pipeline]:
    def make(kind: str, changes: str, away: bool, limit_mb: float | None = None) -> Pipeline:
        made = checkpoint(kind)
        plan = Plan.parse(FORMS[kind][0] + changes)
        offload = Offload(least_of(kind) if limit_mb is None else limit_mb, tmp_path) if away else None
        return Pipeline(made, plan, PipelineSettings(5, offload=offload), MonotonicClock(), device=make_device("cpu"))

    return make


@pytest.mark.parametrize("kind", FORMS)
def test_every_family_gives_what_it_gives_with_all_its_weights(
    kind: str, pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    whole, away = (pipeline(kind, "", away) for away in (False, True))
    assert whole.placed.modules == ()
    kept_since = 648 if kind == "x-transformers" else 0  # a table that its decoder makes in its first forward
    assert away.placed.resident + away.placed.offloaded == whole.placed.resident + kept_since
    assert away.placed.offloaded > away.placed.resident / 2
    expected = actions(whole, 2)
    assert len(expected) == 2
    assert not torch.equal(*expected)
    assert all(torch.equal(one, other) for one, other in zip(actions(away, 2), expected, strict=True))
    assert whole.uncaptured == {}
    assert away.uncaptured.keys() == {"perception", "generation"}
    assert "; generation: the weights of '" in in_words(away.uncaptured)
    assert list(tmp_path.iterdir()) == []
    for each in (whole, away):
        each.executor.close()


@pytest.mark.parametrize("kind", ["diffusion", "tokens"])
@pytest.mark.parametrize(
    "changes",
    [
        ",mode=dec",
        ",mode=par,concurrency=2",
        ",mode=auras,pp_generation=2",
        ",mode=auras,pp_generation=2,pp_perception=2,fetch_offset=-1",
    ],
)
def test_every_mode_gives_what_it_gives_with_all_its_weights(
    kind: str, changes: str, pipeline: Callable[..., Pipeline]
) -> None:
    whole, away = (pipeline(kind, changes, away) for away in (False, True))
    frames = whole.executor.plan.latency_frames + 1
    expected = actions(whole, frames)
    assert len(expected) >= 2
    assert all(torch.equal(one, other) for one, other in zip(actions(away, frames), expected, strict=True))
    assert away.uncaptured.keys() & {"perception", "perception0", "perception1"}
    assert "generation" in away.uncaptured
    assert "fetch" not in away.uncaptured  # a copy, and no weight
    for each in (whole, away):
        each.executor.close()


def test_generation_stays_as_long_as_there_is_room_and_only_perception_is_uncaptured(
    pipeline: Callable[..., Pipeline],
) -> None:
    whole = pipeline("diffusion", "", False)
    policy: Any = whole.executor.policy
    units = survey(policy, uses(policy))
    network = sum(unit.size for unit in units if unit.name.startswith("network."))
    largest = max(unit.size for unit in units if unit.name.startswith("encoder."))
    away = pipeline("diffusion", "", True, (least(policy, units)[0] + network + largest) / MB)
    assert away.placed.modules
    assert all(name.startswith("encoder.") for name in away.placed.modules)
    actions(away, 1)
    assert away.uncaptured.keys() == {"perception"}
    for each in (whole, away):
        each.executor.close()


def test_a_fallback_plan_shares_the_weights_that_are_away(pipeline: Callable[..., Pipeline]) -> None:
    whole, away = (pipeline("diffusion", "", away) for away in (False, True))
    plan = Plan.parse("quick,mode=auras,pp_generation=2")
    besides = [each.beside(plan) for each in (whole, away)]
    assert besides[1].placed.modules == away.placed.modules
    expected = actions(besides[0])
    assert all(torch.equal(one, other) for one, other in zip(actions(besides[1]), expected, strict=True))
    for each in (whole, away, *besides):
        each.executor.close()


@pytest.mark.parametrize("kind", ["openvla", "pi0", "tinyvla"])
def test_another_prompt_reaches_weights_that_are_away(kind: str, pipeline: Callable[..., Pipeline]) -> None:
    whole, away = (pipeline(kind, "", away) for away in (False, True))
    policy: Any = whole.executor.policy
    assert isinstance(policy, PromptedPolicy)
    ids = flow_checkpoints.IDS if kind == "pi0" else vision_language_checkpoints.IDS
    other = [*ids[:-1], ids[-1] + 1]
    before = actions(whole, 1)
    actions(away, 1)
    for each in (whole, away):
        each.set_prompt(other)
    expected = actions(whole, 1)
    assert kind == "tinyvla" or not torch.equal(before[0], expected[0])  # what differs is small there, and may round
    assert torch.equal(actions(away, 1)[0], expected[0])
    for each in (whole, away):
        each.executor.close()


def test_too_little_is_refused_by_the_modules_name(pipeline: Callable[..., Pipeline]) -> None:
    with pytest.raises(DeviceError, match=r"max_memory_mb: 0\.0001, but .* for the largest module that can, '\w+"):
        pipeline("diffusion", "", True, 1e-4)


@pytest.mark.parametrize(("kind", "done"), [
    ("diffusion", {"perceive": 2, "perception_blocks": 1, "begin": 1, "step": 1, "finish": 1}),
    ("tokens", {"perceive": 2, "perception_blocks": 1, "complete": 1, "refresh": 2, "workspace": 2}),
])  # fmt: skip
def test_all_that_stages_do_is_tried(kind: str, done: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    policy, called = checkpoint(kind).policy(FORMS[kind][0]), list[str]()

    def noted(name: str, right: Any) -> Any:
        return lambda *args, **rest: called.append(name) or right(*args, **rest)

    for name in done:
        monkeypatch.setattr(policy, name, noted(name, getattr(policy, name)))
    monkeypatch.setattr(placement, "run_blocks", noted("run_blocks", placement.run_blocks))
    for use in uses(policy):
        use.run()
    assert {name: called.count(name) for name in done} == done
    assert called.count("run_blocks") == 1
    assert [use.times for use in uses(policy)] == ([1, 0, 1, 0] if kind == "tokens" else [1, 0, policy.steps])


def test_what_is_no_module_cannot_be_offloaded(tmp_path: Path) -> None:
    class Plain:
        def to(self, device: torch.device) -> None:
            """Nothing to move."""

    policy: Any = Plain()
    assert place_policy(policy, torch.device("cpu"), None).modules == ()
    with pytest.raises(DeviceError, match=r"max_memory_mb: Plain is no torch\.nn\.Module"):
        place_policy(policy, torch.device("cpu"), Offload(1.0, tmp_path))
