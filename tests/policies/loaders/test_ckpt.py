"""diffusion_policy's .ckpt: the same actions as a second, naive implementation makes of the same tensors.

Guards: a camera's weights given to another; features of an instant joined in another order; weights that are not the
moving average's; actions of the past executed; a crop one pixel off.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.loaders import open as opening
from auras_ros.policies.loaders.ckpt import translate
from auras_ros.policies.loaders.convert import convert
from auras_ros.policies.loaders.robot import Robot
from tests.pipeline.real import real, run
from tests.policies.loaders import diffusion_policy_file as made
from tests.policies.loaders.diffusion_policy_file import (
    DDIM,
    HYBRID_TRANSFORMER,
    HYBRID_UNET,
    IMAGE_UNET,
    PUSHT,
    TWO,
    Policy,
    image_unet,
)
from tests.policies.loaders.diffusion_policy_naive import predict
from tests.policies.loaders.reference import DATA, Reference, replayed

pytest.importorskip("diffusers")

TOLERANCE = 1e-4  # of an action's range; float32 both; measured: below 2e-5
SEED = 3
REAL = DATA / "diffusion_policy" / "hybrid.ckpt"  # written with omegaconf and dill, as the reference does
BY_HYDRA = [REAL.with_name(f"hydra_{version}.ckpt") for version in ("2.2.3", "2.4.0")]  # omegaconf's; with dates


def opened(folder: Path, policy: Policy, weights: made.Weights, order: list[str] | None = None) -> Checkpoint:
    path = made.write(folder / "made.ckpt", policy, weights)
    (folder / "robot.json").write_text(json.dumps(made.robot(policy["shape_meta"]["obs"], order)))
    return translate(path, Robot.load(folder / "robot.json")).checkpoint("digest", path)


def observation(policy: Policy) -> dict[str, Any]:
    random, history = np.random.default_rng(1), policy["n_obs_steps"]
    return {
        key: random.integers(0, 256, (history, *each["shape"][1:], 3), dtype=np.uint8)
        if each.get("type") == "rgb"
        else random.normal(size=(history, each["shape"][0]))
        for key, each in policy["shape_meta"]["obs"].items()
    }


def compared(checkpoint: Checkpoint, policy: Policy, weights: made.Weights, order: list[str]) -> float:
    """The largest difference from the naive implementation, as a share of an action's range, or of the largest action
    where that is beyond it (not clipped). order: of the states."""
    seen = observation(policy)
    states = [seen[key] for key in order if policy["shape_meta"]["obs"][key].get("type") != "rgb"]
    images = {key: frames for key, frames in seen.items() if policy["shape_meta"]["obs"][key].get("type") == "rgb"}
    random = torch.Generator().manual_seed(SEED)
    (plan,) = checkpoint.plans
    length = checkpoint.policy(plan).noise_shape[0]
    noise = torch.cat([torch.randn(1, policy["horizon"], made.ACTIONS, generator=random) for _ in range(length)])
    expected = predict(policy, weights, seen, SEED)
    reference = Reference(images, np.concatenate(states, 1), noise, expected.double().numpy())
    got = replayed(checkpoint, reference)
    assert got.shape == (policy["n_action_steps"], made.ACTIONS)
    assert np.ptp(got, 0).min() > 0.01  # worth comparing
    span = (checkpoint.trained.upper - checkpoint.trained.lower).numpy()
    return float((np.abs(got - reference.actions) / np.maximum(span, np.abs(reference.actions).max(0))).max())


CASES: dict[str, tuple[Policy, str]] = {
    "hybrid U-Net": (made.config(), "group"),
    "two cameras, DDIM": (made.config(HYBRID_UNET, TWO, noise_scheduler=DDIM, num_inference_steps=8), "group"),
    "DDPM, a third of the steps": (made.config(num_inference_steps=4), "group"),
    "DDPM, steps that do not divide those of the training": (made.config(num_inference_steps=5), "group"),
    "clean actions predicted": (
        made.config(noise_scheduler={**DDIM, "prediction_type": "sample"}, num_inference_steps=10),
        "group",
    ),
    "batch normalisation, no crop": (made.config(crop_shape=None, obs_encoder_group_norm=False), "batch"),
    "not clipped, longer history": (
        made.config(noise_scheduler={**made.DDPM, "clip_sample": False}, n_action_steps=7),
        "group",
    ),
    "hybrid transformer": (made.config(HYBRID_TRANSFORMER, TWO), "group"),
    "image U-Net": (image_unet(crop_shape={"wrist": [33, 30], "agentview": [33, 30]}), "group"),
    "image U-Net, one network": (
        image_unet(share_rgb_model=True, imagenet_norm=False, crop_shape=None, resize_shape=[made.SIDE, made.SIDE]),
        "batch",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_actions_are_the_references(name: str, tmp_path: Path) -> None:
    policy, norm = CASES[name]
    weights = made.state_dict(policy, norm=norm)
    keys = policy["shape_meta"]["obs"]
    order = sorted(keys) if policy["_target_"] == IMAGE_UNET else list(keys)
    assert compared(opened(tmp_path, policy, weights, order), policy, weights, order) < TOLERANCE


@pytest.mark.parametrize("target", [HYBRID_UNET, HYBRID_TRANSFORMER])
def test_features_are_joined_in_the_order_of_shape_meta(target: str, tmp_path: Path) -> None:
    """The same tensors under another order are another policy, which is followed."""
    other = {key: TWO[key] for key in ("gripper", "agentview", "eef_pos", "wrist")}
    policy, turned = made.config(target, TWO), made.config(target, other)
    weights = made.state_dict(policy)
    assert compared(opened(tmp_path, turned, weights), turned, weights, list(other)) < TOLERANCE
    assert compared(opened(tmp_path, policy, weights), turned, weights, list(TWO)) > 100 * TOLERANCE


@pytest.mark.parametrize("path", [REAL, *BY_HYDRA], ids=lambda path: path.stem)
def test_what_the_training_itself_saves_is_read(path: Path) -> None:
    """omegaconf's nodes, pickled by dill: written by scripts/write_loader_fixtures/diffusion_policy.py."""
    policy = made.config()
    robot = Robot.load(path.parent / "robot.json")
    checkpoint = translate(path, robot).checkpoint("digest", path)
    assert (checkpoint.name, checkpoint.trained.executed) == (path.stem, (made.HISTORY - 1, made.EXECUTED))
    assert compared(checkpoint, policy, made.state_dict(policy), list(PUSHT)) < TOLERANCE


