"""`auras train`: the stages of training put together to a policy, its checkpoint and its evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from auras_ros.evaluate.lockstep import BATCH, run_episodes
from auras_ros.evaluate.outcome import EpisodeRecord
from auras_ros.evaluate.settings import batch_of
from auras_ros.policies.checkpoint import load
from auras_ros.policies.denoising import TRAINING_STEPS
from auras_ros.policies.flow_sampler import VELOCITY
from auras_ros.policies.writing import Description
from auras_ros.report.result import Say
from auras_ros.report.statistics import success_fields
from auras_ros.train import tokens
from auras_ros.train.diffusion import HORIZON
from auras_ros.train.export import FLOW_PLANS, PLANS, describe, origin, put_in_place, write, write_record
from auras_ros.train.lift_task import LIFT
from auras_ros.train.loops import Curve
from auras_ros.train.pusht_task import PUSHT
from auras_ros.train.stages import Stages, joined
from auras_ros.train.task import Schedule, TrainingTask

EXECUTE_STEPS = 6  # actions executed of each chunk in the evaluation


@dataclass(frozen=True)
class Finished:
    """What a training run leaves: what the checkpoint says of itself, its parts, and the curve."""

    description: Description
    parts: Mapping[str, torch.nn.Module]
    curve: Curve


def train_diffusion(
    task: TrainingTask, work: Path, seed: int, schedule: Schedule, progress: Say, noise_levels: int = TRAINING_STEPS
) -> Finished:
    """The diffusion policy that ships; or one whose DDPM plan has another number of steps (Auras figure 10): its
    denoiser is that of the one that ships, trained further with so many noise levels. Every stage that is done already
    is read."""
    run = Stages(task, work, seed, schedule, progress)
    data, encoders = run.seen()
    network = run.denoiser(data, encoders, "denoiser-more", schedule.denoiser_more_steps, "denoiser")
    name, plans, more = task.name, PLANS, {}
    if noise_levels != TRAINING_STEPS:
        other, steps = f"denoiser-{noise_levels}", schedule.denoiser_other_steps
        network = run.denoiser(data, encoders, other, steps, "denoiser-more", noise_levels)
        name, more = f"{task.name}-{noise_levels}", {"training_steps": noise_levels}
        plans = {"quick": PLANS["quick"], f"ddpm{noise_levels}": {"sampler": "ddpm", "steps": noise_levels}}
    encoder = joined(encoders)
    description = describe(task, name, "diffusion", HORIZON, plans, encoder.sizes, network.sizes, more)
    return Finished(description, {"encoder": encoder, "network": network}, run.curve)


def train_flow(task: TrainingTask, work: Path, seed: int, schedule: Schedule, progress: Say) -> Finished:
    """Flow matching with five steps: the demonstrations and encoders of the diffusion policy, and the same network."""
    run = Stages(task, work, seed, schedule, progress)
    data, encoders = run.seen()
    network, encoder = run.flow(data, encoders, "flow", schedule.flow_steps), joined(encoders)
    sizes, more = (encoder.sizes, network.sizes), {"prediction": VELOCITY}
    description = describe(task, f"{task.name}-flow", "diffusion", HORIZON, FLOW_PLANS, *sizes, more)
    return Finished(description, {"encoder": encoder, "network": network}, run.curve)


def train_tokens(task: TrainingTask, work: Path, seed: int, schedule: Schedule, progress: Say) -> Finished:
    """The autoregressive policy: the same demonstrations and the same encoder, frozen; a decoder of action tokens."""
    run = Stages(task, work, seed, schedule, progress)
    data, encoders = run.seen()
    policy = run.decoder(data, encoders, "decoder", schedule.decoder_steps)
    plans: dict[str, dict[str, Any]] = {"greedy": {}}
    sizes = joined(encoders).sizes, tokens.NETWORK
    description = describe(task, f"{task.name}-tokens", "autoregressive", tokens.HORIZON, plans, *sizes, {})
    return Finished(description, dict(policy.named_children()), run.curve)


POLICIES: Mapping[str, tuple[TrainingTask, Callable[..., Finished]]] = {
    "pusht": (PUSHT, train_diffusion),
    "pusht-tokens": (PUSHT, train_tokens),
    "lift": (LIFT, train_diffusion),
    "lift-flow": (LIFT, train_flow),
}


def make_policy(
    name: str,
    out: Path,
    work: Path,
    seed: int,
    schedule: Schedule,
    episodes: int,
    progress: Say,
    task: TrainingTask | None = None,
    **more: int,
) -> dict[str, Any]:
    """Train a policy of POLICIES, write its checkpoint to `out`, evaluate it in seq; returns the record beside it.
    task: in place of its own. more: what its own training takes.

    A checkpoint that is already there is replaced once the new one is whole; its evaluation follows.
    Every plan is evaluated on the seeds 0 to `episodes` - 1, which no demonstration used (theirs start at 100,000).
    """
    own, train = POLICIES[name]
    task = task or own
    trained = train(task, work, seed, schedule, progress, **more)
    fresh = out.with_name(out.name + ".partial")
    write(fresh, task, trained.description, trained.parts)
    put_in_place(fresh, out)
    record: dict[str, Any] = {
        **origin(seed),
        "schedule": asdict(schedule),
        "execute_steps": EXECUTE_STEPS,
        "sim": task.sim,
        "success": {},
    }
    for plan in trained.description.plans:
        record["success"][plan] = evaluate(task.sim, out, plan, episodes, progress)
        write_record(out, record, trained.curve)
    return record


def evaluate(sim: str, folder: Path, plan: str, episodes: int, progress: Say) -> dict[str, Any]:
    """Success of a checkpoint in this world in seq, paused lockstep, on the seeds 0 to `episodes` - 1, with its 95 %
    interval."""

    def report(done: list[EpisodeRecord]) -> None:
        progress(f"{plan}: episode {len(done)}/{episodes}, {sum(e.success for e in done)} succeed")

    batch = batch_of(sim, None, BATCH)
    results = run_episodes(load(folder), plan, range(episodes), EXECUTE_STEPS, report=report, batch=batch, sim=sim)
    solved = [e.steps for e in results if e.success]
    return {
        **success_fields([e.success for e in results]),
        "successes": len(solved),
        "median_steps": float(np.median(solved)) if solved else None,
        "failed_seeds": [e.seed for e in results if not e.success],
    }
