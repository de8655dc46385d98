"""Training for Lift on a stand-in for its world, from demonstrations to an evaluated checkpoint.

Guards: a camera whose encoder sees another one's pictures; training that puts cameras, instants or state in another
order or scale than the policy does; a policy that is shown where the cube is; a table that has one speed for all
episodes; a policy of one camera that learns from demonstrations of two.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from auras_ros.cli import main as cli
from auras_ros.evaluate.lockstep import run_episodes
from auras_ros.models.keypoint_encoder import KeypointEncoder
from auras_ros.models.unet1d import ConditionalUnet1d
from auras_ros.observation import Preprocessor
from auras_ros.policies.checkpoint import WEIGHTS, load
from auras_ros.policies.denoising import make_sampler
from auras_ros.policies.diffusion import DiffusionPolicy
from auras_ros.policies.flow_sampler import FlowSampler
from auras_ros.sim import worlds
from auras_ros.train import diffusion, policies
from auras_ros.train.demonstrations import Demonstrations, DemonstrationSettings, expert_episodes
from auras_ros.train.lift_task import HIGH_M, LIFT, LOW_M, SENSORS, with_cameras
from auras_ros.train.loops import Curve
from auras_ros.train.stages import joined, trained
from auras_ros.train.task import DRIFT, EXPERT, Schedule
from tests.train.toy_lift import ToyLift

TINY = Schedule(1, 1, 1, 0.1, 1, 1, 1, 1, 1, 1, 1)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(worlds.SIMS, "lift", worlds.Sim("", ToyLift, worlds.LIFT))  # type: ignore[arg-type]
    monkeypatch.setattr(diffusion.Windows, "batch", lambda self, size, batch=diffusion.Windows.batch: batch(self, 16))


def shown(kind: str, episodes: int = 1) -> Demonstrations:
    recipe = DemonstrationSettings(episodes, 0, sensors=LIFT.sensors.names)
    return expert_episodes(recipe, LIFT.worlds[kind](0.1), LIFT.expert(), lambda text: None)


def test_the_expert_lifts_the_cube_and_the_policy_is_not_told_where_it_is() -> None:
    data = shown(EXPERT)
    assert len(data.episode) > 10
    assert data.state.shape[1] == len(SENSORS) == 5
    assert data.images.shape[1:] == (2, 84, 84, 3)
    assert data.actions.shape[1] == 4
    np.testing.assert_allclose(data.truth[0, 2], 0.82, atol=1e-6)
    assert (data.actions[:, :3] >= LOW_M).all()
    assert (data.actions[:, :3] <= HIGH_M).all()
    assert set(np.unique(data.actions[:, 3])) == {-1.0, 1.0}


def test_each_episode_has_a_speed_of_its_own() -> None:
    data = shown(DRIFT, 3)
    speeds = [np.diff(data.truth[data.episode == number, 1])[0] for number in range(3)]
    assert len(set(np.round(speeds, 6))) == 3


def test_keypoints_are_the_cube_on_the_table_and_from_the_gripper() -> None:
    data = shown(EXPERT)
    told = LIFT.keypoints(data).numpy() * LIFT.keypoint_size / 1e3
    np.testing.assert_allclose(told[:, :3] + [0.0, 0.0, 0.85], data.truth[:, :3], atol=1e-6)
    np.testing.assert_allclose(told[:, 3:] + data.state[:, :3], data.truth[:, :3], atol=1e-6)
    assert np.abs(told / 0.2).max() < 1.0


def test_training_sees_an_instant_as_the_policy_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The condition of a window is the context that the policy makes of the same raw frames."""
    monkeypatch.setattr(diffusion, "FEATURE_NOISE", 0.0)
    data, now = shown(EXPERT), 7
    torch.manual_seed(0)
    encoders = [KeypointEncoder(targets=6).eval() for _ in LIFT.cameras]
    for camera, encoder in enumerate(encoders):
        encoder.fit_whitening(diffusion.raw_features(encoder, torch.from_numpy(data.images[:, camera])).detach())
    windows = diffusion.Windows.of(encoders, LIFT, data)
    monkeypatch.setattr(torch, "randint", lambda low, high, size: torch.full(size, now))
    condition, actions = windows.batch(1)
    network = ConditionalUnet1d(4, condition.shape[1])
    policy = DiffusionPolicy(joined(encoders), network, make_sampler("ddim", 1), trained(LIFT, "lift", 16))
    preprocess = Preprocessor(LIFT.spec)
    seen = [
        preprocess(dict(zip(LIFT.cameras, data.images[frame], strict=True)), data.state[frame].astype(np.float64))
        for frame in (now - 2, now)  # 100 ms apart
    ]
    images, state = (torch.from_numpy(np.stack([getattr(s, part) for s in seen]))[None] for part in ("image", "state"))
    torch.testing.assert_close(policy.perceive(images, state), condition[:1], rtol=0, atol=0.02)
    clean = policy.finish(policy.begin(actions[:1, None]))[0].numpy()
    np.testing.assert_allclose(clean[:4], data.actions[now : now + 4], atol=1e-5)


