"""Half precision in every mode, with weights away, and where a policy is moved: one choice, wherever it is run.

Guards: a mode whose slab or public context is of another type than what it is copied from; weights that come back from
a file widened; a policy that a bench runs in another type than the agent would.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from auras_ros import resources
from auras_ros.checkpoints.dtype import runtime_dtype
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.clock import MonotonicClock, VirtualClock
from auras_ros.device import Offload, make_device
from auras_ros.loading import pipeline as loading
from auras_ros.loading.pipeline import Pipeline, PipelineSettings, executor_on, load_pipeline
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.loaders.open import load
from tests.pipeline.elsewhere import Elsewhere, values_stay_behind
from tests.pipeline.families import FORMS, actions, checkpoint, least_mb

CLOSE = 0.005  # of the largest action
MODES = [
    "",
    ",mode=dec",
    ",mode=par,concurrency=2",
    ",mode=par,concurrency=2,together=true",
    ",mode=auras,pp_generation=2",
    ",mode=auras,pp_generation=2,pp_perception=2,fetch_offset=-1",
]


def pipeline(kind: str, changes: str, dtype: torch.dtype, offload: Offload | None = None) -> Pipeline:
    plan = Plan.parse(FORMS[kind][0] + changes)
    return Pipeline(
        checkpoint(kind, dtype), plan, PipelineSettings(5, offload=offload), MonotonicClock(), device=make_device("cpu")
    )


@pytest.mark.parametrize(
    ("kind", "changes"),
    [*product(("transformer", "tokens"), MODES), *product(("act", "pi0"), (MODES[0], MODES[-1]))],
)
def test_every_mode_gives_nearly_what_it_gives_in_float32(kind: str, changes: str) -> None:
    if kind == "act":  # one step
        changes = changes.replace("pp_generation=2", "pp_generation=1")
    full, half = (pipeline(kind, changes, dtype) for dtype in (torch.float32, torch.bfloat16))
    expected, got = actions(full), actions(half)
    assert len(got) == len(expected) >= 2
    for one, other in zip(got, expected, strict=True):
        assert one.shape == other.shape
        assert one.isfinite().all()
        if kind in ("transformer", "pi0"):  # rounding chooses other tokens, and untrained networks magnify it
            assert float((one - other).abs().max() / other.abs().max()) <= CLOSE
    assert half.placed.resident < full.placed.resident
    for each in (full, half):
        each.executor.close()


@pytest.mark.parametrize("kind", ["diffusion", "tokens", "smolvla"])
def test_weights_that_are_away_are_as_small_and_give_the_same(kind: str, tmp_path: Path) -> None:
    whole = pipeline(kind, "", torch.bfloat16)
    limit_mb = least_mb(copy.deepcopy(checkpoint(kind, torch.bfloat16)).policy(FORMS[kind][0]))
    away = pipeline(kind, "", torch.bfloat16, Offload(limit_mb, tmp_path))
    assert away.placed.offloaded > away.placed.resident / 2
    assert away.placed.resident + away.placed.offloaded == whole.placed.resident
    assert all(torch.equal(one, other) for one, other in zip(actions(away, 2), actions(whole, 2), strict=True))
    for each in (whole, away):
        each.executor.close()


@pytest.mark.parametrize(("asked", "dtype"), [("auto", torch.float32), ("bfloat16", torch.bfloat16)])
def test_the_agents_setting_is_what_the_weights_are(asked: str, dtype: torch.dtype) -> None:
    made = load_pipeline(resources.checkpoint("pusht"), Plan("quick"), PipelineSettings(dtype=asked), VirtualClock())
    assert made.checkpoint.dtype == dtype
    assert {weight.dtype for weight in made.checkpoint.networks.parameters()} == {dtype}
    assert made.beside(Plan("ddpm100")).checkpoint is made.checkpoint
    made.executor.close()


@pytest.mark.parametrize(("asked", "dtype"), [("auto", torch.bfloat16), ("float32", torch.float32)])
def test_what_is_timed_elsewhere_is_of_the_type_that_an_agent_would_take_there(
    asked: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint of half precision is played on the CPU in float32; widened weights lose nothing on the way back."""
    device = Elsewhere()
    values_stay_behind(monkeypatch)
    monkeypatch.setattr(loading, "make_device", lambda name: device)
    monkeypatch.setattr(loading, "runtime_dtype", lambda name, where, stored: seen(name, "cuda", stored))
    seen = runtime_dtype
    made = replace(checkpoint("diffusion"), asked=asked, stored=torch.bfloat16)
    policy = made.policy("quick")
    run = executor_on("cuda", made, policy, Plan("quick"), 0)
    assert {weight.dtype for weight in policy.parameters()} == {dtype}
    run.close()


def test_a_type_that_is_not_known_is_refused_at_load() -> None:
    with pytest.raises(CheckpointError, match="dtype 'half': must be one of"):
        load(resources.checkpoint("pusht"), "half")
