"""ACT as a policy: backbone and transformer encoder are perception, the decoder is the only step of generation.

The public context is the encoder's memory. Its positions do not depend on the observation: they stay with the networks,
at a fixed address. Pure functions of tensors: every method can be captured and replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from auras_ros.models.act import ActConfig, ActDecoder, ActEncoder
from auras_ros.models.resnet import ResNet18
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.family import Trained, counted, known
from auras_ros.policies.module import NormalisedPolicy
from auras_ros.policies.perception import PerceptionBlock, without_grad
from auras_ros.policies.precision import like_weights, mark

SIZES = {"width", "heads", "hidden", "encoder_layers", "decoder_layers", "latent", "activation", "pre_norm"}
BACKBONE = {"type", "width", "depth", "norm"}


class ActState(NamedTuple):
    """The chunk, normalised: [B, horizon, actions]; zero before the step."""

    actions: Tensor


class ActPolicy(NormalisedPolicy):
    """encoder -> memory -> decoder."""

    steps = 1

    def __init__(self, encoder: ActEncoder, decoder: ActDecoder, trained: Trained) -> None:
        super().__init__(trained)
        self.encoder, self.decoder = encoder, decoder
        mark(self, decoder)

    @property
    def noise_shape(self) -> tuple[int]:
        return (0,)  # the latent is zero: nothing is drawn

    @torch.no_grad()
    def perceive(self, images: Tensor, state: Tensor) -> Tensor:
        """-> the encoder's memory [B, T, width]."""
        memory: Tensor = self.encoder(*self._newest(images, state))
        return memory

    def _newest(self, images: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return like_weights(self, images[:, -1]), like_weights(self, state[:, -1])

    def perception_blocks(self) -> list[PerceptionBlock]:
        """`perceive` in parts: chained on (images, state) they give its context, bit for bit."""
        return [PerceptionBlock("newest", self._newest), *without_grad(self.encoder.blocks())]

    def begin(self, noise: Tensor) -> ActState:
        shape = len(noise), self.architecture.horizon, self.architecture.actions
        return ActState(torch.zeros(shape, device=noise.device))

    @torch.no_grad()
    def step(self, state: ActState, context: Tensor, index: Tensor) -> ActState:
        return ActState(self.decoder(context, self.encoder.positions()).to(state.actions.dtype))

    def finish(self, state: ActState) -> Tensor:
        return self.physical(state.actions)


class Act:
    """The family. encoder: the backbone (`models.resnet`: width, depth, norm). network: `models.act.ActConfig`. A plan
    has no settings: there is one step."""

    def networks(self, encoder: Any, network: Any, architecture: Architecture) -> nn.ModuleDict:
        if not isinstance(encoder, Mapping) or not isinstance(network, Mapping):
            raise TypeError("encoder and network must be objects")
        known(encoder, BACKBONE, "encoder: ")
        known(network, SIZES, "network: ")
        counted("horizon", architecture.horizon)
        if architecture.history != 1 or architecture.cameras < 1:
            raise ValueError("act: needs one or more cameras and a history of 1")
        if encoder.get("type", "resnet18") != "resnet18":
            raise ValueError(f"encoder: type {encoder['type']!r} is not known; known: resnet18")
        config = ActConfig(**network)
        backbone = ResNet18(**{key: value for key, value in encoder.items() if key != "type"})
        seen = ActEncoder(config, backbone, architecture.cameras, architecture.state, architecture.image_px)
        decoder = ActDecoder(config, architecture.horizon, architecture.actions)
        return nn.ModuleDict({"encoder": seen, "decoder": decoder})

    def policy(self, networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any]) -> ActPolicy:
        known(settings)
        encoder, decoder = networks["encoder"], networks["decoder"]
        assert isinstance(encoder, ActEncoder)
        assert isinstance(decoder, ActDecoder)
        return ActPolicy(encoder, decoder, trained)
