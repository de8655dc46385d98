"""Which generation plans of which checkpoints are searched, by the names that a user gives.

Guards: a plan that is nobody's left out in silence; policies of two robots compared as if either could drive one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from auras_ros import resources
from auras_ros.evaluate.settings import SettingsError
from auras_ros.evaluate.tuner.generations import generations
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.loaders.open import load


@pytest.fixture(scope="module")
def tokens() -> Checkpoint:
    return load(resources.checkpoint("pusht-tokens"))


@pytest.fixture
def both(checkpoint: Checkpoint, tokens: Checkpoint) -> dict[str, Checkpoint]:
    """Two policies of one robot, one of them autoregressive."""
    return {"pusht": checkpoint, "tokens": tokens}


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ([], [("pusht", "quick"), ("pusht", "ddpm100"), ("tokens", "greedy")]),
        (["greedy", "ddpm100"], [("pusht", "ddpm100"), ("tokens", "greedy")]),
        (["ddim10", "greedy"], [("pusht", "ddim10"), ("tokens", "greedy")]),
    ],
)
def test_each_checkpoint_has_those_of_the_named_plans_that_it_can_have(
    both: dict[str, Checkpoint], named: list[str], found: list[tuple[str, str]]
) -> None:
    assert generations(both, named) == found


@pytest.mark.parametrize(
    ("named", "why"),
    [
        (["quick", "greedy", "flow5"], "generation: checkpoint 'pusht' has no plan 'flow5'; its plans: quick, ddpm100"),
        (["quick"], "generation: tokens has none of quick; its plans: greedy"),
    ],
)
def test_a_name_that_means_nothing_and_a_checkpoint_without_a_plan_are_refused(
    both: dict[str, Checkpoint], named: list[str], why: str
) -> None:
    with pytest.raises(SettingsError, match=why):
        generations(both, named)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda made: {"contract": replace(made.contract, dt_ms=50.0)}, "control period: 50 ms, not 100 ms"),
        (lambda made: {"contract": replace(made.contract, channels=made.contract.channels[:1])},
         "channels: agent_x, not agent_x, agent_y"),
        (lambda made: {"contract": replace(
            made.contract, channels=(replace(made.contract.channels[0], upper=400.0), made.contract.channels[1]))},
         "agent_x: upper: 400.0, not 512.0"),
        (lambda made: {"spec": replace(made.spec, cameras=(replace(made.spec.cameras[0], name="side"),))},
         "cameras: side, not top"),
    ],
)  # fmt: skip
def test_checkpoints_of_two_robots_are_refused_by_the_first_difference(
    checkpoint: Checkpoint, tokens: Checkpoint, change: Any, why: str
) -> None:
    other = replace(tokens, **change(checkpoint))
    with pytest.raises(SettingsError, match=f"checkpoint: other is not for the robot of pusht: {why}"):
        generations({"pusht": checkpoint, "other": other}, [])


def test_the_same_weights_twice_are_refused(checkpoint: Checkpoint) -> None:
    with pytest.raises(SettingsError, match="checkpoint: a, b: two of them are the same"):
        generations({"a": checkpoint, "b": checkpoint}, [])
