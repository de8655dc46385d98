"""The golden sample: one raw observation and the actions it must lead to, replayed whenever a checkpoint is loaded.

It runs the whole way from raw pixels to physical units, so that swapped colours, joints or statistics are found
before a robot finds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from auras_ros.observation import ObservationSpec, Preprocessor
from auras_ros.policies.policy import Policy, generate
from auras_ros.policies.tensors import CheckpointError, read_tensors

NOISE_SEED = 20_250_101


@dataclass(frozen=True)
class GoldenSample:
    """images: camera -> uint8 RGB [history, h, w, 3]; state float64 [history, D] in physical units, oldest first."""

    images: dict[str, NDArray[np.uint8]]
    state: NDArray[np.float64]
    actions: dict[str, NDArray[np.float64]]  # plan -> [horizon, channels]

    def save(self, path: Path) -> None:
        tensors = {f"image.{name}": torch.from_numpy(np.ascontiguousarray(a)) for name, a in self.images.items()}
        tensors["state"] = torch.from_numpy(self.state)
        tensors |= {f"actions.{plan}": torch.from_numpy(np.ascontiguousarray(a)) for plan, a in self.actions.items()}
        save_file(tensors, path)
        path.chmod(0o644)  # the library writes for the owner alone

    @classmethod
    def load(cls, path: Path) -> GoldenSample:
        tensors = {name: tensor.numpy() for name, tensor in read_tensors(path).items()}
        if "state" not in tensors:
            raise CheckpointError(f"{path}: tensor 'state' is missing")
        images = {name[6:]: a for name, a in tensors.items() if name.startswith("image.")}
        actions = {name[8:]: a for name, a in tensors.items() if name.startswith("actions.")}
        return cls(images, tensors["state"], actions)


def replay(policy: Policy, spec: ObservationSpec, sample: GoldenSample) -> NDArray[np.float64]:
    """Actions [horizon, channels] that this policy makes of the sample's observation, with the sample's noise."""
    preprocess = Preprocessor(spec)
    history = [
        preprocess({name: frames[i] for name, frames in sample.images.items()}, sample.state[i])
        for i in range(spec.history)
    ]
    images = torch.from_numpy(np.stack([instant.image for instant in history]))[None]
    state = torch.from_numpy(np.stack([instant.state for instant in history]))[None]
    noise = torch.randn((1, *policy.noise_shape), generator=torch.Generator().manual_seed(NOISE_SEED))
    return generate(policy, noise, policy.perceive(images, state))[0].numpy()


def check(
    policy: Policy, plan: str, spec: ObservationSpec, sample: GoldenSample, tolerance: NDArray[np.float64]
) -> None:
    """Raise CheckpointError unless the replay is within `tolerance` [channels] (physical units) of the sample."""
    if plan not in sample.actions:
        raise CheckpointError(f"golden sample: no actions for plan '{plan}'")
    got, expected = replay(policy, spec, sample), sample.actions[plan]
    if got.shape != expected.shape:
        raise CheckpointError(f"golden sample: plan '{plan}' gave shape {got.shape}, expected {expected.shape}")
    off = np.abs(got - expected)
    if not np.isfinite(got).all() or (off > tolerance).any():
        step, channel = np.unravel_index(int(np.nanargmax(off / tolerance)), off.shape)
        raise CheckpointError(
            f"golden sample: plan '{plan}', step {step}, channel {channel}: {got[step, channel]:.4f} instead of "
            f"{expected[step, channel]:.4f}; preprocessing, statistics or weights are not those it was trained with"
        )
