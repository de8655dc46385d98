"""Files that diffusion_policy's own classes saved, of its own configurations: the actions are those that it answered.

They are too large to be kept (each has a whole ResNet18). AURAS_DIFFUSION_POLICY_FILES names a folder of them:
NAME.ckpt, NAME.json (its robot.json) and NAME.pt (`obs`, `action` and `horizon` of its `predict_action` after
torch.manual_seed(1)).
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from auras_ros.policies.loaders.convert import convert
from auras_ros.policies.loaders.open import load
from auras_ros.policies.loaders.robot import Robot
from tests.policies.loaders.reference import Reference, error, replayed

VARIABLE = "AURAS_DIFFUSION_POLICY_FILES"
FILES = sorted(Path(os.environ[VARIABLE]).glob("*.ckpt")) if VARIABLE in os.environ else []
SEED = 1
TOLERANCE = 1e-5  # of each channel's range


@pytest.mark.skipif(not FILES, reason=f"{VARIABLE} names no folder with files of diffusion_policy")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_actions_are_those_of_diffusion_policy(path: Path, tmp_path: Path) -> None:
    convert(path, Robot.load(path.with_suffix(".json")), tmp_path / "out")
    checkpoint = load(tmp_path / "out")
    answered = torch.load(path.with_suffix(".pt"), weights_only=True)
    observed = {key: value[0].numpy() for key, value in answered["obs"].items()}
    images = {
        key: np.round(frames * 255).astype(np.uint8).transpose(0, 2, 3, 1)
        for key, frames in observed.items()
        if frames.ndim == 4
    }
    states = [observed[key].astype(np.float64) for key in observed if key not in images]
    (plan,) = checkpoint.plans
    length, _, actions = checkpoint.policy(plan).noise_shape
    random = torch.Generator().manual_seed(SEED)
    noise = torch.cat([torch.randn(1, answered["horizon"], actions, generator=random) for _ in range(length)])
    reference = Reference(images, np.concatenate(states, 1), noise, answered["action"][0].double().numpy())
    got = replayed(checkpoint, reference)
    assert got.shape == reference.actions.shape
    assert np.ptp(reference.actions, 0).min() > 0.01  # worth comparing
    assert error(checkpoint, got, reference) <= TOLERANCE
