"""A request's noise at a fixed address, so that a captured stage can read it.

It is copied from the host as observations are: by a stage on the lane for copies (`device.staging`), so that the host
does not wait. For a policy without noise nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from auras_ros.device import Device, Lane, Mark, Upload
from auras_ros.policies.policy import Policy


class Drawn:
    """batch: environments of all requests that begin together. `buffer` [batch, *noise_shape]."""

    def __init__(self, policy: Policy, device: Device, copies: Lane, batch: int) -> None:
        self.buffer = torch.zeros((batch, *policy.noise_shape), device=device.tensors)
        self._upload = Upload("copy noise", device, copies, (self.buffer,)) if self.buffer.numel() else None
        self._sent: tuple[Mark, ...] = ()

    def send(self, noise: Tensor) -> Sequence[Mark]:
        """Launch the copy of a new request's noise; the caller may use `noise` again at once. Returns the marks to wait
        for before the buffer is read."""
        if self._upload is not None:
            self._sent = (self._upload.send((noise,)),)
        return self._sent
