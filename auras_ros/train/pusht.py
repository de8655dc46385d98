"""`auras train pusht`: demonstrations, encoder, denoiser, take-overs, denoiser again, checkpoint, evaluation.

Each stage leaves a file in the work folder; a run that was interrupted goes on after the last finished stage.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from auras_ros.evaluate.lockstep import run_episodes
from auras_ros.evaluate.outcome import Episode
from auras_ros.evaluate.report import versions
from auras_ros.evaluate.statistics import wilson
from auras_ros.models.keypoint_encoder import KeypointEncoder
from auras_ros.models.unet1d import ConditionalUnet1d
from auras_ros.policies.checkpoint import load
from auras_ros.policies.denoising import make_sampler
from auras_ros.policies.diffusion import DiffusionPolicy
from auras_ros.policies.policy import generate
from auras_ros.sim.pusht import SUCCESS_COVERAGE
from auras_ros.train.demonstrations import Act, Demonstrations, Recipe, expert_episodes, takeover_episodes
from auras_ros.train.diffusion import HALF_PX, HORIZON, Curve, Windows, pixels, train_denoiser, train_encoder
from auras_ros.train.export import PLANS, write_checkpoint, write_record
from auras_ros.train.push_table import build_push_table

CONDITION = 2 * (64 + 2)
DRIVER_STEPS = 8  # actions executed of each chunk while the policy drives for the take-overs
EXECUTE_STEPS = 6  # and in the evaluation
Progress = Callable[[str], None]


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

    @classmethod
    def smoke(cls) -> Schedule:
        return cls(6, 3, 3, 1.0, 4, 2, 4, 4)


class _Run:
    """The stages, in order; every stage reads what the ones before it left behind."""

    def __init__(self, work: Path, seed: int, schedule: Schedule, progress: Progress) -> None:
        self.work, self.seed, self.schedule, self.progress = work, seed, schedule, progress
        work.mkdir(parents=True, exist_ok=True)
        self._curve_file = work / "curve.json"
        self.curve = Curve(json.loads(self._curve_file.read_text()) if self._curve_file.exists() else [])

    def demonstrations(self) -> Demonstrations:
        table, base = build_push_table(), 100_000 + 1_000_000 * self.seed
        expert = Recipe(self.schedule.expert, base)
        drift = Recipe(self.schedule.drift, base + 100_000, drift_max_px=self.schedule.drift_max_px)
        return Demonstrations.join(
            [
                self._collect("expert", lambda report: expert_episodes(expert, table, report)),
                self._collect("drift", lambda report: expert_episodes(drift, table, report)),
            ]
        )

    def takeovers(self, encoder: KeypointEncoder, network: ConditionalUnet1d) -> Demonstrations:
        recipe = Recipe(self.schedule.takeover, 300_000 + 1_000_000 * self.seed)
        driver, table = partial(_driver, encoder, network, recipe.seed), build_push_table()
        return self._collect("takeover", lambda report: takeover_episodes(recipe, table, driver, report))

    def _collect(self, name: str, collect: Callable[[Progress], Demonstrations]) -> Demonstrations:
        path = self.work / f"{name}.npz"
        if not path.exists():
            collect(lambda text: self.progress(f"{name}: {text}")).save(path)
        return Demonstrations.load(path)

    def encoder(self, data: Demonstrations, name: str, steps: int, peak: float, start: Path | None) -> KeypointEncoder:
        torch.manual_seed(self.seed)
        encoder, path = KeypointEncoder(), self.work / f"{name}.safetensors"
        if start:
            encoder.load_state_dict(load_file(start))
        if not path.exists():
            self.curve.stage(name)
            train_encoder(encoder, data, steps, peak, self.curve, self.progress)
            self._finish(encoder, path)
        encoder.load_state_dict(load_file(path))
        return encoder.eval()

    def denoiser(
        self, data: Demonstrations, encoder: KeypointEncoder, name: str, steps: int, start: Path | None
    ) -> ConditionalUnet1d:
        torch.manual_seed(self.seed + 1)
        network, path = ConditionalUnet1d(2, CONDITION), self.work / f"{name}.safetensors"
        if start:
            network.load_state_dict(load_file(start))
        if not path.exists():
            self.curve.stage(name)
            self._finish(
                train_denoiser(network, Windows.of(encoder, data), steps, 1e-3, self.curve, self.progress), path
            )
        network.load_state_dict(load_file(path))
        return network.eval()

    def _finish(self, module: torch.nn.Module, path: Path) -> None:
        """Leave the stage's weights and the curve so far; the weights appear whole or not at all."""
        self._curve_file.write_text(json.dumps(self.curve.rows))
        temporary = path.with_suffix(".partial")
        save_file({name: tensor.contiguous() for name, tensor in module.state_dict().items()}, temporary)
        temporary.replace(path)


