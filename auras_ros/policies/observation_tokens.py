"""The prefix of a small autoregressive policy: each instant of the observation as a few embeddings.

One encoder serves all cameras and instants, as in `diffusion`; a linear map makes `tokens` embeddings of an instant's
features and state. Nothing here knows the tokens that follow.
"""

from __future__ import annotations

from torch import Tensor, nn

from auras_ros.models.blocks import Blocks, alone
from auras_ros.policies.networks import Encoder, PerCamera
from auras_ros.policies.perception import cut, encode
from auras_ros.policies.precision import mark


class ObservationTokens(nn.Module):
    """Images [B, history, cameras, 3, h, w] and state [B, history, D] -> [B, history * tokens, width]."""

    def __init__(self, encoder: Encoder | PerCamera, history: int, inputs: int, tokens: int, width: int) -> None:
        """inputs: cameras * features + D of one instant."""
        super().__init__()
        self.encoder, self.history, self._shape = encoder, history, (tokens, width)
        self.embed = nn.Linear(inputs, tokens * width)
        mark(self, self.embed)

    def forward(self, images: Tensor, state: Tensor) -> Tensor:
        return self.tokens(encode(self.encoder, self, images, state))

    @property
    def segments(self) -> tuple[int, ...]:
        """One: the state is in all of them."""
        return (self.history * self._shape[0],)

    def blocks(self) -> Blocks:
        return [*((block.name, block) for block in cut(self.encoder, self)), ("embed", alone(self.tokens))]

    def tokens(self, condition: Tensor) -> Tensor:
        """Features and state of all instants, [B, history * inputs] -> [B, history * tokens, width]."""
        embedded: Tensor = self.embed(condition.unflatten(1, (self.history, -1)))
        tokens: Tensor = embedded.unflatten(2, self._shape).flatten(1, 2)
        return tokens
