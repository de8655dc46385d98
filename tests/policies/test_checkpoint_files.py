"""Every fault of a checkpoint's weights and golden sample is refused, the tensor named.

Guards: weights that are not the manifest's; a NaN, an overflow or a missing tensor that is found only on the robot.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.manifest import MANIFEST
from auras_ros.policies.checkpoint import GOLDEN, WEIGHTS, load
from tests.policies.spoil import Tensors, edit_golden, edit_weights, sign

FIRST = "encoder.auxiliary.bias"


def spoil(value: float) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        tensors["network.out.weight"][1, 2, 0] = value

    return edit


WEIGHT_FAULTS: dict[str, tuple[Callable[[Tensors], Any], str]] = {
    "missing": (lambda t: t.pop("network.out.bias"), "tensor 'network.out.bias' is missing"),
    "extra": (lambda t: t.update(bonus=torch.zeros(1)), "tensor 'bonus' belongs to no part"),
    "shape": (lambda t: t.update({FIRST: torch.zeros(3)}), f"tensor '{FIRST}' has shape \\[3\\], expected \\[2\\]"),
    "integers": (lambda t: t.update({FIRST: torch.zeros(2, dtype=torch.int64)}), f"tensor '{FIRST}' has type"),
    "beyond float32": (
        lambda t: t.update({FIRST: torch.full((2,), 1e300, dtype=torch.float64)}),
        f"tensor '{FIRST}' has values beyond",
    ),
    "NaN": (spoil(float("nan")), "tensor 'network.out.weight' holds NaN or infinity"),
    "infinity": (spoil(float("-inf")), "tensor 'network.out.weight' holds NaN or infinity"),
    "NaN in half": (
        lambda t: t.update({FIRST: torch.full((2,), float("nan"), dtype=torch.float16)}),
        f"tensor '{FIRST}' holds NaN",
    ),
    "NaN in float8": (
        lambda t: t.update({FIRST: torch.full((2,), float("nan")).to(torch.float8_e4m3fn)}),
        f"tensor '{FIRST}' holds NaN",
    ),
    "changed a little": (spoil(0.5), "golden sample: plan 'quick', step"),
    "so large that it overflows": (
        lambda t: t.update({name: x * 1e30 for name, x in t.items() if name.startswith("network.bottom")}),
        "golden sample: plan 'quick', step 0, channel 'agent_x': nan",
    ),
}


@pytest.mark.parametrize("fault", WEIGHT_FAULTS)
def test_a_fault_of_the_weights_is_refused_by_name(folder: Path, fault: str) -> None:
    edit, said = WEIGHT_FAULTS[fault]
    edit_weights(folder, edit)
    with pytest.raises(CheckpointError, match=said):
        load(folder)


@pytest.mark.parametrize("share", [0.0, 1e-4, 0.01, 0.5, 0.999])
def test_truncated_weights_are_refused(folder: Path, share: float) -> None:
    path = folder / WEIGHTS
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    sign(folder)
    with pytest.raises(CheckpointError, match="not a readable safetensors file"):
        load(folder)


def test_weights_that_are_not_the_manifests_are_refused(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors["network.out.bias"] += 1
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: is not the file that policy\.json was written for"):
        load(folder)


@pytest.mark.parametrize("name", [MANIFEST, WEIGHTS, GOLDEN])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=f"{name}: file not found"):
        load(folder)


GOLDEN_FAULTS: dict[str, tuple[Callable[[Tensors], Any], str]] = {
    "a plan missing": (lambda t: t.pop("actions/fine/agent_y"), "plan 'fine', channel 'agent_y'"),
    "a camera missing": (lambda t: t.pop("image/top"), "does not fit the observation: 'top'"),
    "a joint missing": (lambda t: t.pop("state/agent_y"), "does not fit the observation: 'agent_y'"),
    "history too short": (lambda t: t.update({"image/top": t["image/top"][:1].clone()}), "does not fit"),
    "images of floats": (lambda t: t.update({"image/top": t["image/top"].float()}), "does not fit.*dtype"),
    "joints of two lengths": (lambda t: t.update({"state/agent_y": torch.zeros(1).double()}), "does not fit"),
    "another thing": (lambda t: t.update(extra=torch.zeros(1)), "tensor 'extra' belongs to no part"),
    "NaN": (lambda t: t["actions/quick/agent_x"].fill_(float("nan")), "'actions/quick/agent_x' holds NaN"),
    "another action": (
        lambda t: t["actions/fine/agent_y"][5:6].add_(1),
        "plan 'fine', step 5, channel 'agent_y'",
    ),
}


@pytest.mark.parametrize("fault", GOLDEN_FAULTS)
def test_a_fault_of_the_golden_sample_is_refused_by_name(folder: Path, fault: str) -> None:
    edit, said = GOLDEN_FAULTS[fault]
    edit_golden(folder, edit)
    with pytest.raises(CheckpointError, match=said):
        load(folder)
