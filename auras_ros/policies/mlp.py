"""Behaviour cloning as a policy: the encoder is perception, a multi-layer perceptron the only step of generation.

A chunk is one action. Where the network gives a mixture, the noise tape draws one of its modes and the small noise
around it, as robomimic does when it plays. Pure functions of tensors: every method can be captured and replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from auras_ros.checkpoints.limits import LAYERS, most
from auras_ros.models.action_mlp import ActionMlp
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.family import Trained, check_keys, counted, known
from auras_ros.policies.module import NormalisedPolicy
from auras_ros.policies.networks import build_encoder
from auras_ros.policies.perception import PerceptionBlock, cut, encode
from auras_ros.policies.precision import mark

MODE_STD = 1e-4  # around a mode's mean, where a mixture is played (robomimic's `low_noise_eval`)


class MlpState(NamedTuple):
    """tape: [B, 1 + actions]. actions: [B, 1, actions], zero before the step."""

    tape: Tensor
    actions: Tensor


class MlpPolicy(NormalisedPolicy):
    """encoder: [N, 3, h, w] -> [N, F]. network: see `ActionMlp`. mixture: whether modes are drawn."""

    steps = 1

    def __init__(self, encoder: nn.Module, network: ActionMlp, trained: Trained) -> None:
        super().__init__(trained)
        self.encoder, self.network, self._mixture = encoder, network, network.logits is not None
        mark(self, network)

    @property
    def noise_shape(self) -> tuple[int]:
        return (1 + self.architecture.actions if self._mixture else 0,)

    @torch.no_grad()
    def perceive(self, images: Tensor, state: Tensor) -> Tensor:
        return encode(self.encoder, self, images, state)

    def perception_blocks(self) -> list[PerceptionBlock]:
        """`perceive` in parts: chained on (images, state) they give its context, bit for bit."""
        return cut(self.encoder, self)

    def begin(self, noise: Tensor) -> MlpState:
        return MlpState(noise, torch.zeros(len(noise), 1, self.architecture.actions, device=noise.device))

    @torch.no_grad()
    def step(self, state: MlpState, context: Tensor, index: Tensor) -> MlpState:
        means, logits = (each.to(state.actions.dtype) for each in self.network(context))
        if not self._mixture:
            return MlpState(state.tape, means)
        # The mode whose share of the distribution holds the tape's first number.
        place = torch.special.ndtr(state.tape[:, :1])
        mode = (logits.softmax(-1).cumsum(-1)[:, :-1] < place).sum(-1)
        mean = means.gather(1, mode.view(-1, 1, 1).expand(-1, 1, means.shape[-1]))
        return MlpState(state.tape, mean + MODE_STD * state.tape[:, None, 1:])

    def finish(self, state: MlpState) -> Tensor:
        return self.physical(state.actions)


class BehaviourCloning:
    """The family. encoder: as in `networks`. network: `hidden`, and `modes` if it gives a mixture. A plan has no
    settings: there is one step."""

    def networks(self, encoder: Any, network: Any, architecture: Architecture) -> nn.ModuleDict:
        check_keys(network, {"hidden"}, {"modes"})
        hidden, modes = network["hidden"], network.get("modes")
        if not isinstance(hidden, list) or not hidden:
            raise ValueError(f"network: hidden: {hidden!r} is not a list of widths")
        most("network: layers of hidden", len(hidden), LAYERS)
        for width in hidden:
            counted("network: hidden", width)
        if modes is not None:
            counted("network: modes", modes)
        if architecture.horizon != 1:
            raise ValueError(f"horizon: {architecture.horizon!r} is not 1: this network gives one action")
        seen = build_encoder(encoder, architecture.cameras)
        condition = architecture.history * architecture.instant(seen.features)
        return nn.ModuleDict({"encoder": seen, "network": ActionMlp(architecture.actions, condition, hidden, modes)})

    def policy(self, networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any]) -> MlpPolicy:
        known(settings)
        network = networks["network"]
        assert isinstance(network, ActionMlp)
        return MlpPolicy(networks["encoder"], network, trained)
