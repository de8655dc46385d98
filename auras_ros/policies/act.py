"""ACT as a policy: backbone and transformer encoder are perception, the decoder is the one step of generation.

The public context is the encoder's memory. Its positions depend on no observation and stay with the networks, where
the step finds them at their fixed address. Pure functions of tensors: every method can be captured and replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from auras_ros.checkpoints import limits
from auras_ros.models.act import ActConfig, ActDecoder, ActEncoder
from auras_ros.models.resnet import ResNet18
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.family import Trained
from auras_ros.policies.perception import PerceptionBlock
from auras_ros.policies.precision import like_weights, mark

SIZES = {"width", "heads", "hidden", "encoder_layers", "decoder_layers", "latent", "activation", "pre_norm"}
BACKBONE = {"type", "width", "depth", "norm"}


class ActState(NamedTuple):
    """The chunk, normalised: [B, horizon, actions]; zero before the step."""

    actions: Tensor


class ActPolicy(nn.Module):
    """encoder -> memory -> decoder. center, scale: float64 [channels]; an action is center + scale * the network's.
    chunk: which of the horizon's actions `finish` gives."""

    steps = 1

    def __init__(
        self,
        encoder: ActEncoder,
        decoder: ActDecoder,
        center: Tensor,
        scale: Tensor,
        architecture: Architecture,
        chunk: slice,
    ) -> None:
        super().__init__()
        self.encoder, self.decoder, self.architecture, self._chunk = encoder, decoder, architecture, chunk
        self._center, self._scale = center.double(), scale.double()
        mark(self, decoder)

    @property
    def noise_shape(self) -> tuple[int]:
        return (0,)  # the latent is zero: nothing is drawn

    def example(self, batch: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Random images and state of this policy's shapes."""
        return self.architecture.example(batch, generator)

    @torch.no_grad()
    def perceive(self, images: Tensor, state: Tensor) -> Tensor:
        """-> the encoder's memory [B, T, width]."""
        memory: Tensor = self.encoder(*self._newest(images, state))
        return memory

    def _newest(self, images: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return like_weights(self, images[:, -1]), like_weights(self, state[:, -1])

    def perception_blocks(self) -> list[PerceptionBlock]:
        """`perceive` in parts: chained on (images, state) they give its context, bit for bit."""
        newest = PerceptionBlock("newest", self._newest)
        return [newest, *(PerceptionBlock(name, torch.no_grad()(body)) for name, body in self.encoder.blocks())]

    def begin(self, noise: Tensor) -> ActState:
        shape = len(noise), self.architecture.horizon, self.architecture.actions
        return ActState(torch.zeros(shape, device=noise.device))

    @torch.no_grad()
    def step(self, state: ActState, context: Tensor, index: Tensor) -> ActState:
        return ActState(self.decoder(context, self.encoder.positions()).to(state.actions.dtype))

    def finish(self, state: ActState) -> Tensor:
        return self._center + self._scale * state.actions[:, self._chunk].double()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ActPolicy:
        """The normalisation follows the networks to their device, and stays float64."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = fn(torch.empty(0, device=self._center.device)).device
        self._center, self._scale = self._center.to(device), self._scale.to(device)
        return self


class Act:
    """The family. encoder: the backbone (`models.resnet`: width, depth, norm). network: `models.act.ActConfig`. A plan
    has no settings: there is one step."""

    def networks(self, encoder: Any, network: Any, architecture: Architecture) -> nn.ModuleDict:
        if not isinstance(encoder, Mapping) or not isinstance(network, Mapping):
            raise TypeError("encoder and network must be objects")
        for part, described, known in (("encoder", encoder, BACKBONE), ("network", network, SIZES)):
            for key in sorted(described.keys() - known):
                raise ValueError(f"{part}: '{key}' is unknown")
        if type(architecture.horizon) is not int or architecture.horizon < 1:
            raise ValueError(f"horizon: {architecture.horizon!r} is not a whole number above zero")
        if architecture.history != 1 or architecture.cameras < 1:
            raise ValueError("act: needs one or more cameras and a history of 1")
        if encoder.get("type", "resnet18") != "resnet18":
            raise ValueError(f"encoder: type {encoder['type']!r} is not known; known: resnet18")
        for key in ("encoder_layers", "decoder_layers"):
            limits.most(f"network: {key}", network.get(key), limits.LAYERS)
        config = ActConfig(**network)
        backbone = ResNet18(**{key: value for key, value in encoder.items() if key != "type"})
        seen = ActEncoder(config, backbone, architecture.cameras, architecture.state, architecture.image_px)
        return nn.ModuleDict(
            {"encoder": seen, "decoder": ActDecoder(config, architecture.horizon, architecture.actions)}
        )

    def policy(self, networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any]) -> ActPolicy:
        for key in sorted(settings):
            raise ValueError(f"key '{key}' is unknown")
        encoder, decoder = networks["encoder"], networks["decoder"]
        assert isinstance(encoder, ActEncoder)
        assert isinstance(decoder, ActDecoder)
        return ActPolicy(encoder, decoder, trained.center, trained.scale, trained.architecture, trained.chunk)
