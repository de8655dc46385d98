"""Checkpoints of the families with language: written, read, run in every mode; and each wrong description refused.

Guards: a family that reads other sizes than it was written with; an encoder that is given the other's pixels; ids that
mean no action; a plan that only the first mode can run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.clock import VirtualClock
from auras_ros.loading.pipeline import PipelineSettings, load_pipeline
from auras_ros.observation import CameraSpec
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.checkpoint import Checkpoint, build, load
from auras_ros.policies.golden import GoldenSample, observed
from auras_ros.policies.policy import CausalPolicy, generate
from auras_ros.policies.tinyvla import TinyVlaPolicy
from auras_ros.policies.vision_language import PaddedPrefix
from tests.pipeline.real import real, run
from tests.pipeline.real import still as still_of_diffusion
from tests.policies import vision_language_checkpoints as tiny

KINDS = ("openvla", "rt2", "tinyvla")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for kind in KINDS:
        made[kind] = tmp_path_factory.mktemp("language") / kind
        tiny.written(made[kind], kind, **({"prompt_limit": 24} if kind == "openvla" else {}))
    return made


@pytest.fixture(scope="module")
def loaded(folders: dict[str, Path]) -> dict[str, Checkpoint]:
    return {kind: load(folder) for kind, folder in folders.items()}


def given(checkpoint: Checkpoint, folder: Path) -> tuple[Tensor, Tensor]:
    return observed(checkpoint.spec, GoldenSample.load(folder / "golden.safetensors"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_written_checkpoint_loads_and_runs_as_its_family(
    loaded: dict[str, Checkpoint], folders: dict[str, Path], kind: str
) -> None:
    checkpoint = loaded[kind]
    assert checkpoint.verified
    policy = checkpoint.policy(next(iter(checkpoint.plans)))
    assert isinstance(policy, TinyVlaPolicy if kind == "tinyvla" else AutoregressivePolicy)
    assert isinstance(policy, CausalPolicy) == (kind != "tinyvla")
    images, state = given(checkpoint, folders[kind])
    assert images.shape == (1, 1, 1, 6 if kind == "openvla" else 3, tiny.PX, tiny.PX)
    noise = torch.randn((1, *policy.noise_shape), generator=torch.Generator().manual_seed(1))
    actions = generate(policy, noise, policy.perceive(images, state))
    assert actions.shape == (1, tiny.HORIZON[kind], 3)
    lower, upper = torch.tensor(tiny.LOWER), torch.tensor(tiny.UPPER)
    assert bool(((actions >= lower - 1e-9) & (actions <= upper + 1e-9)).all())
    other = generate(policy, noise, policy.perceive(images.flip(-1), state))
    assert (other - actions).abs().max() > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_every_mode_runs_it_and_on_a_still_world_they_agree(
    loaded: dict[str, Checkpoint], folders: dict[str, Path], kind: str
) -> None:
    checkpoint = loaded[kind]
    plan = next(iter(checkpoint.plans))
    policy = checkpoint.policy(plan)
    images, state = given(checkpoint, folders[kind])
    seen = [type(one)(images, state, one.origin) for one in still_of_diffusion(9)]
    found = {}
    for mode in ("seq", "dec", "par", "auras"):
        more: dict[str, Any] = {"par": {"concurrency": 2}, "auras": {"pp_generation": 2, "pp_perception": 2}}.get(
            mode, {}
        )
        emissions = run(real(Plan(generation=plan, mode=mode, **more), policy, (3,), seen[0]), seen)
        found[mode] = {emission.request: emission.actions for emission in emissions}
    shared = set.intersection(*(set(each) for each in found.values()))
    assert shared
    for mode, actions in found.items():
        for request in shared:
            torch.testing.assert_close(actions[request], found["seq"][request], rtol=0, atol=2e-5, msg=mode)


def test_a_pipeline_loads_an_openvla_with_two_normalisations(folders: dict[str, Path]) -> None:
    """Warm-up makes pictures of six channels."""
    plan = Plan(generation="greedy", mode="auras", pp_generation=3)
    pipeline = load_pipeline(folders["openvla"], plan, PipelineSettings(), VirtualClock())
    assert pipeline.executor.frame_ns >= 0
    pipeline.executor.close()


def test_the_two_encoders_of_openvla_are_given_their_own_pixels(
    loaded: dict[str, Checkpoint], folders: dict[str, Path]
) -> None:
    checkpoint = loaded["openvla"]
    images, _ = given(checkpoint, folders["openvla"])
    camera = checkpoint.spec.cameras[0]
    mean, std = torch.tensor(camera.mean), torch.tensor(camera.std)
    pixels = images[0, 0, 0, :3] * std[:, None, None] + mean[:, None, None]
    torch.testing.assert_close(images[0, 0, 0, 3:], pixels * 2 - 1, rtol=0, atol=1e-6)


def test_what_openvla_tokens_mean_are_the_statistics(loaded: dict[str, Checkpoint]) -> None:
    """The last id is the lowest bin: lower plus half a bin of 255; one that no action has is the highest."""
    policy = loaded["openvla"].policy("greedy")
    assert isinstance(policy, AutoregressivePolicy)
    lower, upper = (torch.tensor(each, dtype=torch.float64) for each in (tiny.LOWER, tiny.UPPER))
    for id_, share in ((499, 0.5 / 255), (498, 1.5 / 255), (244, 254.5 / 255), (3, 254.5 / 255)):
        got = policy.codec.decode(torch.full((1, 3), id_))[0]
        torch.testing.assert_close(got, lower + share * (upper - lower), rtol=0, atol=1e-12)


def test_a_limit_makes_room_and_none_makes_a_fixed_length(loaded: dict[str, Checkpoint]) -> None:
    padded, fixed = (loaded[kind].networks["prefix"] for kind in ("openvla", "rt2"))
    assert isinstance(padded, PaddedPrefix)
    assert not isinstance(fixed, PaddedPrefix)
    patches = (tiny.PX // 14) ** 2
    assert padded.segments == (1, patches, 23)
    assert fixed.segments == (3, patches, len(tiny.IDS) - 3)
    assert [checkpoint.language.prompt.text for checkpoint in loaded.values() if checkpoint.language] == [tiny.TEXT] * 3


def test_weights_are_there_once(folders: dict[str, Path], loaded: dict[str, Checkpoint]) -> None:
    for kind, checkpoint in loaded.items():
        names = list(checkpoint.networks.state_dict())
        assert sum(name.endswith(("embed_tokens.weight", "embed_in.weight")) for name in names) == 1, kind


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "unknown key": ("openvla", {"layers": 3}, "network: 'layers' is unknown"),
    "ids": ("openvla", {"vocabulary": 600}, "action ids 344 to 599 are not within 512"),
    "vocabulary": ("openvla", {"vocabulary": "500"}, "network: vocabulary: '500' is not a whole number"),
    "prompt": ("openvla", {"prompt": "push"}, "prompt: 'push' is not a list of token ids"),
    "an id without embedding": ("openvla", {"prompt": [1, 600, 6]}, "prompt: id 600 is not below the vocabulary, 512"),
    "no id": ("openvla", {"prompt": []}, "is not a list of token ids"),
    "end": ("openvla", {"prompt": [1, 5]}, "prompt: ends in 5, not in prompt_end, 6"),
    "limit": ("openvla", {"prompt_limit": 8}, "14 tokens, more than prompt_limit, 8"),
    "template": ("openvla", {"prompt_template": "do it"}, "does not hold {instruction} once"),
    "kind of a key": ("openvla", {"prompt_lower": 1}, "prompt_lower: 1 is not bool"),
    "sizes": ("openvla", {"dinov2": {"image_px": 28}}, "network: dinov2: 'patch_px' is missing"),
    "size": ("openvla", {"language": {**tiny.networks()["openvla"]["language"], "layers": 1.5}}, "layers: 1.5 is not"),
    "word": ("rt2", {"vision": {**tiny.networks()["rt2"]["vision"], "activation": "relu"}}, "activation: 'relu'"),
    "no object": ("rt2", {"vision": 7}, "network: vision: 7 is not an object"),
    "image_at": ("rt2", {"image_at": 14}, "image_at: 14, but the prompt has 14 ids"),
    "bins": ("rt2", {"bins": 400}, "action ids 200 to 599 are not within 512"),
    "pooled": ("tinyvla", {"prompt_limit": 40}, "prompt_limit: not supported"),
    "down_dims": ("tinyvla", {"down_dims": [0]}, r"down_dims: \[0\] is not a list"),
    "horizon": ("tinyvla", {"down_dims": [8, 16, 16, 16, 16]}, "horizon: 8 is not a multiple of 16"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_description_is_refused_by_name(fault: str) -> None:
    kind, changes, said = WRONG[fault]
    with pytest.raises(CheckpointError, match=said):
        build(tiny.manifest(tiny.describe(kind, **changes)), "", Path("policy.json"))


@pytest.mark.parametrize("key", ["dinov2", "vocabulary", "prompt"])
def test_a_missing_key_is_refused_by_name(key: str) -> None:
    made = tiny.manifest(tiny.describe("openvla"))
    del made["network"][key]
    with pytest.raises(CheckpointError, match=f"network: '{key}' is missing"):
        build(made, "", Path("policy.json"))


def test_what_does_not_go_with_tokens_is_refused() -> None:
    made = tiny.manifest(tiny.describe("openvla"))
    statistics = {"kind": "mean_std", "mean": [0.0] * 3, "std": [1.0] * 3}
    with pytest.raises(CheckpointError, match="statistics must be min_max"):
        build({**made, "statistics": statistics}, "", Path("policy.json")).policy("greedy")
    with pytest.raises(CheckpointError, match="all actions are executed"):
        build({**made, "executed": [0, 1]}, "", Path("policy.json")).policy("greedy")
    with pytest.raises(CheckpointError, match="key 'steps' is unknown"):
        build({**made, "plans": {"greedy": {"steps": 4}}}, "", Path("policy.json")).policy("greedy")
    with pytest.raises(CheckpointError, match=r"encoder: {'features': 6}, expected {}"):
        build({**made, "encoder": {"features": 6}}, "", Path("policy.json"))


def test_pictures_of_another_kind_are_refused() -> None:
    made = tiny.manifest(tiny.describe("openvla"))
    camera = made["observation"]["cameras"][0]
    made["observation"]["cameras"] = [{key: value for key, value in camera.items() if key != "stacked"}]
    with pytest.raises(CheckpointError, match="1 cameras of 3 x 28 x 28, expected at least one of 6 x 28 x 28"):
        build(made, "", Path("policy.json"))
    wrong = CameraSpec.from_dict({**camera, "resize": {"height": 56, "width": 56}})
    made["observation"]["cameras"] = [json.loads(json.dumps(wrong.to_dict()))]
    with pytest.raises(CheckpointError, match="6 x 56 x 56"):
        build(made, "", Path("policy.json"))