def test_converted_it_is_a_checkpoint_of_ours_with_a_golden_sample(tmp_path: Path) -> None:
    policy = made.config()
    converted = convert(REAL, Robot.load(REAL.parent / "robot.json"), tmp_path / "out")
    checkpoint = opening.load(tmp_path / "out")
    assert checkpoint.verified
    assert not converted.checkpoint.verified
    assert compared(checkpoint, policy, made.state_dict(policy), list(PUSHT)) < TOLERANCE


def test_it_runs_in_every_mode(tmp_path: Path) -> None:
    """On a picture that stands still a chunk of the pipeline is that of seq."""
    policy = made.config(HYBRID_UNET, TWO)
    checkpoint = opened(tmp_path, policy, made.state_dict(policy))
    loaded, (plan,) = checkpoint.policy("ddpm12"), checkpoint.plans
    example = loaded.example(1, torch.Generator().manual_seed(0))
    chunks: dict[str, Tensor] = {}
    for more in ("mode=seq", "mode=dec", "mode=par,concurrency=2", "mode=auras,pp_perception=3,pp_generation=4"):
        emissions = run(real(Plan.parse(f"{plan},{more}"), loaded, (SEED,), still(example)[0]), still(example))
        assert emissions, more
        chunks[more] = emissions[0].actions
    for more, chunk in chunks.items():
        assert chunk.shape == (1, made.EXECUTED, made.ACTIONS)
        torch.testing.assert_close(chunk, chunks["mode=seq"], rtol=0, atol=0.01, msg=more)


def still(example: tuple[Tensor, Tensor]) -> list[Any]:
    from auras_ros.pipeline.request import Latched, ObservationOrigin

    return [Latched(example[0].clone(), example[1].clone(), ObservationOrigin(frame, frame)) for frame in range(8)]


def test_the_moving_average_is_taken_where_there_is_one(tmp_path: Path) -> None:
    policy = made.config()
    weights = made.state_dict(policy)
    saved = made.payload(policy, weights)
    saved["state_dicts"]["model"] = saved["state_dicts"].pop("ema_model")
    path = tmp_path / "made.ckpt"
    torch.save(saved, path)
    (tmp_path / "robot.json").write_text(json.dumps(made.robot()))
    alone = translate(path, Robot.load(tmp_path / "robot.json")).tensors
    both = translate(made.write(path, policy, weights), Robot.load(tmp_path / "robot.json")).tensors
    assert alone.keys() == both.keys()
    assert all(torch.equal(alone[name], both[name]) for name in alone)
    assert torch.equal(both["network.final_conv.1.bias"], weights["model.final_conv.1.bias"])


def test_a_folder_with_one_says_how_to_convert_it(tmp_path: Path) -> None:
    path = made.write(tmp_path / "latest.ckpt", made.config(), {})
    with pytest.raises(CheckpointError, match=f"auras convert {path} --robot robot.json --out {tmp_path}/latest$"):
        opening.load(tmp_path)
    assert opening.translator(path) is translate
