"""The type of the weights at run time: which one is taken, that nothing is widened, and what a golden sample says then.

Guards: half-precision weights that lie in memory in float32; a sampler's table, a mean or a mask that is rounded with
the weights; a sound checkpoint that half precision refuses, and a wrong one that it lets through.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from auras_ros import resources
from auras_ros.checkpoints.dtype import DTYPES, runtime_dtype, stored_dtype, weights_in
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.policies.checkpoint import GOLDEN, Checkpoint
from auras_ros.policies.loaders.open import load
from auras_ros.policies.policy import generate
from tests.pipeline.families import FORMS, checkpoint
from tests.policies.loaders import openvla_folder

HALF = [torch.bfloat16, torch.float16]
# Of the largest action, untrained networks: they magnify rounding. Those of the TinyVLA here begin ten times as large
# as a trained one's, so that what is lost on the way shows: it is compared where its weights are smaller.
CLOSE = {torch.bfloat16: 0.06, torch.float16: 0.01}
KINDS = [kind for kind in FORMS if kind != "x-transformers"]


@pytest.mark.parametrize(
    ("name", "device", "stored", "taken"),
    [
        ("auto", "cpu", torch.bfloat16, torch.float32),
        ("auto", "cpu", torch.float32, torch.float32),
        ("auto", "cuda", torch.bfloat16, torch.bfloat16),
        ("auto", "cuda", torch.float16, torch.float16),
        ("auto", "cuda", torch.float32, torch.float32),
        ("auto", "cuda", torch.float64, torch.float32),
        ("bfloat16", "cpu", torch.float32, torch.bfloat16),
        ("float32", "cuda", torch.bfloat16, torch.float32),
    ],
)
def test_auto_rounds_no_weight_and_goes_by_the_device(
    name: str, device: str, stored: torch.dtype, taken: torch.dtype
) -> None:
    assert name in DTYPES
    assert runtime_dtype(name, device, stored) == taken


def test_a_type_that_is_not_known_is_refused_by_name() -> None:
    with pytest.raises(CheckpointError, match="dtype 'int8': must be one of auto, float32, bfloat16, float16"):
        runtime_dtype("int8", "cpu", torch.float32)


def test_a_file_is_of_the_type_that_most_of_its_numbers_have() -> None:
    ids, norm, weight = torch.zeros(99, dtype=torch.int64), torch.zeros(3), torch.zeros(9, dtype=torch.bfloat16)
    assert stored_dtype({"ids": ids, "norm": norm, "weight": weight}) == torch.bfloat16
    assert stored_dtype({"ids": ids, "norm": norm}) == stored_dtype({}) == torch.float32


def test_weights_are_made_in_their_type_and_buffers_and_other_threads_modules_are_not() -> None:
    with weights_in(torch.bfloat16):
        norm, tied = nn.BatchNorm1d(4), nn.Linear(4, 4)
        tied.register_parameter("again", tied.weight)
    assert norm.weight.dtype == tied.weight.dtype == torch.bfloat16
    assert tied.get_parameter("again") is tied.weight
    assert norm.running_mean is not None
    assert norm.running_mean.dtype == torch.float32
    assert nn.Linear(4, 4).weight.dtype == torch.float32


def bytes_of(made: Checkpoint) -> int:
    return sum(weight.numel() * weight.element_size() for weight in made.networks.parameters())


def chunk(made: Checkpoint, kind: str) -> Tensor:
    policy = made.policy(FORMS[kind][0])
    images, state = policy.example(1, torch.Generator().manual_seed(3))
    noise = torch.randn((1, *policy.noise_shape), generator=torch.Generator().manual_seed(4))
    context = policy.perceive(images, state)
    assert context.dtype == made.dtype
    for step_state in (policy.begin(noise), policy.step(policy.begin(noise), context, torch.tensor([0]))):
        assert all(part.dtype in (torch.float32, torch.int64) for part in step_state), "noise and sample stay float32"
    return generate(policy, noise, context)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_every_family_runs_in_half_precision(kind: str, dtype: torch.dtype) -> None:
    full, half = checkpoint(kind), checkpoint(kind, dtype)
    assert 2 * bytes_of(half) == bytes_of(full)
    if kind == "tinyvla":
        for made in (full, half):
            for weight in made.networks.parameters():
                weight.mul_(0.3)
    for name, buffer in half.policy(FORMS[kind][0]).named_buffers():  # type: ignore[attr-defined]
        assert buffer.dtype not in HALF or buffer.numel() == 0, f"{name} is rounded"
    expected, got = chunk(full, kind), chunk(half, kind)
    assert got.dtype == torch.float64
    apart = float((got - expected).abs().max() / expected.abs().max())
    assert apart <= CLOSE[dtype]
    if kind not in ("tokens", "openvla", "rt2"):
        assert apart > 0, "computed in float32"


def test_x_transformers_runs_in_float32_alone_and_says_so(tmp_path: Path) -> None:
    pytest.importorskip("x_transformers")
    from auras_ros.policies.checkpoint import build

    with pytest.raises(CheckpointError, match="dtype: type 'x-transformers' runs in float32 only"):
        build(FORMS["x-transformers"][1](), "0" * 64, tmp_path / "policy.json", torch.bfloat16)


def test_half_precision_of_a_folder_is_kept_as_it_is_on_a_gpu(tmp_path: Path) -> None:
    """An OpenVLA folder in bfloat16: no weight is ever float32, neither while it is built nor afterwards."""
    folder = tmp_path / "tiny-openvla"
    with openvla_folder.tiny_encoders():
        openvla_folder.write(folder)
        for file in folder.glob("*.safetensors"):
            save_file({name: tensor.bfloat16() for name, tensor in load_file(file).items()}, file)
        made = load(folder, "auto", "cuda")
        wide = load(folder)
    assert (made.stored, made.dtype, wide.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)
    assert {weight.dtype for weight in made.networks.parameters()} == {torch.bfloat16}
    assert 2 * bytes_of(made) == bytes_of(wide)
    for one, other in zip(made.networks.parameters(), wide.networks.parameters(), strict=True):
        assert torch.equal(one.float(), other)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["pusht", "pusht-tokens"])
def test_the_golden_sample_of_what_ships_is_met_in_half_precision_and_a_wrong_picture_is_not(
    name: str, dtype: str, tmp_path: Path
) -> None:
    folder = tmp_path / name
    shutil.copytree(resources.checkpoint(name), folder)
    assert load(folder, dtype).verified
    sample = load_file(folder / GOLDEN)
    pictures = next(name for name in sample if name.startswith("image/"))
    sample[pictures] = sample[pictures].flip(1).contiguous()
    save_file(sample, folder / GOLDEN)
    with pytest.raises(CheckpointError, match=r"golden sample: plan .* those it was trained with"):
        load(folder, dtype)
