"""Checkpoints of the published networks: written, read and run; a description that is wrong is refused by name.

Guards: a checkpoint trained on noise that is read as one trained on clean actions; a size that is silently another.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.policies.checkpoint import load
from tests.policies import tiny
from tests.policies.spoil import edit_manifest

RESNET = {"type": "resnet18", "features": 6, "width": 16, "keypoints": 4}
TRANSFORMER = {"type": "transformer", "layers": 2, "heads": 2, "width": 8}
UNET = {"type": "conditional_unet1d", "down_dims": [8, 16], "kernel": 3, "groups": 4, "step_width": 8}
PLANS = {
    "quick": {"sampler": "ddim", "steps": 4, "spacing": "leading"},
    "full": {"sampler": "ddpm", "steps": 40},
}
PUBLISHED: dict[str, Any] = {"encoder": RESNET, "prediction": "epsilon", "training_steps": 40, "plans": PLANS}
KINDS: dict[str, dict[str, Any]] = {
    "transformer": {**PUBLISHED, "network": TRANSFORMER, "horizon": 10},
    "unet": {**PUBLISHED, "network": UNET, "horizon": 6},
    "average pool": {**PUBLISHED, "encoder": {**RESNET, "pool": "average"}, "network": UNET, "horizon": 6},
    "small networks named": {
        "encoder": {"type": "keypoint", **tiny.MANIFEST["encoder"]},
        "network": {"type": "unet1d", **tiny.MANIFEST["network"]},
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(kind: str, tmp_path: Path) -> None:
    manifest = tiny.write(tmp_path / "made", **KINDS[kind])
    checkpoint = load(tmp_path / "made")
    for plan in manifest["plans"]:
        policy = checkpoint.policy(plan)
        assert policy.sampler.prediction == manifest.get("prediction", "sample")
        assert policy.steps == manifest["plans"][plan]["steps"]
        assert policy.architecture.horizon == manifest["horizon"]
        images, state = policy.example(2)
        assert images.shape == (2, 2, 1, 3, tiny.SIDE, tiny.SIDE)
        assert policy.perceive(images, state).shape == (2, 2 * (6 + 2))
    if "training_steps" in manifest:
        assert checkpoint.policy("quick").sampler.timesteps.tolist() == [30, 20, 10, 0]
        assert checkpoint.policy("full").sampler.timesteps[0] == 39


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_describes_itself(kind: str) -> None:
    """What training writes into the manifest builds the same network again."""
    made = tiny.checkpoint(**KINDS[kind])
    parts = {part: made.networks[part].sizes for part in ("encoder", "network")}
    again = tiny.checkpoint(**{**KINDS[kind], **parts})
    one, other = made.networks.state_dict(), again.networks.state_dict()
    assert {name: t.shape for name, t in one.items()} == {name: t.shape for name, t in other.items()}


def test_a_manifest_without_types_means_the_first_networks(written: Path) -> None:
    checkpoint = load(written)
    assert "type" not in tiny.MANIFEST["encoder"]
    assert [type(checkpoint.networks[part]).__name__ for part in ("encoder", "network")] == [
        "KeypointEncoder",
        "ConditionalUnet1d",
    ]
    sampler = checkpoint.policy("quick").sampler
    assert sampler.prediction == "sample"
    assert sampler.timesteps[0] == 99


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "encoder type": ({"encoder": {"type": "vit"}}, "encoder: type 'vit' is not known; known: keypoint, resnet18"),
    "encoder type not text": ({"encoder": {"type": ["resnet18"]}}, "encoder: type \\['resnet18'\\] is not known"),
    "network type": ({"network": {"type": "mlp"}}, "network: type 'mlp' is not known; known: unet1d, cond"),
    "network not an object": ({"network": "transformer"}, "network: 'transformer' is not an object"),
    "unknown size": ({"network": {**TRANSFORMER, "dropout": 1}}, "encoder or network: .*dropout"),
    "size not a number": ({"network": {**TRANSFORMER, "layers": 2.0}}, "network .*layers: 2.0 is not a whole"),
    "size of zero": ({"network": {**TRANSFORMER, "layers": 0}}, "network .*layers: 0 is not a whole number"),
    "size true": ({"encoder": {**RESNET, "features": True}}, "encoder .*features: True is not a whole number"),
    "sizes negative": ({"network": {**UNET, "down_dims": [8, -8]}}, "down_dims: \\[8, -8\\] is not a whole"),
    "heads": ({"network": {**TRANSFORMER, "heads": 3}}, "transformer: width: 8 is not a multiple of heads, 3"),
    "groups": ({"network": {**UNET, "groups": 5}}, "down_dims: 8 is not a multiple of groups, 5"),
    "pool": ({"encoder": {**RESNET, "pool": "max"}}, "resnet18: pool: 'max' is not known"),
    "resnet width": ({"encoder": {**RESNET, "width": 20}}, "resnet18: width: 20 is not a multiple of 16"),
    "resnet of another width": (
        {"encoder": {**RESNET, "width": 32}},
        "tensor 'encoder.backbone.conv1.weight' has shape \\[16, 3, 7, 7\\], expected \\[32, 3, 7, 7\\]",
    ),
    "more layers": ({"network": {**TRANSFORMER, "layers": 3}}, "'network.decoder.layers.2.* is missing"),
    "fewer layers": ({"network": {**TRANSFORMER, "layers": 1}}, "'network.decoder.layers.1.* belongs to no part"),
    "longer horizon": ({"horizon": 12}, "'network.pos_emb' has shape \\[1, 10, 8\\], expected \\[1, 12, 8\\]"),
    "horizon zero": ({"horizon": 0}, "horizon: 0 is not a positive multiple of 1"),
    "horizon odd for a U-Net": ({"network": UNET, "horizon": 7}, "horizon: 7 is not a positive multiple of 2"),
    "prediction": ({"prediction": "velocity"}, "prediction must be 'sample' or 'epsilon', got 'velocity'"),
    "the other prediction": ({"prediction": "sample"}, "golden sample: plan 'quick', step"),
    "training steps": ({"training_steps": "40"}, "training_steps must be a whole number .* got '40'"),
    "other training steps": ({"training_steps": 41}, "golden sample: plan 'quick'|ddpm runs all 41"),
    "spacing": (
        {"plans": {"quick": {"sampler": "ddim", "steps": 4, "spacing": "even"}}},
        "plan 'quick': spacing must be .* got 'even'",
    ),
    "plan key": (
        {"plans": {"quick": {"sampler": "ddim", "steps": 4, "spaced": "even"}}},
        "plan 'quick': key 'spaced' is unknown",
    ),
    "plan not an object": ({"plans": {"quick": 7}}, "plan 'quick': 7 is not an object"),
}


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("networks") / "transformer"
    tiny.write(folder, **KINDS["transformer"])
    return folder


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_description_is_refused_by_name(transformer: Path, fault: str) -> None:
    changes, said = FAULTS[fault]
    manifest = (transformer / "policy.json").read_bytes()
    try:
        edit_manifest(transformer, lambda m: m.update(changes))
        with pytest.raises(CheckpointError, match=said):
            load(transformer)
    finally:
        (transformer / "policy.json").write_bytes(manifest)


def test_actions_of_a_plan_depend_on_the_prediction(tmp_path: Path) -> None:
    """The golden sample tells the two apart, which the shapes cannot."""
    checkpoint = tiny.checkpoint(**KINDS["transformer"])
    other = tiny.checkpoint(**{**KINDS["transformer"], "prediction": "sample"})
    noise, index = torch.randn(1, 1, 10, 2), torch.tensor([0])
    context = torch.randn(1, 16)
    steps = [c.policy("quick").step(c.policy("quick").begin(noise), context, index) for c in (checkpoint, other)]
    assert (steps[0].sample - steps[1].sample).abs().max() > 1e-2
