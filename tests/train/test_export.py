"""What the exporter writes is what the loader and the training agree on.

Guards: a manifest that preprocesses otherwise than the training did; a plan without golden actions; a golden sample
that would not notice swapped colours.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.manifest import MANIFEST
from auras_ros.observation import Preprocessor
from auras_ros.policies.checkpoint import GOLDEN, WEIGHTS, load
from auras_ros.policies.golden import GoldenSample
from auras_ros.train import export
from auras_ros.train.diffusion import HORIZON, pixels
from auras_ros.train.loops import Curve
from auras_ros.train.pusht_task import AXES, HALF_PX, PUSHT
from tests.policies.tiny import lively_networks
from tests.train.checkpoints import write_checkpoint


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of untrained networks with the shipped plans."""
    folder = tmp_path_factory.mktemp("checkpoint") / "pusht"
    write_checkpoint(folder, "untrained", *lively_networks())
    return folder


def test_round_trip(written: Path) -> None:
    checkpoint = load(written)
    assert (checkpoint.name, checkpoint.horizon, checkpoint.plans) == ("untrained", HORIZON, export.PLANS)
    assert checkpoint.spec == PUSHT.spec
    assert checkpoint.contract == PUSHT.contract
    assert checkpoint.digest == hashlib.sha256((written / WEIGHTS).read_bytes()).hexdigest()
    policy = checkpoint.policy("quick")
    for ours, theirs in zip((policy.encoder, policy.network), lively_networks(), strict=True):
        loaded, wanted = ours.state_dict(), theirs.state_dict()
        assert loaded.keys() == wanted.keys()
        assert all(torch.equal(loaded[name], tensor) for name, tensor in wanted.items())


def test_both_shipped_plans_are_there(written: Path) -> None:
    checkpoint = load(written)
    assert {plan: checkpoint.policy(plan).steps for plan in checkpoint.plans} == {"quick": 8, "ddpm100": 100}
    assert next(iter(checkpoint.plans)) == "quick"


def test_the_golden_sample_covers_every_plan_and_is_a_real_observation(written: Path) -> None:
    sample = GoldenSample.load(written / GOLDEN)
    assert set(sample.actions) == {f"{plan}/{axis}" for plan in export.PLANS for axis in AXES}
    assert all(column.shape == (HORIZON,) for column in sample.actions.values())
    images = sample.images["top"]
    assert images.shape == (2, 96, 96, 3)
    assert images.std() > 10
    assert np.ptp(images.astype(int), axis=-1).max() > 50, "a grey image would not notice swapped colours"
    assert not np.array_equal(*images)
    assert set(sample.state) == set(AXES)
    assert not np.array_equal(sample.state["agent_x"], sample.state["agent_y"])


def test_swapped_colours_are_noticed(written: Path, tmp_path: Path) -> None:
    for name in (WEIGHTS, GOLDEN):
        (tmp_path / name).write_bytes((written / name).read_bytes())
    manifest = json.loads((written / MANIFEST).read_text())
    manifest["observation"]["cameras"][0]["color"] = "bgr"
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match="golden sample: plan 'quick'"):
        load(tmp_path)


def test_training_preprocesses_as_the_manifest_says(written: Path) -> None:
    preprocess = Preprocessor(load(written).spec)
    random = np.random.default_rng(0)
    frames = random.integers(0, 256, (3, 96, 96, 3), dtype=np.uint8)
    agents = random.uniform(0, 512, (3, 2))
    ours = pixels(torch.from_numpy(frames)).numpy()
    for i in range(3):
        prepared = preprocess({"top": frames[i]}, agents[i])
        np.testing.assert_allclose(prepared.image[0], ours[i], rtol=0, atol=2e-6)
        np.testing.assert_allclose(prepared.state, agents[i] / HALF_PX - 1, rtol=0, atol=1e-6)


def test_actions_are_scaled_back_as_training_scaled_them(written: Path) -> None:
    policy = load(written).policy("quick")
    targets = torch.tensor([[[0.0, 512.0], [100.0, 300.0]]])
    state = policy.begin((targets / HALF_PX - 1)[:, None])
    torch.testing.assert_close(policy.finish(state), targets.double(), rtol=0, atol=1e-4)


def test_the_record_stands_beside_the_weights(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    curve = Curve()
    for name in ("encoder", "denoiser"):
        curve.stage(name)
        curve.add(250, 0.5)
        curve.add(500, 0.25)
    export.write_record(tmp_path, {"seed": 3}, curve)
    record = json.loads((tmp_path / "training.json").read_text())
    assert record["seed"] == 3
    assert [(row["stage"], row["step"]) for row in record["curve"]] == [
        ("encoder", 250),
        ("encoder", 500),
        ("denoiser", 250),
        ("denoiser", 500),
    ]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
