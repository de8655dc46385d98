"""Fixtures that the reference libraries wrote: the observation they were given, the noise, and what they made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from auras_ros.observation import Preprocessor
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.policy import Policy, generate

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Reference:
    """images: camera -> uint8 [history, h, w, 3]; state [history, numbers]; noise [...]; actions [chunk, channels]."""

    images: dict[str, NDArray[np.uint8]]
    state: NDArray[np.float64]
    noise: Tensor
    actions: NDArray[np.float64]

    @classmethod
    def read(cls, folder: Path, camera: Callable[[str], str] = lambda feature: feature.rpartition(".")[2]) -> Reference:
        """camera: our name of a camera's feature."""
        tensors = load_file(folder / "reference.safetensors")
        raw = {name[len("raw/") :]: t.numpy() for name, t in tensors.items() if name.startswith("raw/")}
        state = raw.pop("observation.state").astype(np.float64)
        images = {camera(name): values for name, values in raw.items()}
        return cls(images, state, tensors["noise"], tensors["actions"].double().numpy())


def observed(checkpoint: Checkpoint, reference: Reference) -> tuple[Tensor, Tensor]:
    """The reference's observation as the policy takes it: images [1, history, ...], state [1, history, numbers]."""
    preprocess = Preprocessor(checkpoint.spec)
    prepared = [
        preprocess({name: frames[at] for name, frames in reference.images.items()}, reference.state[at])
        for at in range(checkpoint.spec.history)
    ]
    images, states = ([getattr(each, part) for each in prepared] for part in ("image", "state"))
    return torch.from_numpy(np.stack(images))[None], torch.from_numpy(np.stack(states))[None]


def replayed(checkpoint: Checkpoint, reference: Reference, plan: str | None = None) -> NDArray[np.float64]:
    """Our actions [chunk, channels] for the reference's observation and noise, one step after the other."""
    policy: Policy = checkpoint.policy(plan or next(iter(checkpoint.plans)))
    context = policy.perceive(*observed(checkpoint, reference))
    return generate(policy, reference.noise[None], context)[0].numpy()


def error(checkpoint: Checkpoint, got: NDArray[np.float64], reference: Reference) -> float:
    """The largest difference, as a share of each channel's range (of two standard deviations)."""
    span = (checkpoint.trained.upper - checkpoint.trained.lower).numpy()
    return float((np.abs(got - reference.actions) / span).max())
