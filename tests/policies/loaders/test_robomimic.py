"""robomimic's checkpoints: the same actions as robomimic itself makes of the same files.

The files were written, and played, by robomimic (scripts/write_loader_fixtures/robomimic_files.py). Guards: features
of an instant joined in another order; weights that are not the moving average's; a crop one pixel off; statistics that
are not undone; a mixture whose modes are averaged; actions of the past executed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.loaders import open as opening
from auras_ros.policies.loaders.convert import convert
from auras_ros.policies.loaders.robomimic import translate
from auras_ros.policies.mlp import MODE_STD, MlpPolicy
from tests.pipeline.real import real, run
from tests.policies.loaders import robomimic_fixtures as made
from tests.policies.loaders.reference import Reference, error, replayed
from tests.policies.loaders.robomimic_fixtures import (
    CLONING_LOW_DIM,
    DIFFUSION_IMAGES,
    DIFFUSION_LOW_DIM,
    FOLDER,
    MIXTURE_IMAGES,
)
from tests.policies.loaders.test_ckpt import still

TOLERANCE = 5e-5  # of an action's range; float32 both; measured: below 7e-6


def opened(name: str, folder: Path, path: Path | None = None) -> Checkpoint:
    path = path or FOLDER / f"{name}.pth"
    return translate(path, made.robot(folder, name)).checkpoint("digest", path)


def compared(checkpoint: Checkpoint, name: str) -> float:
    """The largest difference from robomimic, as a share of an action's range."""
    tensors = load_file(FOLDER / f"{name}.safetensors")
    images = {key.removesuffix("_image"): tensors[f"raw/{key}"].numpy() for key in made.CAMERAS[name]}
    states = np.concatenate([tensors[f"raw/{key}"].numpy() for key, _ in made.STATES[name]], 1).astype(np.float64)
    expected = Reference(images, states, tensors["noise"], tensors["actions"].double().numpy())
    got = replayed(checkpoint, expected)
    assert got.shape == expected.actions.shape
    return error(checkpoint, got, expected)


@pytest.mark.parametrize("name", made.CAMERAS)
def test_the_actions_are_robomimics(name: str, tmp_path: Path) -> None:
    assert compared(opened(name, tmp_path), name) < TOLERANCE


@pytest.mark.parametrize("name", made.CAMERAS)
def test_converted_it_is_a_checkpoint_of_ours_with_a_golden_sample(name: str, tmp_path: Path) -> None:
    convert(FOLDER / f"{name}.pth", made.robot(tmp_path, name), tmp_path / "out")
    checkpoint = opening.load(tmp_path / "out")
    assert checkpoint.verified
    assert compared(checkpoint, name) < TOLERANCE


def test_the_moving_average_is_taken_where_there_is_one(tmp_path: Path) -> None:
    def without(payload: dict[str, Any], config: dict[str, Any]) -> None:
        payload["model"]["ema"] = None

    assert compared(opened(DIFFUSION_LOW_DIM, tmp_path), DIFFUSION_LOW_DIM) < TOLERANCE
    path = made.changed(tmp_path, DIFFUSION_LOW_DIM, without)
    assert compared(opened(DIFFUSION_LOW_DIM, tmp_path, path), DIFFUSION_LOW_DIM) > 100 * TOLERANCE


def test_files_of_robomimic_0_3_are_read(tmp_path: Path) -> None:
    """They have the weights alone under `model`, means and standard deviations, and no statistics of actions."""

    def older(payload: dict[str, Any], config: dict[str, Any]) -> None:
        payload["model"] = payload["model"]["nets"]
        for told in payload["obs_normalization_stats"].values():
            told["mean"], told["std"] = told.pop("offset"), told.pop("scale")
        del payload["action_normalization_stats"], config["train"]["action_keys"], config["train"]["action_config"]

    path = made.changed(tmp_path, CLONING_LOW_DIM, older)
    new, old = opened(CLONING_LOW_DIM, tmp_path), opened(CLONING_LOW_DIM, tmp_path, path)
    assert new.spec == old.spec
    assert all(torch.equal(each, old.networks.state_dict()[name]) for name, each in new.networks.state_dict().items())
    assert (old.trained.lower.tolist(), old.trained.upper.tolist()) == ([-1.0] * 7, [1.0] * 7)


def test_features_are_joined_in_the_order_of_the_file(tmp_path: Path) -> None:
    def turned(payload: dict[str, Any], config: dict[str, Any]) -> None:
        shapes = payload["shape_metadata"]["all_shapes"]
        payload["shape_metadata"]["all_shapes"] = dict(reversed(shapes.items()))

    path = made.changed(tmp_path, DIFFUSION_IMAGES, turned)
    assert compared(opened(DIFFUSION_IMAGES, tmp_path, path), DIFFUSION_IMAGES) > 100 * TOLERANCE


def test_each_mode_of_a_mixture_is_drawn_as_often_as_it_should_be(tmp_path: Path) -> None:
    policy = opened(MIXTURE_IMAGES, tmp_path).policy("once")
    assert isinstance(policy, MlpPolicy)
    draws = 4000
    noise = torch.randn((draws, *policy.noise_shape), generator=torch.Generator().manual_seed(0))
    context = policy.perceive(*policy.example(1, torch.Generator().manual_seed(0)))
    means, logits = policy.network(context)
    actions = policy.finish(policy.step(policy.begin(noise), context.expand(draws, -1), torch.zeros(draws)))[:, 0]
    distance = (actions[:, None] - means[0]).abs().amax(-1)
    assert float(distance.min(-1).values.max()) < 6 * MODE_STD
    counted = torch.bincount(distance.argmin(-1), minlength=means.shape[1]) / draws
    torch.testing.assert_close(counted.float(), logits[0].softmax(-1), rtol=0, atol=0.03)


MODES = ("mode=seq", "mode=dec", "mode=par,concurrency=2", "mode=auras")


@pytest.mark.parametrize("name", [DIFFUSION_LOW_DIM, CLONING_LOW_DIM, MIXTURE_IMAGES])
def test_it_runs_in_every_mode(name: str, tmp_path: Path) -> None:
    """Without a camera too. On what stands still a chunk of the pipeline is that of seq."""
    checkpoint = opened(name, tmp_path)
    loaded, (plan,) = checkpoint.policy(""), checkpoint.plans
    example = loaded.example(1, torch.Generator().manual_seed(0))
    chunks: dict[str, Tensor] = {}
    for mode in MODES:
        more = f"{mode},pp_generation={min(4, loaded.steps)}" if mode == "mode=auras" else mode
        emissions = run(real(Plan.parse(f"{plan},{more}"), loaded, (3,), still(example)[0]), still(example))
        assert emissions, mode
        chunks[mode] = emissions[0].actions
    for mode, chunk in chunks.items():
        assert chunk.shape == (1, checkpoint.horizon, len(made.CHANNELS))
        torch.testing.assert_close(chunk, chunks["mode=seq"], rtol=0, atol=0.01, msg=mode)


def test_a_file_that_is_opened_says_how_to_convert_it(tmp_path: Path) -> None:
    path = made.changed(tmp_path, CLONING_LOW_DIM, lambda payload, config: None)
    for source in (path, tmp_path):
        with pytest.raises(CheckpointError, match=f"auras convert {path} --out {path.with_suffix('')}$"):
            opening.load(source)
    assert opening.translator(path) is translate
