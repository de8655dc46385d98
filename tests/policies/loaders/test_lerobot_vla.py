"""LeRobot's pi0, pi0.5 and SmolVLA folders: the actions that LeRobot 0.4.4 itself made, in `seq` and in `auras`.

Measured: 6e-7 of two standard deviations at most, over both libraries' own rounding. Guards: a prompt or a camera that
is masked otherwise, a position that counts padding, padding of pictures on another side, statistics of another kind,
a layer of the expert that reads the wrong keys, a time that runs up, a chunk that begins or ends elsewhere.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from auras_ros.checkpoints.tokenizer import PromptError
from auras_ros.clock import VirtualClock
from auras_ros.loading.pipeline import PipelineSettings, load_pipeline
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Latched, ObservationOrigin
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.flow import FlowMatchingPolicy
from auras_ros.policies.loaders.open import load
from tests.pipeline import real
from tests.policies.loaders.reference import DATA, Reference, error, observed, replayed
from tests.policies.loaders.tiny_vla import FOLDERS, copied, shrink

TOLERANCE = 1e-5  # of two standard deviations, or of the range


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)


def opened(name: str) -> tuple[Checkpoint, Reference, FlowMatchingPolicy]:
    checkpoint = load(DATA / name)
    policy = checkpoint.policy("euler")
    assert isinstance(policy, FlowMatchingPolicy)
    return checkpoint, Reference.read(DATA / name), policy


@pytest.mark.parametrize("name", FOLDERS)
def test_the_actions_are_the_library_s_own(name: str) -> None:
    checkpoint, reference, _ = opened(name)
    made = replayed(checkpoint, reference)
    assert made.shape == reference.actions.shape == (checkpoint.horizon, 4)
    assert error(checkpoint, made, reference) < TOLERANCE
    assert not checkpoint.verified  # there is no golden sample in another library's folder


@pytest.mark.parametrize("name", FOLDERS)
def test_all_that_is_observed_counts(name: str) -> None:
    """So that the comparison above can fail."""
    checkpoint, reference, _ = opened(name)
    for camera in reference.images:
        other = {**reference.images, camera: 255 - reference.images[camera]}
        made = replayed(checkpoint, Reference(other, reference.state, reference.noise, reference.actions))
        assert error(checkpoint, made, reference) > 10 * TOLERANCE, camera
    for joint in range(3):
        state = reference.state.copy()
        state[:, joint] += 0.5
        made = replayed(checkpoint, Reference(reference.images, state, reference.noise, reference.actions))
        assert error(checkpoint, made, reference) > 10 * TOLERANCE, joint


@pytest.mark.parametrize("name", FOLDERS)
def test_it_runs_in_auras(name: str) -> None:
    """While nothing moves, two steps a frame give the chunk of `seq`, for each environment its own."""
    checkpoint, reference, policy = opened(name)
    images, state = (part.expand(2, *part.shape[1:]) for part in observed(checkpoint, reference))
    seen = [Latched(images, state, ObservationOrigin(frame, frame)) for frame in range(6)]
    expected = {e.request: e.actions for e in real.run(real.real(Plan.parse("euler"), policy, like=seen[0]), seen)}
    text = "euler,mode=auras,pp_generation=2,pp_perception=3,fetch_offset=-1"
    found = [e for e in real.run(real.real(Plan.parse(text), policy, like=seen[0]), seen) if e.request in expected]
    assert found
    for emission in found:
        torch.testing.assert_close(emission.actions, expected[emission.request], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", FOLDERS)
def test_another_instruction_of_another_length(name: str) -> None:
    """As if it had been the robot's; and back."""
    checkpoint, reference, policy = opened(name)
    assert checkpoint.language is not None
    checkpoint.language.check()
    ids = checkpoint.language.ids("turn")
    assert len(ids) < len(checkpoint.language.prompt.ids)
    policy.set_prompt(torch.tensor(ids))
    assert error(checkpoint, replayed(checkpoint, reference), reference) > 10 * TOLERANCE
    policy.set_prompt(torch.tensor(checkpoint.language.prompt.ids))
    assert error(checkpoint, replayed(checkpoint, reference), reference) < TOLERANCE
    with pytest.raises(PromptError, match="but this policy takes"):
        checkpoint.language.ids("turn " * 30)


def test_the_agent_s_pipeline_loads_one_and_is_told_what_to_do() -> None:
    plan = Plan(generation="euler", mode="auras", pp_generation=2)
    pipeline = load_pipeline(DATA / "lerobot_pi05", plan, PipelineSettings(), VirtualClock())
    assert pipeline.checkpoint.language is not None
    pipeline.set_prompt(pipeline.checkpoint.language.ids("turn"))
    with pytest.raises(ValueError, match="prompt: 60 tokens, but this policy takes 1 to"):
        pipeline.set_prompt([1] * 60)
    pipeline.executor.close()


