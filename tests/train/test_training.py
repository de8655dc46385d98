"""The training run from end to end on tiny amounts, and that an interrupted one goes on where it stopped.

Guards: a finished stage that is done again; a curve that doubles or loses a stage; an average of the weights that is
the last weights.
"""

from __future__ import annotations

import copy
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from auras_ros.evaluate.lockstep import run_episodes
from auras_ros.models.unet1d import ConditionalUnet1d
from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.checkpoint import load
from auras_ros.policies.policy import generate
from auras_ros.sim.pusht.world import PushTWorld
from auras_ros.train import diffusion, policies, pusht_task, stages, tokens
from auras_ros.train.demonstrations import Demonstrations
from auras_ros.train.loops import Curve, average_into
from auras_ros.train.policies import EXECUTE_STEPS, make_policy, train_diffusion
from auras_ros.train.pusht_task import PUSHT
from auras_ros.train.stages import DRIVER_STEPS
from auras_ros.train.task import Schedule
from tests.policies.tiny import lively_networks

TINY = Schedule(1, 1, 1, 1.0, 1, 1, 1, 1, 1, 1, 1)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diffusion.Windows, "batch", lambda self, size, batch=diffusion.Windows.batch: batch(self, 16))


def seen(seed: int, frames: int = 12) -> Demonstrations:
    """Frames of a real table with made-up actions, two episodes."""
    world, random = PushTWorld(), np.random.default_rng(seed)
    world.reset(seed)
    rows = []
    for target in random.uniform(50, 450, (frames, 2)):
        rows.append((world.image(), world.agent, world.tee, target))
        world.step(target)
    images = np.array([row[0] for row in rows])[:, None]
    agent, tee, actions = (np.array(column, np.float32) for column in list(zip(*rows, strict=True))[1:])
    episode = np.repeat([0, 1], frames // 2)
    return Demonstrations(images, agent, tee, actions, episode)


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collections that take no time; the names of those that were asked for."""
    names: list[str] = []

    def expert(recipe: Any, make: Any, expert: object, progress: Any) -> Demonstrations:
        names.append("drift" if make(np.random.default_rng(0)).drift_px else "expert")
        progress("collected")
        return seen(1)

    def takeover(recipe: Any, make: Any, expert: object, policy: Any, progress: Any) -> Demonstrations:
        names.append("takeover")
        act = policy()
        target = act(np.zeros((1, 96, 96, 3), np.uint8), np.array([100.0, 200.0]))
        assert target.shape == (2,)
        assert target.min() >= 0
        assert target.max() <= 512
        return seen(2)

    monkeypatch.setattr(stages, "expert_episodes", expert)
    monkeypatch.setattr(stages, "takeover_episodes", takeover)
    monkeypatch.setattr(pusht_task, "build_push_table", lambda: None)
    return names


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the training loops that ran."""
    loops: list[str] = []
    for name in ("train_encoder", "train_denoiser"):
        loop = getattr(diffusion, name)

        def counting(*arguments: Any, name: str = name, loop: Any = loop) -> Any:
            loops.append(name.removeprefix("train_"))
            return loop(*arguments)

        monkeypatch.setattr(stages, name, counting)
    return loops


def same(a: nn.Module, b: nn.Module) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_an_interrupted_run_goes_on_and_a_finished_one_does_nothing_again(
    tmp_path: Path, collected: list[str], trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any, **more: Any) -> Demonstrations:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stages, "takeover_episodes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train_diffusion(PUSHT, tmp_path, 0, TINY, lambda text: None)
    done = {"expert.npz", "drift.npz", "encoder.safetensors", "denoiser.safetensors"}
    assert {path.name for path in tmp_path.iterdir()} == {*done, "curve.json"}
    before = {name: (tmp_path / name).read_bytes() for name in done}

    first = train_diffusion(PUSHT, tmp_path, 0, TINY, lambda text: None)
    assert collected == ["expert", "drift", "takeover"]
    assert trained == ["encoder", "denoiser", "encoder", "denoiser"]
    assert {name: (tmp_path / name).read_bytes() for name in done} == before
    assert not [path for path in tmp_path.iterdir() if "partial" in path.name]

    again = train_diffusion(PUSHT, tmp_path, 0, TINY, lambda text: None)
    assert len(collected) == 3
    assert len(trained) == 4
    assert all(same(first.parts[part], again.parts[part]) for part in ("encoder", "network"))


def test_the_curve_survives_an_interruption(tmp_path: Path, collected: list[str]) -> None:
    rows = [{"stage": "encoder", "step": 250, "loss": 0.5}, {"stage": "denoiser", "step": 250, "loss": 0.1}]
    (tmp_path / "curve.json").write_text(json.dumps(rows))
    for name in ("encoder", "denoiser"):
        module = dict(zip(("encoder", "denoiser"), lively_networks(), strict=True))[name]
        save_file(module.state_dict(), tmp_path / f"{name}.safetensors")
    assert train_diffusion(PUSHT, tmp_path, 0, TINY, lambda text: None).curve.rows == rows


def test_a_stage_begun_again_drops_its_own_rows_and_no_others() -> None:
    curve = Curve()
    for name in ("encoder", "denoiser"):
        curve.stage(name)
        curve.add(250, 1.0)
    kept = Curve(list(curve.rows))
    kept.stage("denoiser")
    assert kept.rows == [{"stage": "encoder", "step": 250, "loss": 1.0}]
    kept.add(250, 0.5, error_px=3.0)
    assert kept.rows[1:] == [{"stage": "denoiser", "step": 250, "loss": 0.5, "error_px": 3.0}]


def test_from_training_to_an_evaluated_checkpoint(
    tmp_path: Path, collected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = {"quick": {"sampler": "ddim", "steps": 1}}
    monkeypatch.setattr(policies, "PLANS", plans)
    monkeypatch.setattr(policies, "run_episodes", partial(run_episodes, max_steps=3))
    said: list[str] = []
    record = make_policy("pusht", tmp_path / "pusht", tmp_path / "work", 0, TINY, 2, said.append)
    assert load(tmp_path / "pusht").plans == plans
    assert record["success"]["quick"]["episodes"] == 2
    assert record["success"]["quick"]["failed_seeds"] == [0, 1]
    assert record["execute_steps"] == EXECUTE_STEPS
    assert record["seed"] == 0
    assert said[-1] == "quick: episode 2/2, 0 succeed"
    written = json.loads((tmp_path / "pusht" / "training.json").read_text())
    assert written["success"] == record["success"]
    assert (tmp_path / "pusht" / "curve.png").is_file()


def test_another_number_of_denoising_steps_is_trained_further_and_says_so(
    tmp_path: Path, collected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "run_episodes", partial(run_episodes, max_steps=3))
    work, said = tmp_path / "work", list[str]()
    record = make_policy("pusht", tmp_path / "out", work, 0, TINY, 1, said.append, noise_levels=12)
    checkpoint = load(tmp_path / "out")
    assert checkpoint.name == "pusht-12"
    assert checkpoint.plans["ddpm12"] == {"sampler": "ddpm", "steps": 12}
    policy = checkpoint.policy("ddpm12")
    assert policy.steps == 12
    assert torch.equal(policy.sampler.timesteps, torch.arange(11, -1, -1))  # of 12 levels and not of 100
    assert set(record["success"]) == {"quick", "ddpm12"}
    before, after = (load_file(work / f"{name}.safetensors") for name in ("denoiser-more", "denoiser-12"))
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_the_driver_replans_after_its_share_of_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[torch.Size, torch.Size]] = []

    def counting(policy: Any, noise: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        calls.append((noise.shape, context.shape))
        return generate(policy, noise, context)

    monkeypatch.setattr(stages, "generate", counting)
    encoder, network = lively_networks()
    act = stages._driver(PUSHT, [encoder], network, 0)
    image = np.zeros((1, 96, 96, 3), np.uint8)
    for step in range(2 * DRIVER_STEPS + 1):
        act(image, np.array([100.0, 200.0]))
        assert len(calls) == step // DRIVER_STEPS + 1
    assert calls[0] == ((1, 1, 16, 2), (1, 2 * (64 + 2)))


def test_the_average_follows_the_weights_slowly() -> None:
    average, network = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        average.weight.fill_(0.0)
        network.weight.fill_(1.0)
    left = 1.0
    for step in range(3):
        average_into(average, network, step)
        left *= (1 + step) / (10 + step)
        assert float(average.weight.detach()) == pytest.approx(1 - left)
    assert float(network.weight.detach()) == 1.0


def test_the_loops_learn() -> None:
    """A few dozen steps on a handful of frames bring the loss down: gradients reach the weights."""
    torch.manual_seed(0)
    said: list[str] = []
    network, features = ConditionalUnet1d(2, 2 * (64 + 2), (8, 16, 16)), torch.randn(4, 64)
    actions = torch.tanh(torch.randn(4, 2))
    index = torch.arange(4)
    windows = diffusion.Windows(features, actions.clone(), actions, index, index)

    def loss(module: nn.Module) -> float:
        torch.manual_seed(1)
        condition, clean = windows.batch(16)
        noisy, timestep = torch.randn_like(clean), torch.full((len(clean),), 99)
        with torch.no_grad():
            return float(nn.functional.mse_loss(module(noisy, timestep, condition), clean))

    before = loss(network)
    diffusion.train_denoiser(network, windows, 80, 1e-2, Curve(), said.append)
    assert loss(network) < 0.7 * before


def test_the_decoder_learns_from_tokens() -> None:
    """A few dozen steps bring the loss of unseen draws down, and the encoder stays as it was."""
    encoder = lively_networks()[0]
    policy = stages.untrained_tokens(PUSHT, [encoder])
    torch.manual_seed(0)
    index, actions = torch.arange(4), torch.tanh(torch.randn(4, 2))
    windows = diffusion.Windows(torch.randn(4, 64), actions.clone(), actions, index, index)

    def loss(learner: AutoregressivePolicy) -> float:
        torch.manual_seed(1)
        condition, clean = windows.batch(16)
        with torch.no_grad():
            return float(tokens.token_loss(learner, learner.prefix.tokens(condition), (clean[:, :8] + 1) * 256))

    before, kept = loss(policy), copy.deepcopy(policy.prefix.encoder)
    learned = tokens.train_decoder(policy, windows, 40, 3e-3, Curve(), print)
    assert loss(learned) < 0.7 * before
    assert same(kept, learned.prefix.encoder)


def test_from_training_to_an_autoregressive_checkpoint(
    tmp_path: Path, collected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "run_episodes", partial(run_episodes, max_steps=3))
    record = make_policy("pusht-tokens", tmp_path / "out", tmp_path / "work", 0, TINY, 2, lambda text: None)
    checkpoint = load(tmp_path / "out")
    assert checkpoint.horizon == tokens.HORIZON
    assert isinstance(checkpoint.policy("greedy"), AutoregressivePolicy)
    assert record["success"]["greedy"]["episodes"] == 2
    assert list(record["success"]) == ["greedy"]