def test_from_training_to_an_evaluated_checkpoint_of_two_cameras(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "PLANS", {"quick": {"sampler": "ddim", "steps": 1}})
    monkeypatch.setattr(policies, "run_episodes", partial(run_episodes, max_steps=3))
    record = policies.make_policy("lift", tmp_path / "lift", tmp_path / "work", 0, TINY, 2, lambda text: None)
    assert record["success"]["quick"]["episodes"] == 2
    assert record["sim"] == "lift"
    checkpoint = load(tmp_path / "lift")
    assert [camera.name for camera in checkpoint.spec.cameras] == ["agentview", "robot0_eye_in_hand"]
    assert checkpoint.contract == LIFT.contract
    weights = load_file(tmp_path / "lift" / WEIGHTS)
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    first, second = (weights[f"encoder.each.{camera}.feature_mean"] for camera in (0, 1))
    assert not torch.equal(first, second)
    stages = {"encoder-agentview", "encoder-robot0_eye_in_hand", "denoiser", "denoiser-more"}
    assert stages <= {path.stem for path in (tmp_path / "work").glob("*.safetensors")}
    assert json.loads((tmp_path / "lift" / "training.json").read_text())["schedule"]["drift_max"] == 0.1


def test_a_policy_of_one_camera(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "PLANS", {"quick": {"sampler": "ddim", "steps": 1}})
    monkeypatch.setattr(policies, "run_episodes", partial(run_episodes, max_steps=3))
    monkeypatch.setattr(Schedule, "smoke", lambda drift_max: TINY)
    out = tmp_path / "one"
    assert cli.main(["train", "lift", "--cameras", "1", "--smoke", "--episodes", "1", "--out", str(out)]) == 0
    checkpoint = load(out)
    assert [camera.name for camera in checkpoint.spec.cameras] == ["agentview"]
    assert checkpoint.name == "lift-cameras-1"
    assert json.loads((out / "training.json").read_text())["sim"] == "lift:cameras=1"
    assert Demonstrations.load(tmp_path / "one.work" / "expert.npz").images.shape[1] == 1
    assert (
        cli.main(["train", "lift", "--cameras", "1", "--episodes", "1", "--out", str(out), "--evaluate", "quick"]) == 0
    )


def test_demonstrations_of_another_number_of_cameras_are_refused(tmp_path: Path) -> None:
    shown(EXPERT).save(tmp_path / "expert.npz")
    with pytest.raises(ValueError, match=r"expert\.npz: pictures of 2 cameras and not of 1"):
        policies.train_diffusion(with_cameras(1), tmp_path, 0, TINY, lambda text: None)


@pytest.mark.parametrize("words", ["lift --cameras 5", "lift-flow --cameras 0", "pusht --cameras 1"])
def test_a_number_of_cameras_that_cannot_be_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train", *words.split(), "--out", "none"])
    assert "--cameras must be a whole number in [1, 4], and only for lift and lift-flow" in capsys.readouterr().err


def test_flow_matching_is_trained_on_the_same_demonstrations_and_encoders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "run_episodes", partial(run_episodes, max_steps=3))
    work = tmp_path / "work"
    policies.train_diffusion(LIFT, work, 0, TINY, lambda text: None)
    before = {path.name: path.read_bytes() for path in work.iterdir() if path.name != "curve.json"}
    record = policies.make_policy("lift-flow", tmp_path / "flow", work, 0, TINY, 1, lambda text: None)
    assert {name: (work / name).read_bytes() for name in before} == before
    assert list(record["success"]) == ["flow5"]
    assert load(tmp_path / "flow").policy("flow5").steps == 5


def test_the_flow_loop_learns() -> None:
    """The velocity of a few actions is learned: five steps then end near them."""
    torch.manual_seed(0)
    features, actions = torch.randn(4, 8), torch.tanh(torch.randn(4, 2))
    index = torch.arange(4)
    windows = diffusion.Windows(features, actions.clone(), actions, index, index)
    network, sampler = ConditionalUnet1d(2, 2 * (8 + 2), (8, 16, 16)), FlowSampler(5)

    def error(module: torch.nn.Module) -> float:
        torch.manual_seed(1)
        condition, clean = windows.batch(16)
        sample = torch.randn_like(clean)
        for step in range(sampler.steps):
            row = torch.full((len(clean),), step)
            with torch.no_grad():
                sample = sampler.step(sample, module(sample, sampler.timesteps[row], condition), None, row)
        return float((sample - clean).abs().mean())

    before = error(network)
    learned = diffusion.train_flow(network, windows, 150, 1e-2, Curve(), lambda text: None)
    assert error(learned) < 0.6 * before
