"""Inputs and outputs of every policy: sizes that its networks, its manifest and its examples share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Architecture:
    """Inputs and outputs of a policy. image_px: (height, width) of the encoder's input, after any crop."""

    name: str
    cameras: int
    image_px: tuple[int, int]
    history: int  # observation steps
    state: int  # numbers of the robot's state, one observation step
    horizon: int
    actions: int  # channels of one action
    channels: int = 3  # of an image

    def instant(self, features: int) -> int:
        """Numbers that describe one instant: `features` of each camera, and the state."""
        return self.cameras * features + self.state

    def example(self, batch: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Random (images [batch, history, cameras, channels, h, w], state [batch, history, state]), on the generator's
        device."""
        device = None if generator is None else generator.device
        shape = (batch, self.history, self.cameras, self.channels, *self.image_px)
        images = torch.randn(shape, generator=generator, device=device)
        return images, torch.randn((batch, self.history, self.state), generator=generator, device=device)
