"""The stages of Push-T training: demonstrations, encoder, denoiser, take-overs, decoder.

Each stage leaves a file in the work folder; a run that was interrupted goes on after the last finished stage.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
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
from auras_ros.policies.observation_tokens import ObservationTokens
from auras_ros.policies.policy import generate
from auras_ros.report.result import Say
from auras_ros.sim.pusht import PushTWorld
from auras_ros.train import tokens
from auras_ros.train.demonstrations import (
    Act,
    Demonstrations,
    DemonstrationSettings,
    Make,
    expert_episodes,
    takeover_episodes,
)
from auras_ros.train.diffusion import HALF_PX, HORIZON, Windows, pixels, train_denoiser, train_encoder
from auras_ros.train.export import AXES, observation_spec
from auras_ros.train.loops import Curve
from auras_ros.train.push_table import build_push_table
from auras_ros.train.pusht_expert import PushExpert

CONDITION = 2 * (64 + 2)
DISTURBANCE_PX, WALL_PX = 20.0, 15.0  # of the expert's executed targets; how far they stay from the table's edge
DRIVER_STEPS = 8  # actions executed of each chunk while the policy drives for the take-overs
ModuleT = TypeVar("ModuleT", bound=nn.Module)


@dataclass(frozen=True)
class Schedule:
    """How much of everything; `smoke` is for tests of the machinery, its policy is useless."""

    expert: int = 900
    drift: int = 300
    takeover: int = 300
    drift_max_px: float = 1.0
    encoder_steps: int = 1800
    encoder_more_steps: int = 600
    denoiser_steps: int = 3000
    denoiser_more_steps: int = 16_000
    decoder_steps: int = 10_000
    denoiser_other_steps: int = 4000  # for another number of noise levels

    @classmethod
    def smoke(cls) -> Schedule:
        return cls(6, 3, 3, 1.0, 4, 2, 4, 4, 4, 4)


class Stages:
    """In order; every stage reads what the ones before it left behind."""

    def __init__(self, work: Path, seed: int, schedule: Schedule, progress: Say) -> None:
        self.work, self.seed, self.schedule, self.progress = work, seed, schedule, progress
        work.mkdir(parents=True, exist_ok=True)
        self._curve_file = work / "curve.json"
        self.curve = Curve(json.loads(self._curve_file.read_text()) if self._curve_file.exists() else [])

    def seen(self) -> tuple[Demonstrations, KeypointEncoder]:
        """All demonstrations, take-overs from a first denoiser among them, and the encoder trained on them."""
        torch.set_num_threads(1)
        data, schedule = self.demonstrations(), self.schedule
        encoder = self.encoder(data, "encoder", schedule.encoder_steps, 1e-3, None)
        network = self.denoiser(data, encoder, "denoiser", schedule.denoiser_steps, None)
        data = Demonstrations.join([data, self.takeovers(encoder, network)])
        start = self.work / "encoder.safetensors"
        return data, self.encoder(data, "encoder-more", schedule.encoder_more_steps, 4e-4, start)

    def demonstrations(self) -> Demonstrations:
        expert, base = PushExpert(build_push_table()), 100_000 + 1_000_000 * self.seed
        static = DemonstrationSettings(self.schedule.expert, base, DISTURBANCE_PX, WALL_PX)
        drift = DemonstrationSettings(self.schedule.drift, base + 100_000, DISTURBANCE_PX, WALL_PX)
        recipes: tuple[tuple[str, DemonstrationSettings, Make[PushTWorld]], ...] = (
            ("expert", static, static_table),
            ("drift", drift, partial(drifting_table, self.schedule.drift_max_px)),
        )
        collected = [self._collect(name, partial(expert_episodes, one, make, expert)) for name, one, make in recipes]
        return Demonstrations.join(collected)

    def takeovers(self, encoder: KeypointEncoder, network: ConditionalUnet1d) -> Demonstrations:
        recipe = DemonstrationSettings(self.schedule.takeover, 300_000 + 1_000_000 * self.seed)
        driver, expert = partial(_driver, encoder, network, recipe.seed), PushExpert(build_push_table())
        return self._collect("takeover", partial(takeover_episodes, recipe, static_table, expert, driver))

    def _collect(self, name: str, collect: Callable[[Say], Demonstrations]) -> Demonstrations:
        path = self.work / f"{name}.npz"
        if not path.exists():
            collect(lambda text: self.progress(f"{name}: {text}")).save(path)
        return Demonstrations.load(path)

    def encoder(self, data: Demonstrations, name: str, steps: int, peak: float, start: Path | None) -> KeypointEncoder:
        def train(encoder: KeypointEncoder) -> KeypointEncoder:
            train_encoder(encoder, data, steps, peak, self.curve, self.progress)
            return encoder

        torch.manual_seed(self.seed)
        return self._weights(name, KeypointEncoder(), train, start)

    def denoiser(
        self,
        data: Demonstrations,
        encoder: KeypointEncoder,
        name: str,
        steps: int,
        start: Path | None,
        noise_levels: int = TRAINING_STEPS,
    ) -> ConditionalUnet1d:
        def train(network: ConditionalUnet1d) -> nn.Module:
            windows = Windows.of(encoder, data)
            return train_denoiser(network, windows, steps, 1e-3, self.curve, self.progress, noise_levels)

        torch.manual_seed(self.seed + 1)
        return self._weights(name, ConditionalUnet1d(2, CONDITION), train, start)

    def decoder(self, data: Demonstrations, encoder: KeypointEncoder, name: str, steps: int) -> AutoregressivePolicy:
        def train(policy: AutoregressivePolicy) -> nn.Module:
            return tokens.train_decoder(policy, Windows.of(encoder, data), steps, 1e-3, self.curve, self.progress)

        torch.manual_seed(self.seed + 2)
        return self._weights(name, untrained_tokens(encoder), train)

    def _weights(
        self, name: str, module: ModuleT, train: Callable[[ModuleT], nn.Module], start: Path | None = None
    ) -> ModuleT:
        """The module as stage `name` leaves it: trained, from `start` on, or read where that is done already. Its
        weights appear in the work folder whole or not at all, and the curve so far with them."""
        path = self.work / f"{name}.safetensors"
        if start:
            module.load_state_dict(load_file(start))
        if not path.exists():
            self.curve.stage(name)
            weights = train(module).state_dict()
            self._curve_file.write_text(json.dumps(self.curve.rows))
            temporary = path.with_suffix(".partial")
            save_file({name: tensor.contiguous() for name, tensor in weights.items()}, temporary)
            temporary.replace(path)
        module.load_state_dict(load_file(path))
        return module.eval()


def static_table(random: np.random.Generator) -> PushTWorld:
    """The published task."""
    return PushTWorld()


def drifting_table(drift_max_px: float, random: np.random.Generator) -> PushTWorld:
    """One whose tee drifts by 0.1 px to this a step."""
    return PushTWorld(float(random.uniform(0.1, drift_max_px)), 0.92)


def trained(name: str, horizon: int) -> Trained:
    """What the networks of a Push-T policy are trained for: positions on the whole table."""
    spec, none = observation_spec(), torch.zeros(len(AXES), dtype=torch.float64)
    shape = Architecture(name, 1, spec.image_size, spec.history, len(AXES), horizon, len(AXES))
    return Trained(shape, none, none + 2 * HALF_PX)


def untrained_tokens(encoder: KeypointEncoder) -> AutoregressivePolicy:
    """The autoregressive policy with random weights behind this encoder."""
    family, meant = FAMILIES["autoregressive"], trained("pusht-tokens", tokens.HORIZON)
    policy = family.policy(family.networks(encoder.sizes, tokens.NETWORK, meant.architecture), meant, {})
    assert isinstance(policy, AutoregressivePolicy)
    assert isinstance(policy.prefix, ObservationTokens)
    policy.prefix.encoder.load_state_dict(encoder.state_dict())
    return policy


def _driver(encoder: KeypointEncoder, network: ConditionalUnet1d, seed: int) -> Act:
    """A quick policy for one episode: 8-step DDIM, `DRIVER_STEPS` actions of each chunk."""
    policy = DiffusionPolicy(encoder, network, make_sampler("ddim", 8), trained("pusht", HORIZON))
    random = torch.Generator().manual_seed(seed)
    images: deque[NDArray[np.uint8]] = deque(maxlen=2)
    agents: deque[NDArray[np.float64]] = deque(maxlen=2)
    waiting: deque[NDArray[np.float64]] = deque()

    def act(seen: NDArray[np.uint8], agent: NDArray[np.float64]) -> NDArray[np.float64]:
        (image,) = seen
        images.append(image)
        agents.append(agent)
        if not waiting:
            frames = pixels(torch.from_numpy(np.stack([images[0], image])))[None, :, None]
            state = torch.from_numpy(np.stack([agents[0], agent]) / HALF_PX - 1).float()[None]
            noise = torch.randn(1, *policy.noise_shape, generator=random)
            waiting.extend(generate(policy, noise, policy.perceive(frames, state))[0, :DRIVER_STEPS].numpy())
        return waiting.popleft()

    return act