def _driver(encoder: KeypointEncoder, network: ConditionalUnet1d, seed: int) -> Act:
    """A quick policy for one episode: 8-step DDIM, `DRIVER_STEPS` actions of each chunk."""
    bounds = torch.zeros(2), torch.full((2,), 2 * HALF_PX)
    policy = DiffusionPolicy(encoder, network, make_sampler("ddim", 8), HORIZON, *bounds)
    random = torch.Generator().manual_seed(seed)
    images: deque[NDArray[np.uint8]] = deque(maxlen=2)
    agents: deque[NDArray[np.float64]] = deque(maxlen=2)
    waiting: deque[NDArray[np.float64]] = deque()

    def act(image: NDArray[np.uint8], agent: NDArray[np.float64]) -> NDArray[np.float64]:
        images.append(image)
        agents.append(agent)
        if not waiting:
            frames = pixels(torch.from_numpy(np.stack([images[0], image])))[None, :, None]
            state = torch.from_numpy(np.stack([agents[0], agent]) / HALF_PX - 1).float()[None]
            noise = torch.randn(1, *policy.noise_shape, generator=random)
            waiting.extend(generate(policy, noise, policy.perceive(frames, state))[0, :DRIVER_STEPS].numpy())
        return waiting.popleft()

    return act


def train(
    work: Path, seed: int, schedule: Schedule, progress: Progress
) -> tuple[KeypointEncoder, ConditionalUnet1d, Curve]:
    """Run (or resume) every stage; returns encoder, denoiser (averaged weights) and the training curve."""
    torch.set_num_threads(1)
    run = _Run(work, seed, schedule, progress)
    data = run.demonstrations()
    encoder = run.encoder(data, "encoder", schedule.encoder_steps, 1e-3, None)
    network = run.denoiser(data, encoder, "denoiser", schedule.denoiser_steps, None)
    data = Demonstrations.join([data, run.takeovers(encoder, network)])
    encoder = run.encoder(data, "encoder-more", schedule.encoder_more_steps, 4e-4, work / "encoder.safetensors")
    network = run.denoiser(data, encoder, "denoiser-more", schedule.denoiser_more_steps, work / "denoiser.safetensors")
    return encoder, network, run.curve


def make_policy(
    out: Path, work: Path, seed: int, schedule: Schedule, episodes: int, progress: Progress
) -> dict[str, Any]:
    """Train, write the checkpoint to `out`, evaluate it in seq; returns the record that is written beside it.

    A checkpoint that is already there is replaced once the new one is whole; its evaluation follows.
    Every plan is evaluated on the seeds 0 to `episodes` - 1, which no demonstration used (theirs start at 100,000).
    """
    encoder, network, curve = train(work, seed, schedule, progress)
    fresh = out.with_name(out.name + ".partial")
    write_checkpoint(fresh, "pusht", encoder, network)
    if out.exists():
        shutil.rmtree(out)
    fresh.rename(out)
    record: dict[str, Any] = {
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "seed": seed,
        "schedule": asdict(schedule),
        "versions": versions(),
        "execute_steps": EXECUTE_STEPS,
        "coverage": SUCCESS_COVERAGE,
        "success": {},
    }
    for plan in PLANS:
        record["success"][plan] = evaluate(out, plan, episodes, progress)
        write_record(out, record, curve)
    return record


def evaluate(folder: Path, plan: str, episodes: int, progress: Progress) -> dict[str, Any]:
    """Success of a checkpoint in seq, paused lockstep, on the seeds 0 to `episodes` - 1, with its 95 % interval."""

    def report(done: list[Episode]) -> None:
        progress(f"{plan}: episode {len(done)}/{episodes}, {sum(e.success for e in done)} succeed")

    results = run_episodes(load(folder), plan, range(episodes), EXECUTE_STEPS, report=report)
    successes = sum(episode.success for episode in results)
    low, high = wilson(successes, episodes)
    steps = float(np.median([e.steps for e in results if e.success])) if successes else None
    return {
        "successes": successes,
        "episodes": episodes,
        "low": low,
        "high": high,
        "median_steps": steps,
        "failed_seeds": [e.seed for e in results if not e.success],
    }
