"""A tiny policy of every family, and what it gives in a mode: for tests that compare devices, or where weights lie."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from auras_ros.device.weights import MB, least, survey
from auras_ros.loading.pipeline import Pipeline
from auras_ros.loading.placement import uses
from auras_ros.pipeline.request import Latched, ObservationOrigin
from auras_ros.policies.checkpoint import Checkpoint, build
from auras_ros.policies.family import LoadedPolicy
from auras_ros.policies.precision import cast
from tests.policies import flow_checkpoints, tiny, vision_language_checkpoints

X_TRANSFORMERS: dict[str, Any] = {
    "type": "x-transformers",
    "network": {
        "tokens": 2,
        "bins": 32,
        "decoder": {"dim": 24, "depth": 2, "heads": 2, "attn_dim_head": 12, "alibi_pos_bias": True, "ff_glu": True},
        "wrapper": {"use_abs_pos_emb": False, "emb_dim": 16},
    },
    "horizon": 3,
    "plans": {"quick": {}},
}
FORMS: dict[str, tuple[str, Any]] = {  # the plan, and what makes a manifest
    "diffusion": ("quick", tiny.manifest),
    "transformer": (
        "quick",
        lambda: tiny.manifest(network={"type": "transformer", "layers": 2, "heads": 2, "width": 16}),
    ),
    "resnet": (
        "quick",
        lambda: tiny.manifest(
            encoder={"type": "resnet18", "width": 16},
            network={"type": "conditional_unet1d", "down_dims": [16, 32], "kernel": 3, "groups": 8, "step_width": 16},
        ),
    ),
    "act": (
        "quick",
        lambda: tiny.manifest(
            type="act",
            encoder={"width": [4, 4, 4, 4], "depth": [1, 1, 1, 1], "norm": "batch"},
            network={"width": 16, "heads": 2, "hidden": 8, "encoder_layers": 1, "latent": 2},
            observation={**tiny.manifest()["observation"], "history": 1},
            plans={"quick": {}},
        ),
    ),
    "tokens": (
        "quick",
        lambda: tiny.manifest(
            type="autoregressive",
            network={"layers": 2, "heads": 2, "width": 16, "hidden": 16, "tokens": 2, "bins": 8},
            plans={"quick": {}},
        ),
    ),
    **{
        kind: (plan, lambda kind=kind: vision_language_checkpoints.manifest(vision_language_checkpoints.describe(kind)))
        for kind, plan in (("openvla", "greedy"), ("rt2", "greedy"), ("tinyvla", "quick"))
    },
    **{kind: ("euler", lambda kind=kind: flow_checkpoints.manifest(kind)) for kind in ("pi0", "pi05", "smolvla")},
}
if importlib.util.find_spec("x_transformers") is not None:
    FORMS["x-transformers"] = ("quick", lambda: tiny.manifest(**X_TRANSFORMERS))


def checkpoint(kind: str, dtype: torch.dtype = torch.float32) -> Checkpoint:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = build(FORMS[kind][1](), "0" * 64, Path("policy.json"))
        for weight in made.networks.parameters():  # zeros, as some begin with, would hide what is lost
            if not weight.any() or (kind in vision_language_checkpoints.PLANS and weight.dim() > 1):
                torch.nn.init.normal_(weight, std=0.15)
    cast(made.networks, dtype)
    return replace(made, dtype=dtype)


def least_mb(policy: LoadedPolicy) -> float:
    """All that can go, goes."""
    assert isinstance(policy, torch.nn.Module)
    fixed, most, _ = least(policy, survey(policy, uses(policy)))
    return (fixed + most) / MB


def looks(policy: Any, count: int) -> list[Latched]:
    random = torch.Generator().manual_seed(3)
    return [Latched(*policy.example(1, random), ObservationOrigin(i + 1, i + 1)) for i in range(count)]


def actions(pipeline: Pipeline, frames: int = 5) -> list[Tensor]:
    """Warm-up, which runs the workers of a mode side by side, then some frames, one worker after the other."""
    executor, found = pipeline.executor, []
    seen = looks(executor.policy, frames)
    executor.warm_up(1)
    executor.ledger.interval_ns = 0
    for one in seen:
        for worker in executor.workers:
            worker.begin(one, 0)
            worker.run()
            emission = worker.end(0)
            found += [] if emission is None else [emission.actions]
    return found
