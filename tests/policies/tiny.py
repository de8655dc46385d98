"""Small real policies for tests: the networks of the shipped one, some a hundred times smaller, with random weights."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from auras_ros.checkpoints.manifest import FORMAT
from auras_ros.checkpoints.manifest import MANIFEST as MANIFEST_FILE
from auras_ros.checkpoints.tensors import sha256
from auras_ros.models.keypoint_encoder import KeypointEncoder
from auras_ros.models.unet1d import ConditionalUnet1d
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.checkpoint import GOLDEN, WEIGHTS, Checkpoint, build
from auras_ros.policies.denoising import make_sampler
from auras_ros.policies.diffusion import DiffusionPolicy
from auras_ros.policies.family import Trained
from auras_ros.policies.golden import GoldenSample, replay

AXES = ("agent_x", "agent_y")
LOWER, UPPER = (0.0, -40.0), (512.0, 60.0)
SIDE = 24

MANIFEST: dict[str, Any] = {
    "format": FORMAT,
    "name": "tiny",
    "type": "diffusion",
    "encoder": {"features": 6, "widths": [8, 8, 8], "maps": 4, "targets": 2},
    "network": {"widths": [8, 8, 16]},
    "horizon": 8,
    "observation": {
        "cameras": [
            {
                "name": "top",
                "height": SIDE,
                "width": SIDE,
                "color": "rgb",
                "resize": None,
                "crop": None,
                "order": "crop_then_resize",
                "scale": 1 / 255,
                "mean": [0.5, 0.5, 0.5],
                "std": [0.3, 0.3, 0.3],
                "layout": "chw",
            }
        ],
        "state": {
            "names": list(AXES),
            "normalization": {"kind": "min_max", "min": [0.0, 0.0], "max": [512.0, 512.0]},
        },
        "history": 2,
        "dt_ms": 100,
    },
    "action": {
        "dt_ms": 100,
        "channels": [
            {
                "name": name,
                "unit": "px",
                "kind": "absolute",
                "frame": "table",
                "lower": -1000.0,
                "upper": 1000.0,
                "hold": "last",
            }
            for name in AXES
        ],
    },
    "statistics": {"kind": "min_max", "lower": list(LOWER), "upper": list(UPPER)},
    "plans": {"quick": {"sampler": "ddim", "steps": 3}, "fine": {"sampler": "ddim", "steps": 5}},
    "weights": {"file": "model.safetensors", "sha256": "f" * 64},
}


def manifest(**changes: Any) -> dict[str, Any]:
    """The manifest of the tiny policy, a copy, with some keys replaced."""
    return {**copy.deepcopy(MANIFEST), **changes}


def checkpoint(**changes: Any) -> Checkpoint:
    """A tiny checkpoint with the same random weights every time; never on a disk."""
    torch.manual_seed(0)
    return build(manifest(**changes), "0123456789abcdef", Path("policy.json"))


def policy(sampler: str = "ddim", steps: int = 4, horizon: int = 8) -> DiffusionPolicy:
    """Tiny networks of 6 features, 2 state values, 2 channels and 2 instants, under any sampler. DDPM takes as many
    steps as it was trained with."""
    torch.manual_seed(0)
    encoder = KeypointEncoder(6, (8, 8, 8), 4, 2)
    network = ConditionalUnet1d(2, 2 * (6 + 2), (8, 8, 16))
    taking = {"training_steps": steps} if sampler == "ddpm" else {}
    made = make_sampler(sampler, steps, **taking)  # type: ignore[arg-type]
    return DiffusionPolicy(encoder, network, made, trained(horizon)).eval()


def trained(
    horizon: int,
    lower: Sequence[float] = LOWER,
    upper: Sequence[float] = UPPER,
    executed: tuple[int, int] | None = None,
    side: int = SIDE,
) -> Trained:
    """What networks for `observed` were trained for: these bounds, of each channel."""
    shape = Architecture("tiny", 1, (side, side), 2, 2, horizon, len(lower))
    low, high = (torch.tensor(bound, dtype=torch.float64) for bound in (lower, upper))
    return Trained(shape, low, high, executed=executed)


class _InDouble(torch.nn.Module):
    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module.double()

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        wide = (part.double() if part.is_floating_point() else part for part in given)
        out: torch.Tensor = self.module(*wide)
        return out.float()


def exact_policy(steps: int) -> DiffusionPolicy:
    """As `policy`, with a denoiser that computes in float64: a batch rounds otherwise than a single row does, and
    random weights make much of it."""
    made = policy(steps=steps)
    made.network = _InDouble(made.network)
    return made.eval()


def observed(batch: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Random images [batch, 2, 1, 3, SIDE, SIDE] and states [batch, 2, 2] for `policy`."""
    random = torch.Generator().manual_seed(seed)
    images = torch.randn(batch, 2, 1, 3, SIDE, SIDE, generator=random)
    return images, torch.randn(batch, 2, 2, generator=random)


def lively_networks() -> tuple[KeypointEncoder, ConditionalUnet1d]:
    """Networks of the shipped size with random weights, whitened so that a small change of the input shows."""
    torch.manual_seed(0)
    encoder, network = KeypointEncoder(), ConditionalUnet1d(2, 2 * (64 + 2))
    with torch.no_grad():
        encoder.maps.weight *= 10
        encoder.fit_whitening(encoder.raw(torch.randn(16, 3, 96, 96)))
    return encoder, network


def write(folder: Path, **changes: Any) -> dict[str, Any]:
    """The tiny checkpoint as a folder: random weights, a random observation, golden actions. Returns the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    made = checkpoint(**changes)
    encoder, random = made.policy("quick").encoder, np.random.default_rng(0)
    images = random.integers(0, 256, (2, SIDE, SIDE, 3), dtype=np.uint8)
    if isinstance(encoder, KeypointEncoder):  # its random maps are nearly flat: let the features vary
        encoder.maps.weight *= 10
        encoder.fit_whitening(encoder.raw(torch.randn(32, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))))
    save_file(made.networks.state_dict(), folder / WEIGHTS)
    written = manifest(**changes)
    written["weights"]["sha256"] = sha256(folder / WEIGHTS)
    (folder / MANIFEST_FILE).write_text(json.dumps(written), encoding="utf-8")
    sample = GoldenSample({"top": images}, {axis: random.uniform(0, 512, 2) for axis in AXES}, {})
    write_golden(folder, made, sample)
    return written


def write_golden(folder: Path, made: Checkpoint, sample: GoldenSample) -> None:
    """The golden file of this sample's observation, with the actions that `made` gives for it."""
    for plan in made.plans:
        sample = sample.with_actions(plan, AXES, replay(made.policy(plan), made.spec, sample))
    sample.save(folder / GOLDEN)
