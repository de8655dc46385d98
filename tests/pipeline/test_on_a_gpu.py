"""Whole policies in every mode: every stage is captured, and the graphs give what plain calls on the CPU give.

The CPU's rows compare it with itself: what stands here is known to run before a GPU is there. Guards: a stage
that cannot be captured; a graph that reads an address of its capture; copies that overtake or are overtaken.
"""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from auras_ros.clock import MonotonicClock
from auras_ros.device import Offload, make_device
from auras_ros.loading.pipeline import Pipeline, PipelineSettings
from auras_ros.measure.durations import measure_durations
from auras_ros.pipeline.plan import Plan
from tests.pipeline.families import FORMS, actions, checkpoint, least_mb

RUNS = [
    ("transformer", "cpu"),
    *(pytest.param(kind, "cuda", marks=pytest.mark.gpu) for kind in ("resnet", "transformer", "tokens", "pi0")),
]
MODES = [
    "",
    ",mode=dec",
    ",mode=par,concurrency=3",
    ",mode=auras,pp_generation=2",
    ",mode=auras,pp_generation=2,pp_perception=2,fetch_offset=-1",
]
LIMITS = {"rtol": 2e-3, "atol": 2e-3}  # of float32 on two kinds of device, through random networks


def made(kind: str, changes: str, device: str, offload: Offload | None = None) -> Pipeline:
    plan = Plan.parse(FORMS[kind][0] + changes)
    return Pipeline(
        checkpoint(kind), plan, PipelineSettings(5, offload=offload), MonotonicClock(), device=make_device(device)
    )


@pytest.mark.parametrize("changes", MODES)
@pytest.mark.parametrize(("kind", "device"), RUNS)
def test_every_mode_gives_what_the_cpu_gives(kind: str, changes: str, device: str) -> None:
    reference, pipeline = made(kind, changes, "cpu"), made(kind, changes, device)
    expected, found = actions(reference), actions(pipeline)
    assert len(expected) >= 2
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **LIMITS)
    assert pipeline.uncaptured == {}
    for each in (reference, pipeline):
        each.executor.close()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("folder", [False, True])
def test_offloaded_weights_give_on_a_gpu_what_all_give_on_the_cpu(kind: str, folder: bool, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    policy = copy.deepcopy(checkpoint(kind)).policy(FORMS[kind][0])
    offload = Offload(least_mb(policy), tmp_path if folder else None)
    reference, pipeline = made(kind, "", "cpu"), made(kind, "", "cuda", offload)
    for one, other in zip(actions(pipeline, 2), actions(reference, 2), strict=True):
        torch.testing.assert_close(one, other, **LIMITS)
    assert pipeline.uncaptured.keys() == {"perception", "generation"}
    for each in (reference, pipeline):
        each.executor.close()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_frames_are_timed_there_and_the_checkpoint_stays_on_the_cpu(device: str) -> None:
    """`auras tune --device cuda` plays on the CPU what it has timed on the GPU."""
    mine = checkpoint("transformer")
    plans = {mode: Plan.parse(FORMS["transformer"][0] + mode) for mode in MODES}
    found = measure_durations(mine, plans, rounds=2, frames=3, device=device)
    assert {name.partition("/")[0] for name in found} == set(MODES)
    assert all(duration.n >= 6 and duration.seconds > 0 for duration in found.values())
    policy = mine.policy(FORMS["transformer"][0])
    assert {each.device.type for each in policy.parameters()} == {"cpu"}
