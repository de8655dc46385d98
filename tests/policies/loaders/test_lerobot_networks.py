"""LeRobot's diffusion and act folders against what LeRobot 0.4.4 itself makes of the same observation and noise.

The fixtures were written by the library (scripts/write_loader_fixtures). Guards: a weight under the wrong name, a
layout of the condition, a crop, a normalisation or a sampling step that is not the reference's; a chunk that begins at
another instant; features in another order than the folder's.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.clock import VirtualClock
from auras_ros.loading.pipeline import PipelineSettings, load_pipeline
from auras_ros.pipeline.modes import make_executor
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Latched, ObservationOrigin
from auras_ros.pipeline.run_context import RunContext
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.loaders.open import load
from tests.policies.loaders.lerobot_tiny import copied, edit_json, tiny_backbones
from tests.policies.loaders.reference import DATA, Reference, error, observed, replayed
from tests.policies.test_capturable import OneDevice

__all__ = ["tiny_backbones"]
pytestmark = pytest.mark.usefixtures("tiny_backbones")

FIXTURES = ["lerobot_diffusion", "lerobot_diffusion_cameras", "lerobot_act", "lerobot_act_cameras"]
TOLERANCE = 1e-5  # of each channel's range; measured: below 1e-6


@pytest.mark.parametrize("name", FIXTURES)
def test_actions_equal_the_librarys(name: str) -> None:
    checkpoint, reference = load(DATA / name), Reference.read(DATA / name)
    got = replayed(checkpoint, reference)
    assert got.shape == reference.actions.shape == (checkpoint.horizon, len(checkpoint.contract.names))
    assert error(checkpoint, got, reference) < TOLERANCE
    assert not checkpoint.verified  # nobody recorded what this folder must do


@pytest.mark.parametrize("name", FIXTURES)
def test_the_references_actions_depend_on_pictures_and_state(name: str) -> None:
    """Otherwise the test above would prove little."""
    checkpoint, reference = load(DATA / name), Reference.read(DATA / name)
    flipped = {camera: frames[:, ::-1].copy() for camera, frames in reference.images.items()}
    for other in (
        Reference(flipped, reference.state, reference.noise, reference.actions),
        Reference(reference.images, reference.state[:, ::-1].copy(), reference.noise, reference.actions),
    ):
        assert error(checkpoint, replayed(checkpoint, other), reference) > 50 * TOLERANCE


def swap(features: dict[str, object], first: str, second: str) -> None:
    names = list(features)
    i, j = names.index(first), names.index(second)
    names[i], names[j] = names[j], names[i]
    items = {name: features[name] for name in names}
    features.clear()
    features.update(items)


@pytest.mark.parametrize("name", ["lerobot_diffusion_cameras", "lerobot_act_cameras"])
def test_cameras_stand_in_the_order_of_the_folder(name: str, tmp_path: Path) -> None:
    folder, reference = copied(name, tmp_path), Reference.read(DATA / name)
    plain = load(folder)
    wrist, front = "observation.images.wrist", "observation.images.front"
    edit_json(folder / "config.json", lambda config: swap(config["input_features"], wrist, front))
    swapped = load(folder)
    assert [camera.name for camera in plain.spec.cameras] == ["wrist", "front"]
    assert [camera.name for camera in swapped.spec.cameras] == ["front", "wrist"]
    assert torch.equal(observed(plain, reference)[0].flip(2), observed(swapped, reference)[0])
    if name == "lerobot_act_cameras":  # a set of tokens to its attention: the memory's order alone follows
        memory, other = (each.policy("once").perceive(*observed(each, reference))[0] for each in (plain, swapped))
        flat, places = memory[:2], memory[2:].unflatten(0, (2, -1))
        torch.testing.assert_close(other, torch.cat([flat, places.flip(0).flatten(0, 1)]))
    else:
        assert error(swapped, replayed(swapped, reference), reference) > 50 * TOLERANCE


def test_joints_and_channels_are_those_of_robot_json_in_order(tmp_path: Path) -> None:
    folder = copied("lerobot_diffusion", tmp_path)
    edit_json(folder / "robot.json", lambda robot: robot["state"].reverse())
    checkpoint = load(folder)
    assert checkpoint.spec.state is not None
    assert checkpoint.spec.state.names == ("gripper", "wrist", "elbow", "shoulder")
    assert checkpoint.contract.names == ("shoulder", "elbow", "wrist")


def test_a_chunk_begins_at_the_newest_observation(tmp_path: Path) -> None:
    """LeRobot's horizon begins at the oldest one, and it executes n_action_steps."""
    folder = copied("lerobot_diffusion_cameras", tmp_path)
    edit_json(folder / "config.json", lambda config: config.update(n_action_steps=10))
    checkpoint, reference = load(folder), Reference.read(DATA / "lerobot_diffusion_cameras")
    got = replayed(checkpoint, reference)
    assert (checkpoint.trained.architecture.horizon, checkpoint.trained.executed, len(got)) == (12, (2, 10), 10)
    span = (checkpoint.trained.upper - checkpoint.trained.lower).numpy()
    assert (np.abs(got[:4] - reference.actions) / span).max() < TOLERANCE
    edit_json(folder / "config.json", lambda config: config.update(n_action_steps=11))
    with pytest.raises(CheckpointError, match=r"config.json: n_action_steps: 11, but the horizon leaves 10"):
        load(folder)


@pytest.mark.parametrize("name", FIXTURES)
def test_perception_in_parts_is_perception(name: str) -> None:
    checkpoint, reference = load(DATA / name), Reference.read(DATA / name)
    policy = checkpoint.policy(next(iter(checkpoint.plans)))
    carried = observed(checkpoint, reference)
    whole = policy.perceive(*carried)
    for block in policy.perception_blocks():  # type: ignore[attr-defined]
        carried = block(*carried)
    assert torch.equal(whole, carried[0])


