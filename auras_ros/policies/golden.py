"""The golden sample: one raw observation and the actions that it must give, replayed whenever a checkpoint is loaded.

It covers the whole way from raw pixels to physical units, and keeps everything by name, so that swapped colours,
joints, channels or statistics are found before a robot moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.tensors import naming, read_tensors
from auras_ros.observation import ObservationSpec, Preprocessor
from auras_ros.policies.policy import Policy, TokenPolicy, generate

NOISE_SEED = 20_250_101
LEAST_LIKELY = 0.25  # standard deviations by which a token of the sample may lose; a wrong image costs about 1.2


@dataclass(frozen=True)
class GoldenSample:
    """images: camera -> uint8 RGB [history, h, w, 3]; state: joint -> float64 [history] in physical units, oldest
    first; actions: "plan/channel" -> float64 [horizon] in physical units."""

    images: dict[str, NDArray[np.uint8]]
    state: dict[str, NDArray[np.float64]]
    actions: dict[str, NDArray[np.float64]]

    def with_actions(self, plan: str, channels: Sequence[str], actions: NDArray[np.float64]) -> GoldenSample:
        """The same sample with the actions [horizon, channels] of one more plan."""
        columns = {f"{plan}/{channel}": actions[:, i] for i, channel in enumerate(channels)}
        return GoldenSample(self.images, self.state, self.actions | columns)

    def of(self, plan: str, channel: str) -> NDArray[np.float64]:
        """The actions [horizon] of one channel under a plan. Raises CheckpointError if there are none."""
        if f"{plan}/{channel}" not in self.actions:
            raise CheckpointError(f"golden sample: no actions for plan '{plan}', channel '{channel}'")
        return self.actions[f"{plan}/{channel}"]

    def save(self, path: Path) -> None:
        groups: dict[str, Mapping[str, NDArray[Any]]]
        groups = {"image": self.images, "state": self.state, "actions": self.actions}
        arrays = {f"{group}/{name}": a for group, named in groups.items() for name, a in named.items()}
        with naming(path):
            save_file({name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}, path)
        path.chmod(0o644)  # the library writes it for the owner only

    @classmethod
    def load(cls, path: Path) -> GoldenSample:
        """Raises CheckpointError."""
        groups: dict[str, dict[str, NDArray[Any]]] = {"image": {}, "state": {}, "actions": {}}
        for key, tensor in read_tensors(path).items():
            group, _, name = key.partition("/")
            if group not in groups:
                raise CheckpointError(f"{path}: tensor '{key}' belongs to no part of a golden sample")
            groups[group][name] = tensor.numpy()
        return cls(groups["image"], groups["state"], groups["actions"])


def observed(spec: ObservationSpec, sample: GoldenSample) -> tuple[Tensor, Tensor]:
    """The sample's observation as a policy takes it: images and state. Raises CheckpointError if it does not fit this
    spec."""
    preprocess = Preprocessor(spec)
    joints = () if spec.state is None else spec.state.names
    with refusing("golden sample: does not fit the observation", LookupError, ValueError):
        named = [sample.state[joint] for joint in joints]
        positions = np.array(named).reshape(len(joints), -1).T if joints else np.zeros((spec.history, 0))
        history = [
            preprocess({camera.name: sample.images[camera.name][i] for camera in spec.cameras}, positions[i])
            for i in range(spec.history)
        ]
    images = torch.from_numpy(np.stack([instant.image for instant in history]))[None]
    return images, torch.from_numpy(np.stack([instant.state for instant in history]))[None]


def replay(policy: Policy, spec: ObservationSpec, sample: GoldenSample) -> NDArray[np.float64]:
    """Actions [horizon, channels] of this policy for the sample's observation, with the sample's noise.

    Raises CheckpointError if the sample is not an observation of this spec.
    """
    images, state = observed(spec, sample)
    noise = torch.randn((1, *policy.noise_shape), generator=torch.Generator().manual_seed(NOISE_SEED))
    return generate(policy, noise, policy.perceive(images, state))[0].numpy()


def check(
    policy: Policy,
    plan: str,
    spec: ObservationSpec,
    channels: Sequence[str],
    sample: GoldenSample,
    tolerance: NDArray[np.float64],
    exact: bool = True,
) -> None:
    """Raise CheckpointError unless the replay is within `tolerance` [channels] (physical units) of the sample. exact:
    the weights are as precise as those that made the sample. If not, rounding may choose other tokens, so for a policy
    that writes tokens it is checked whether the sample's tokens are likely."""
    if not exact and isinstance(policy, TokenPolicy):
        _check_tokens(policy, plan, spec, channels, sample)
        return
    got = replay(policy, spec, sample)
    for i, channel in enumerate(channels):
        expected = sample.of(plan, channel)
        if expected.shape != got[:, i].shape:
            wanted, given = len(got), list(expected.shape)
            raise CheckpointError(f"golden sample: plan '{plan}': horizon {wanted}, the sample has {given}")
        agrees = np.abs(got[:, i] - expected) <= tolerance[i]  # False for NaN
        if not agrees.all():
            step = int(np.argmin(agrees))
            raise CheckpointError(
                f"golden sample: plan '{plan}', step {step}, channel '{channel}': {got[step, i]:.4f} instead of "
                f"{expected[step]:.4f}; preprocessing, statistics or weights are not those it was trained with"
            )


def _check_tokens(
    policy: TokenPolicy, plan: str, spec: ObservationSpec, channels: Sequence[str], sample: GoldenSample
) -> None:
    actions = torch.from_numpy(np.stack([sample.of(plan, channel) for channel in channels], 1))
    lost = policy.losses(policy.perceive(*observed(spec, sample)), actions[None])[0]
    if not bool((lost <= LEAST_LIKELY).all()):  # False for NaN
        at = int((lost > LEAST_LIKELY).nonzero()[0]) if bool(torch.isfinite(lost).all()) else 0
        raise CheckpointError(
            f"golden sample: plan '{plan}', token {at}, channel '{channels[at % len(channels)]}': its score is "
            f"{float(lost[at]):.2f} standard deviations below the best, expected {LEAST_LIKELY} at most in half "
            f"precision; preprocessing, statistics or weights are not those it was trained with"
        )
