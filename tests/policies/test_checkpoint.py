"""A checkpoint is read back as it was written, and every fault of its manifest is refused, the thing named.

Guards: a manifest that says something else than the training did; an error of another type than CheckpointError,
which would end the agent instead of the configure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.manifest import MANIFEST
from auras_ros.checkpoints.tensors import fill
from auras_ros.policies.checkpoint import GOLDEN, WEIGHTS, load
from auras_ros.policies.golden import GoldenSample
from tests.policies import tiny
from tests.policies.spoil import edit_manifest, edit_weights


def test_round_trip(written: Path) -> None:
    checkpoint = load(written)
    assert checkpoint.name == "tiny"
    assert checkpoint.horizon == 8
    assert checkpoint.plans == tiny.MANIFEST["plans"]
    assert checkpoint.spec.to_dict() == tiny.MANIFEST["observation"]
    assert checkpoint.contract.names == tiny.AXES
    assert checkpoint.digest == hashlib.sha256((written / WEIGHTS).read_bytes()).hexdigest()
    policy = checkpoint.policy("fine")
    assert policy.steps == 5
    saved = load_file(written / WEIGHTS)
    for part in ("encoder", "network"):
        loaded = policy.get_submodule(part).state_dict()
        assert all(torch.equal(tensor, saved[f"{part}.{name}"]) for name, tensor in loaded.items())
        assert {f"{part}.{name}" for name in loaded} == {name for name in saved if name.startswith(f"{part}.")}
    assert not any(parameter.requires_grad for parameter in policy.parameters())
    assert not policy.training


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_in_another_float_type_load_and_run_in_single(folder: Path, dtype: torch.dtype) -> None:
    edit_weights(folder, lambda tensors: tensors.update({name: t.to(dtype) for name, t in tensors.items()}))
    checkpoint = tiny.checkpoint()
    fill(checkpoint.networks, load_file(folder / WEIGHTS), folder / WEIGHTS)
    tiny.write_golden(folder, checkpoint, GoldenSample.load(folder / GOLDEN))  # half precision moves the actions
    policy = load(folder).policy("quick")
    assert {parameter.dtype for parameter in policy.parameters()} == {torch.float32}


def test_an_unknown_plan_is_refused_and_the_known_ones_are_named(written: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'tiny' has no plan 'slow'; its plans: quick, fine"):
        load(written).policy("slow")


def camera(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["observation"]["cameras"][0].update(changes)


def joints(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["observation"]["state"]["normalization"].update(changes)


def top(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest.update(changes)


MANIFEST_FAULTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "colours swapped": (camera(color="bgr"), "golden sample: plan 'quick', step"),
    "pixel mean changed": (camera(mean=[0.5, 0.5, 0.4]), "golden sample: plan 'quick', step"),
    "pixel scale changed": (camera(scale=1 / 256), "golden sample: plan 'quick', step"),
    "joints swapped": (
        lambda m: m["observation"]["state"]["names"].reverse(),
        "golden sample: plan 'quick', step",
    ),
    "joint statistics changed": (joints(max=[512.0, 500.0]), "golden sample: plan 'quick', step"),
    "channels swapped": (lambda m: m["action"]["channels"].reverse(), "golden sample: plan 'quick', step 0"),
    "action statistics changed": (
        lambda m: m["statistics"].update(upper=[512.0, 55.0]),
        "channel 'agent_y'.*statistics",
    ),
    "camera renamed": (camera(name="wrist"), "golden sample: does not fit the observation: 'wrist'"),
    "camera of another size": (camera(height=23), "golden sample: does not fit.*top.*expected \\(23, 24, 3\\)"),
    "joint renamed": (
        lambda m: m["observation"]["state"].update(names=["agent_x", "elbow"]),
        "golden sample: does not fit the observation: 'elbow'",
    ),
    "channel renamed": (
        lambda m: m["action"]["channels"][0].update(name="tool_x"),
        "golden sample: no actions for plan 'quick', channel 'tool_x'",
    ),
    "history changed": (lambda m: m["observation"].update(history=1), "'network.observation.0.weight' has shape"),
    "horizon of the wrong length": (top(horizon=12), "golden sample: plan 'quick': horizon 12.*\\[8\\]"),
    "horizon not divisible": (top(horizon=18), "horizon: 18 is not a positive multiple of 4"),
    "horizon zero": (top(horizon=0), "horizon: 0 is not"),
    "horizon not a number": (top(horizon="8"), "horizon: '8' is not"),
    "unknown key": (top(colour="rgb"), "key 'colour' is unknown"),
    "missing key": (lambda m: m.pop("plans"), "key 'plans' is missing"),
    "unknown format": (top(format="auras-policy/9"), "format is not 'auras-policy/1'"),
    "unknown type": (top(type="magic"), "type 'magic' is not known"),
    "unknown camera key": (camera(colour="rgb"), "colour"),
    "bad contract": (lambda m: m["action"].update(dt_ms=-1), "dt_ms"),
    "unknown encoder key": (lambda m: m["encoder"].update(depth=3), "encoder or network: .*depth"),
    "encoder width not divisible": (lambda m: m["encoder"].update(widths=[15, 8, 8]), "encoder or network"),
    "encoder not an object": (top(encoder=3), "encoder or network"),
    "other encoder": (
        lambda m: m["encoder"].update(maps=8),
        "'encoder.maps.weight' has shape \\[4, 16, 1, 1\\], expected",
    ),
    "no plans": (top(plans={}), "plans: expected at least one"),
    "plan without golden actions": (
        lambda m: m["plans"].update(more={"sampler": "ddim", "steps": 1}),
        "no actions for plan 'more'",
    ),
    "plan of another length": (lambda m: m["plans"]["quick"].update(steps=4), "golden sample: plan 'quick', step"),
    "plan with a bad sampler": (lambda m: m["plans"]["quick"].update(sampler="euler"), "plan 'quick': .*'euler'"),
    "plan with bad steps": (lambda m: m["plans"]["quick"].update(steps=0), "plan 'quick': .*got 0"),
    "plan without steps": (lambda m: m["plans"]["quick"].pop("steps"), "plan 'quick': 'steps' is missing"),
    "plan not an object": (lambda m: m["plans"].update(quick=7), "plan 'quick'"),
    "statistics of another kind": (
        lambda m: m["statistics"].update(kind="median"),
        "kind 'median' is not known; known: min_max, mean_std",
    ),
    "statistics of one kind under another's name": (
        lambda m: m["statistics"].update(kind="mean_std"),
        "statistics: expected kind, mean and std",
    ),
    "statistics without a kind": (lambda m: m["statistics"].pop("kind"), "statistics: expected kind, lower and upper"),
    "statistics of no kind": (lambda m: m["statistics"].update(kind=None), "statistics: kind None is not known"),
    "standard deviation below zero": (
        top(statistics={"kind": "mean_std", "mean": [0.0, 0.0], "std": [1.0, -0.5]}),
        "statistics of 'agent_y': std -0.5 is below zero",
    ),
    "executed beyond the horizon": (top(executed=[1, 8]), r"executed: \[1, 8\] is not \[first, count\] within"),
    "executed nothing": (top(executed=[1, 0]), "executed: "),
    "executed not two numbers": (top(executed="all"), "executed: 'all'"),
    "statistics with an unknown key": (lambda m: m["statistics"].update(mean=[0, 0]), "statistics: expected kind"),
    "statistics missing": (lambda m: m["statistics"].pop("lower"), "statistics: expected kind, lower and upper"),
    "statistics not an object": (top(statistics=[]), "statistics: expected kind"),
    "statistics too short": (lambda m: m["statistics"].update(lower=[0.0]), "lower: expected 2 finite numbers"),
    "statistics of text": (lambda m: m["statistics"].update(lower=["0", "a"]), "lower: expected 2 finite"),
    "statistics nested": (lambda m: m["statistics"].update(lower=[[0], [0]]), "lower: expected 2 finite"),
    "statistics not finite": (lambda m: m["statistics"].update(upper=[1.0, float("nan")]), "upper: expected 2"),
    "statistics upside down": (
        lambda m: m["statistics"].update(lower=[0.0, 60.0]),
        "'agent_y': lower 60.0 is not below upper 60.0",
    ),
    "digest of another file": (lambda m: m["weights"].update(sha256="0" * 64), "is not the file that policy.json"),
    "weights elsewhere": (lambda m: m["weights"].update(file="../other.safetensors"), "is not the file"),
}


@pytest.mark.parametrize("fault", MANIFEST_FAULTS)
def test_a_fault_of_the_manifest_is_refused_by_name(folder: Path, fault: str) -> None:
    edit, said = MANIFEST_FAULTS[fault]
    edit_manifest(folder, edit)
    with pytest.raises(CheckpointError, match=said):
        load(folder)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"", "not JSON"),
        (b"[]", "expected an object, got list"),
    ],
    ids=["cut", "not UTF-8", "bottomless", "empty", "a list"],
)
def test_a_manifest_that_is_no_json_object_is_refused(folder: Path, content: bytes, said: str) -> None:
    (folder / MANIFEST).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"policy.json: {said}"):
        load(folder)