def emitted(checkpoint: Checkpoint, plan: str, reference: Reference) -> torch.Tensor:
    """The first chunk of one observation held still."""
    policy = checkpoint.policy(next(iter(checkpoint.plans)))
    images, state = observed(checkpoint, reference)
    like = Latched(images, state, ObservationOrigin(0, 0))
    run = make_executor(
        RunContext(policy, Plan.parse(plan), lambda request: reference.noise[None], like, VirtualClock())
    )
    for now in range(1, 40):
        for worker in run.workers:
            seen = Latched(images, state, ObservationOrigin(now, now))
            if worker.wants(seen, now):
                worker.begin(seen, now)
                worker.run()
                emission = worker.end(now)
                if emission is not None:
                    run.close()
                    return emission.actions[0]
    raise AssertionError("no chunk")


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("lerobot_diffusion_cameras", "ddim7"),
        ("lerobot_diffusion_cameras", "ddim7,mode=dec"),
        ("lerobot_diffusion_cameras", "ddim7,mode=par,concurrency=2"),
        ("lerobot_diffusion_cameras", "ddim7,mode=auras,pp_generation=3,pp_perception=2"),
        ("lerobot_act_cameras", "once"),
        ("lerobot_act_cameras", "once,mode=dec"),
        ("lerobot_act_cameras", "once,mode=auras,pp_generation=1,pp_perception=3"),
    ],
)
def test_it_runs_in_every_mode_with_the_librarys_actions(name: str, plan: str) -> None:
    checkpoint, reference = load(DATA / name), Reference.read(DATA / name)
    got = emitted(checkpoint, plan, reference).numpy()
    assert error(checkpoint, got, reference) < TOLERANCE


@pytest.mark.parametrize("name", FIXTURES)
def test_every_method_stays_on_its_device(name: str) -> None:
    """ "meta" stands for a GPU: nothing may be read back, made on the host, or left behind there."""
    checkpoint = load(DATA / name)
    policy = checkpoint.policy(next(iter(checkpoint.plans))).to(torch.device("meta"))
    images, state = (tensor.to("meta") for tensor in observed(checkpoint, Reference.read(DATA / name)))
    noise, index = torch.zeros(1, *policy.noise_shape, device="meta"), torch.zeros(1, dtype=torch.int64, device="meta")
    with OneDevice("meta"):
        actions = policy.finish(policy.step(policy.begin(noise), policy.perceive(images, state), index))
    assert actions.shape[1:] == (checkpoint.horizon, len(checkpoint.contract.names))
    assert actions.dtype == torch.float64


def test_the_agents_pipeline_loads_and_warms_it_up() -> None:
    """`load_pipeline` is what the agent's configure calls."""
    pipeline = load_pipeline(
        DATA / "lerobot_diffusion", Plan.parse("ddpm20,mode=auras,pp_generation=2"), PipelineSettings(), VirtualClock()
    )
    assert pipeline.checkpoint.horizon == 6
    assert pipeline.executor.plan.mode == "auras"
    pipeline.executor.close()


def test_statistics_among_the_weights_are_those_of_the_processors(tmp_path: Path) -> None:
    """Folders from before there were processors keep them there."""
    from safetensors.torch import load_file, save_file

    folder = copied("lerobot_diffusion", tmp_path)
    weights = load_file(folder / "model.safetensors")
    state = load_file(folder / "policy_preprocessor_step_3_normalizer_processor.safetensors")
    for name, tensor in state.items():
        feature, _, statistic = name.rpartition(".")
        part = "unnormalize_outputs" if feature == "action" else "normalize_inputs"
        weights[f"{part}.buffer_{feature.replace('.', '_')}.{statistic}"] = tensor.clone()
    save_file(weights, folder / "model.safetensors")
    for path in folder.glob("policy_*"):
        path.unlink()
    checkpoint, reference = load(folder), Reference.read(DATA / "lerobot_diffusion")
    assert error(checkpoint, replayed(checkpoint, reference), reference) < TOLERANCE


def test_weights_of_a_compiled_network_are_found(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = copied("lerobot_diffusion", tmp_path)
    weights = load_file(folder / "model.safetensors")
    compiled = {name.replace("diffusion.unet.", "diffusion.unet._orig_mod."): t for name, t in weights.items()}
    save_file(compiled, folder / "model.safetensors")
    checkpoint, reference = load(folder), Reference.read(DATA / "lerobot_diffusion")
    assert error(checkpoint, replayed(checkpoint, reference), reference) < TOLERANCE


def test_cameras_are_renamed_and_sized_by_robot_json(tmp_path: Path) -> None:
    folder = copied("lerobot_diffusion", tmp_path)
    told = {"observation.images.top": {"name": "overhead", "height": 144, "width": 176}}
    edit_json(folder / "robot.json", lambda robot: robot.update(cameras=told, name="pick", plans={"quick": QUICK}))
    checkpoint = load(folder)
    (camera,) = checkpoint.spec.cameras
    assert (camera.name, camera.height, camera.width, camera.output_size) == ("overhead", 144, 176, (64, 80))
    assert camera.resize is not None
    assert (camera.resize.height, camera.resize.width) == (72, 88)
    assert checkpoint.name == "pick"
    assert list(checkpoint.plans) == ["ddpm20", "quick"]
    assert checkpoint.policy("quick").steps == 4


QUICK = {"sampler": "ddim", "steps": 4, "spacing": "leading"}