def test_pi05_tells_the_network_the_instruction_as_the_library_does() -> None:
    checkpoint, _, _ = opened("lerobot_pi05")
    assert checkpoint.language is not None
    prompt = checkpoint.language.prompt
    assert prompt.text == "pick up the_cube"
    assert prompt.formatted(" pick up\nthe_cube ") == "Task: pick up the cube, State:"


@pytest.mark.parametrize("name", ["lerobot_pi0", "lerobot_smolvla"])
def test_the_order_of_cameras_is_that_of_the_folder(name: str, tmp_path: Path) -> None:
    folder = copied(name, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    features = config["input_features"]
    top, wrist = (f"observation.images.{each}" for each in ("top", "wrist"))
    assert [camera.name for camera in load(folder).spec.cameras] == ["top", "wrist"]
    config["input_features"] = {wrist: features.pop(wrist), top: features.pop(top), **features}
    (folder / "config.json").write_text(json.dumps(config))
    swapped, reference = load(folder), Reference.read(folder)
    assert [camera.name for camera in swapped.spec.cameras] == ["wrist", "top"]
    assert error(swapped, replayed(swapped, reference), reference) > 10 * TOLERANCE


def test_an_empty_camera_is_no_camera_of_the_robot() -> None:
    """LeRobot masks it, in the fixture too; ours leaves it out, and the actions above are the same."""
    for name in ("lerobot_pi0", "lerobot_pi05", "lerobot_smolvla_tokens"):
        config = json.loads((DATA / name / "config.json").read_text())
        assert "observation.images.empty_camera_0" in config["input_features"]
        assert [camera.name for camera in load(DATA / name).spec.cameras] == ["top", "wrist"]


def test_openpi_s_names_of_the_time_s_layers_are_known(tmp_path: Path) -> None:
    """As LeRobot takes them: without `model.`, and of the other kind."""
    from safetensors.torch import load_file, save_file

    folder = copied("lerobot_pi0", tmp_path)
    tensors = {k.removeprefix("model."): t for k, t in load_file(folder / "model.safetensors").items()}
    save_file({k.replace("action_time_mlp", "time_mlp"): t for k, t in tensors.items()}, folder / "model.safetensors")
    robot = json.loads((folder / "robot.json").read_text())  # such names tell no release
    (folder / "robot.json").write_text(json.dumps({**robot, "lerobot_version": "0.4.4"}))
    checkpoint, reference = load(folder), Reference.read(folder)
    assert error(checkpoint, replayed(checkpoint, reference), reference) < TOLERANCE


@pytest.mark.parametrize("name", ["lerobot_pi0", "lerobot_pi05"])
def test_of_embedding_and_head_the_embedding_is_read(name: str, tmp_path: Path) -> None:
    """As LeRobot reads it: the head predicts nothing, and since 0.5 it is a parameter of its own."""
    from safetensors.torch import load_file, save_file

    folder = copied(name, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    large = "model.paligemma_with_expert.paligemma."
    head = f"{large}lm_head.weight"
    tensors[f"{large}model.language_model.embed_tokens.weight"] = tensors[head].clone()
    save_file({**tensors, head: torch.ones_like(tensors[head])}, folder / "model.safetensors")
    loaded = load(folder).networks["prefix"].model.language.embed_tokens.weight
    assert torch.equal(loaded, tensors[head])


@pytest.mark.parametrize("name", ["lerobot_pi0", "lerobot_smolvla"])
def test_a_folder_from_before_there_were_processors(name: str, tmp_path: Path) -> None:
    """Its statistics stand among the weights."""
    from safetensors.torch import load_file, save_file

    folder = copied(name, tmp_path)
    (found,) = folder.glob("*_unnormalizer_processor.safetensors")
    statistics, tensors = load_file(found), load_file(folder / "model.safetensors")
    for part, feature in (("normalize_inputs", "observation.state"), ("unnormalize_outputs", "action")):
        for key in ("mean", "std"):
            buried = f"{part}.buffer_{feature.replace('.', '_')}.{key}"
            tensors[buried] = statistics[f"{feature}.{key}"].clone()
    save_file(tensors, folder / "model.safetensors")
    for path in folder.glob("policy_*processor*"):
        path.unlink()
    checkpoint, reference = load(folder), Reference.read(folder)
    assert error(checkpoint, replayed(checkpoint, reference), reference) < TOLERANCE


def test_half_precision_becomes_float32(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = copied("lerobot_smolvla", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    save_file({name: t.bfloat16() for name, t in tensors.items()}, folder / "model.safetensors")
    checkpoint, reference = load(folder), Reference.read(folder)
    assert {p.dtype for p in checkpoint.networks.parameters()} == {torch.float32}
    assert np.isfinite(replayed(checkpoint, reference)).all()
