"""The stages of training: demonstrations, encoders, denoiser, take-overs, decoder.

Each stage leaves a file in the work folder; a run that was interrupted goes on after the last finished stage.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import nn

from auras_ros.models.keypoint_encoder import KeypointEncoder
from auras_ros.models.unet1d import ConditionalUnet1d
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.denoising import TRAINING_STEPS, make_sampler
from auras_ros.policies.diffusion import DiffusionPolicy
from auras_ros.policies.families import FAMILIES
from auras_ros.policies.family import Trained
from auras_ros.policies.networks import PerCamera
from auras_ros.policies.observation_tokens import ObservationTokens
from auras_ros.policies.policy import generate
from auras_ros.report.result import Say
from auras_ros.train import tokens
from auras_ros.train.demonstrations import (
    Act,
    Demonstrations,
    DemonstrationSettings,
    expert_episodes,
    takeover_episodes,
)
from auras_ros.train.diffusion import HORIZON, Windows, pixels, train_denoiser, train_encoder, train_flow
from auras_ros.train.loops import Curve
from auras_ros.train.task import DRIFT, EXPERT, TAKEOVER, Schedule, TrainingTask

FIRST_SEEDS = {EXPERT: 100_000, DRIFT: 200_000, TAKEOVER: 300_000}  # of demonstrations; a run's seed adds millions
DRIVER_STEPS = 8  # actions executed of each chunk while the policy drives for the take-overs
ModuleT = TypeVar("ModuleT", bound=nn.Module)
Encoders = Sequence[KeypointEncoder]  # one for each camera


class Stages:
    """In order; every stage reads what the ones before it left behind."""

    def __init__(self, task: TrainingTask, work: Path, seed: int, schedule: Schedule, progress: Say) -> None:
        self.task, self.work, self.seed, self.schedule, self.progress = task, work, seed, schedule, progress
        work.mkdir(parents=True, exist_ok=True)
        self._curve_file = work / "curve.json"
        self.curve = Curve(json.loads(self._curve_file.read_text()) if self._curve_file.exists() else [])

    def seen(self) -> tuple[Demonstrations, Encoders]:
        """All demonstrations, take-overs from a first denoiser among them, and the encoders trained on them."""
        torch.set_num_threads(1)
        data, schedule = self.demonstrations(), self.schedule
        encoders = self.encoders(data, "encoder", schedule.encoder_steps, 1e-3, None)
        network = self.denoiser(data, encoders, "denoiser", schedule.denoiser_steps, None)
        data = Demonstrations.join([data, self.takeovers(encoders, network)])
        return data, self.encoders(data, "encoder-more", schedule.encoder_more_steps, 4e-4, "encoder")

    def demonstrations(self) -> Demonstrations:
        collected = []
        for name, episodes in ((EXPERT, self.schedule.expert), (DRIFT, self.schedule.drift)):
            recipe = replace(self._recipe(name, episodes), disturbance=self.task.disturbance, margin=self.task.margin)
            collected.append(self._collect(name, recipe, expert_episodes))
        return Demonstrations.join(collected)

    def takeovers(self, encoders: Encoders, network: ConditionalUnet1d) -> Demonstrations:
        recipe = self._recipe(TAKEOVER, self.schedule.takeover)
        driver = partial(_driver, self.task, encoders, network, recipe.seed)
        return self._collect(TAKEOVER, recipe, partial(takeover_episodes, policy=driver))

    def _recipe(self, name: str, episodes: int) -> DemonstrationSettings:
        seed = FIRST_SEEDS[name] + 1_000_000 * self.seed
        return DemonstrationSettings(episodes, seed, sensors=self.task.sensors.names)

    def _collect(
        self, name: str, recipe: DemonstrationSettings, collect: Callable[..., Demonstrations]
    ) -> Demonstrations:
        path = self.work / f"{name}.npz"
        if not path.exists():
            make = self.task.worlds[name](self.schedule.drift_max)
            say = partial(self._say, name)
            collect(recipe, make, self.task.expert(), progress=say).save(path)
        data, cameras = Demonstrations.load(path), len(self.task.cameras)
        if len(data.images) and data.images.shape[1] != cameras:
            raise ValueError(
                f"{path}: pictures of {data.images.shape[1]} cameras and not of {cameras}: another policy's"
            )
        return data

    def _say(self, name: str, text: str) -> None:
        self.progress(f"{name}: {text}")

    def encoders(self, data: Demonstrations, name: str, steps: int, peak: float, start: str | None) -> Encoders:
        """One for each camera, from those of stage `start` on."""
        cameras = self.task.cameras
        endings = [f"-{camera}" for camera in cameras] if len(cameras) > 1 else [""]
        return [
            self._encoder(data, camera, name + ending, steps, peak, None if start is None else start + ending)
            for camera, ending in enumerate(endings)
        ]

    def _encoder(
        self, data: Demonstrations, camera: int, name: str, steps: int, peak: float, start: str | None
    ) -> KeypointEncoder:
        def train(encoder: KeypointEncoder) -> KeypointEncoder:
            train_encoder(encoder, self.task, data, camera, steps, peak, self.curve, self.progress)
            return encoder

        torch.manual_seed(self.seed)
        return self._weights(name, KeypointEncoder(targets=self.task.keypoint_count), train, start)

    def denoiser(
        self,
        data: Demonstrations,
        encoders: Encoders,
        name: str,
        steps: int,
        start: str | None,
        noise_levels: int = TRAINING_STEPS,
    ) -> ConditionalUnet1d:
        def train(network: ConditionalUnet1d) -> nn.Module:
            windows = Windows.of(encoders, self.task, data)
            return train_denoiser(network, windows, steps, 1e-3, self.curve, self.progress, noise_levels)

        return self._network(encoders, name, train, start)

    def flow(self, data: Demonstrations, encoders: Encoders, name: str, steps: int) -> ConditionalUnet1d:
        def train(network: ConditionalUnet1d) -> nn.Module:
            windows = Windows.of(encoders, self.task, data)
            return train_flow(network, windows, steps, 1e-3, self.curve, self.progress)

        return self._network(encoders, name, train, None)

    def _network(
        self, encoders: Encoders, name: str, train: Callable[[ConditionalUnet1d], nn.Module], start: str | None
    ) -> ConditionalUnet1d:
        torch.manual_seed(self.seed + 1)
        shape = trained(self.task, self.task.name, HORIZON).architecture
        condition = shape.history * shape.instant(encoders[0].features)
        return self._weights(name, ConditionalUnet1d(shape.actions, condition), train, start)

    def decoder(self, data: Demonstrations, encoders: Encoders, name: str, steps: int) -> AutoregressivePolicy:
        def train(policy: AutoregressivePolicy) -> nn.Module:
            windows = Windows.of(encoders, self.task, data)
            return tokens.train_decoder(policy, windows, steps, 1e-3, self.curve, self.progress)

        torch.manual_seed(self.seed + 2)
        return self._weights(name, untrained_tokens(self.task, encoders), train)

    def _weights(
        self, name: str, module: ModuleT, train: Callable[[ModuleT], nn.Module], start: str | None = None
    ) -> ModuleT:
        """The module as stage `name` leaves it: trained, from stage `start` on, or read where that is done already. Its
        weights appear in the work folder whole or not at all, and the curve so far with them."""
        path = self.work / f"{name}.safetensors"
        if start:
            module.load_state_dict(load_file(self.work / f"{start}.safetensors"))
        if not path.exists():
            self.curve.stage(name)
            weights = train(module).state_dict()
            self._curve_file.write_text(json.dumps(self.curve.rows))
            temporary = path.with_suffix(".partial")
            save_file({name: tensor.contiguous() for name, tensor in weights.items()}, temporary)
            temporary.replace(path)
        module.load_state_dict(load_file(path))
        return module.eval()


def trained(task: TrainingTask, name: str, horizon: int) -> Trained:
    """What the networks of a policy of this task are trained for."""
    spec, actions, state = task.spec, len(task.contract.names), len(task.sensors.names)
    shape = Architecture(name, len(spec.cameras), spec.image_size, spec.history, state, horizon, actions)
    lower, upper = (torch.tensor(bound, dtype=torch.float64) for bound in task.bounds)
    return Trained(shape, lower, upper)


def joined(encoders: Encoders) -> KeypointEncoder | PerCamera:
    """As a policy has them."""
    return encoders[0] if len(encoders) == 1 else PerCamera(encoders)


def untrained_tokens(task: TrainingTask, encoders: Encoders) -> AutoregressivePolicy:
    """The autoregressive policy with random weights behind these encoders."""
    family, meant, encoder = FAMILIES["autoregressive"], trained(task, "tokens", tokens.HORIZON), joined(encoders)
    policy = family.policy(family.networks(encoder.sizes, tokens.NETWORK, meant.architecture), meant, {})
    assert isinstance(policy, AutoregressivePolicy)
    assert isinstance(policy.prefix, ObservationTokens)
    policy.prefix.encoder.load_state_dict(encoder.state_dict())
    return policy


def _driver(task: TrainingTask, encoders: Encoders, network: ConditionalUnet1d, seed: int) -> Act:
    """A quick policy for one episode: 8-step DDIM, `DRIVER_STEPS` actions of each chunk."""
    policy = DiffusionPolicy(joined(encoders), network, make_sampler("ddim", 8), trained(task, task.name, HORIZON))
    random = torch.Generator().manual_seed(seed)
    images: deque[NDArray[np.uint8]] = deque(maxlen=task.lag + 1)
    states: deque[NDArray[np.float64]] = deque(maxlen=task.lag + 1)
    waiting: deque[NDArray[np.float64]] = deque()

    def act(seen: NDArray[np.uint8], state: NDArray[np.float64]) -> NDArray[np.float64]:
        images.append(seen)
        states.append(state)
        if not waiting:
            frames = torch.from_numpy(np.stack([images[0], seen]))
            shown = pixels(frames.flatten(0, 1)).unflatten(0, frames.shape[:2])[None]
            felt = torch.from_numpy(task.scaled_state(np.stack([states[0], state]))).float()[None]
            noise = torch.randn(1, *policy.noise_shape, generator=random)
            waiting.extend(generate(policy, noise, policy.perceive(shown, felt))[0, :DRIVER_STEPS].numpy())
        return waiting.popleft()

    return act
