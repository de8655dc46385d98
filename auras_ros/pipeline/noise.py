"""The noise tape: what randomness a request gets, from its seed and number alone (rule 7 of docs/pipeline.md).

Drawn on the CPU, so that every mode and every device sees the same numbers, and copied to a fixed address as
observations are: by a stage on the lane for copies (`device.staging`), so that the host does not wait.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from auras_ros.device import Device, Lane, Mark, Upload
from auras_ros.pipeline.request import NoiseTape
from auras_ros.policies.policy import Policy


def noise_tape(shape: tuple[int, ...], seed: int, request: int) -> Tensor:
    """Standard normal float32 of `shape` for one request. seed: 0 to 2**31 - 1; request: 0 to 2**32 - 1."""
    if not 0 <= seed < 2**31 or not 0 <= request < 2**32:
        raise ValueError(f"seed must be in [0, 2**31) and request in [0, 2**32), got {seed} and {request}")
    # Not torch's own generator: on the CPU it keeps 32 bits of its seed, and two seeds would share their tapes.
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, request))))
    return torch.from_numpy(random.standard_normal(shape, dtype=np.float32))


def noise_of(policy: Policy, seed: int) -> NoiseTape:
    """The noise of one environment's requests, [1, *noise_shape]."""
    return lambda request: noise_tape(policy.noise_shape, seed, request)[None]


class NoiseBuffer:
    """Where a captured stage reads the noise of a request: `buffer` [batch, *noise_shape]. batch: environments of all
    requests that begin together. For a policy without noise nothing is copied."""

    def __init__(self, policy: Policy, device: Device, copies: Lane, batch: int) -> None:
        self.buffer = torch.zeros((batch, *policy.noise_shape), device=device.tensors)
        self._upload = Upload("copy noise", device, copies, (self.buffer,)) if self.buffer.numel() else None

    def send(self, noise: Tensor) -> Sequence[Mark]:
        """Launch the copy of a new request's noise; the caller may use `noise` again at once. Returns the marks to wait
        for before the buffer is read."""
        return () if self._upload is None else (self._upload.send((noise,)),)
