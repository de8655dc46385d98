"""`auras train`: the stages of Push-T training put together to a policy, its checkpoint and its evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from auras_ros.evaluate.lockstep import run_episodes
from auras_ros.evaluate.outcome import EpisodeRecord
from auras_ros.policies.checkpoint import load
from auras_ros.policies.denoising import TRAINING_STEPS
from auras_ros.policies.writing import Description
from auras_ros.report.result import Say
from auras_ros.report.statistics import success_fields
from auras_ros.sim.pusht import SUCCESS_COVERAGE
from auras_ros.train import tokens
from auras_ros.train.diffusion import HORIZON
from auras_ros.train.export import PLANS, describe, origin, put_in_place, write, write_record
from auras_ros.train.loops import Curve
from auras_ros.train.pusht_stages import Schedule, Stages

EXECUTE_STEPS = 6  # actions executed of each chunk in the evaluation


@dataclass(frozen=True)
class Finished:
    """What a training run leaves: what the checkpoint says of itself, its parts, and the curve."""

    description: Description
    parts: Mapping[str, torch.nn.Module]
    curve: Curve


def train_diffusion(
    work: Path, seed: int, schedule: Schedule, progress: Say, noise_levels: int = TRAINING_STEPS
) -> Finished:
    """The diffusion policy that ships; or one whose DDPM plan has another number of steps (Auras figure 10): its
    denoiser is that of the one that ships, trained further with so many noise levels. Every stage that is done already
    is read."""
    run = Stages(work, seed, schedule, progress)
    data, encoder = run.seen()
    start, steps = work / "denoiser.safetensors", schedule.denoiser_more_steps
    network = run.denoiser(data, encoder, "denoiser-more", steps, start)
    name, plans, more = "pusht", PLANS, {}
    if noise_levels != TRAINING_STEPS:
        start, steps = work / "denoiser-more.safetensors", schedule.denoiser_other_steps
        network = run.denoiser(data, encoder, f"denoiser-{noise_levels}", steps, start, noise_levels)
        name, more = f"pusht-{noise_levels}", {"training_steps": noise_levels}
        plans = {"quick": PLANS["quick"], f"ddpm{noise_levels}": {"sampler": "ddpm", "steps": noise_levels}}
    description = describe(name, "diffusion", HORIZON, plans, encoder.sizes, network.sizes, more)
    return Finished(description, {"encoder": encoder, "network": network}, run.curve)


def train_tokens(work: Path, seed: int, schedule: Schedule, progress: Say) -> Finished:
    """The autoregressive policy: the same demonstrations and the same encoder, frozen; a decoder of action tokens."""
    run = Stages(work, seed, schedule, progress)
    data, encoder = run.seen()
    policy = run.decoder(data, encoder, "decoder", schedule.decoder_steps)
    plans: dict[str, dict[str, Any]] = {"greedy": {}}
    sizes = encoder.sizes, tokens.NETWORK
    description = describe("pusht-tokens", "autoregressive", tokens.HORIZON, plans, *sizes, {})
    return Finished(description, dict(policy.named_children()), run.curve)


POLICIES: Mapping[str, Callable[..., Finished]] = {
    "pusht": train_diffusion,
    "pusht-tokens": train_tokens,
}


def make_policy(
    name: str,
    out: Path,
    work: Path,
    seed: int,
    schedule: Schedule,
    episodes: int,
    progress: Say,
    **more: int,
) -> dict[str, Any]:
    """Train a policy of POLICIES, write its checkpoint to `out`, evaluate it in seq; returns the record beside it.
    more: what its own training takes.

    A checkpoint that is already there is replaced once the new one is whole; its evaluation follows.
    Every plan is evaluated on the seeds 0 to `episodes` - 1, which no demonstration used (theirs start at 100,000).
    """
    trained = POLICIES[name](work, seed, schedule, progress, **more)
    fresh = out.with_name(out.name + ".partial")
    write(fresh, trained.description, trained.parts)
    put_in_place(fresh, out)
    record: dict[str, Any] = {
        **origin(seed),
        "schedule": asdict(schedule),
        "execute_steps": EXECUTE_STEPS,
        "coverage": SUCCESS_COVERAGE,
        "success": {},
    }
    for plan in trained.description.plans:
        record["success"][plan] = evaluate(out, plan, episodes, progress)
        write_record(out, record, trained.curve)
    return record


def evaluate(folder: Path, plan: str, episodes: int, progress: Say) -> dict[str, Any]:
    """Success of a checkpoint in seq, paused lockstep, on the seeds 0 to `episodes` - 1, with its 95 % interval."""

    def report(done: list[EpisodeRecord]) -> None:
        progress(f"{plan}: episode {len(done)}/{episodes}, {sum(e.success for e in done)} succeed")

    results = run_episodes(load(folder), plan, range(episodes), EXECUTE_STEPS, report=report)
    solved = [e.steps for e in results if e.success]
    return {
        **success_fields([e.success for e in results]),
        "successes": len(solved),
        "median_steps": float(np.median(solved)) if solved else None,
        "failed_seeds": [e.seed for e in results if not e.success],
    }
