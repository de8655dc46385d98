"""The pi0 layout (Black et al. 2024): SigLIP and Gemma read pictures and prompt, an action expert reads their keys and
values.

Pictures and prompt see one another in both directions and never what follows, so what the expert needs of them is one
tensor: the keys and values of all layers, and which tokens are there. With the robot's state behind them, which enters
with the actions, it is the public context. pi0.5 (Physical Intelligence 2025) is the same with `adaptive`: its state
stands in the prompt, and the time in the expert's norms. Which pictures, which prompt and how many steps is the
policy's matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from auras_ros.models.blocks import named
from auras_ros.models.flow_expert import ActionExpert, AdaptiveExpert
from auras_ros.models.flow_model import FlowModel, check_keys
from auras_ros.models.llama import Llama, LlamaConfig
from auras_ros.models.vit import Vit, VitConfig


@dataclass(frozen=True)
class Pi0Config:
    """Both decoders have as many layers and keys of the same shape. state, actions: numbers of the robot's state and of
    one action as the networks take them; robots with fewer fill up with zeros. adaptive: pi0.5, whose expert takes no
    state. Raises ValueError, naming the size."""

    vision: VitConfig
    language: LlamaConfig
    expert: LlamaConfig
    horizon: int = 50
    state: int = 32
    actions: int = 32
    adaptive: bool = False

    def __post_init__(self) -> None:
        for name in ("horizon", "state", "actions"):
            if getattr(self, name) < 1:
                raise ValueError(f"pi0: {name}: {getattr(self, name)} is less than 1")
        check_keys("pi0", self.language, self.expert)


class Pi0(FlowModel):
    """`vision`, `projector` and `language` make the context of images, prompt and state; `expert` is the velocity."""

    def __init__(self, config: Pi0Config) -> None:
        vision, width = config.vision, config.language.width
        norm, linear = nn.LayerNorm(vision.width, vision.norm_eps), nn.Linear(vision.width, width)  # SigLIP's last norm
        super().__init__(Vit(vision), named(norm=norm, linear=linear), Llama(config.language))
        self.config, self.states = config, 0 if config.adaptive else config.state
        if config.adaptive:
            self.expert = AdaptiveExpert(config.expert, config.actions)
        else:
            self.expert = ActionExpert(config.expert, config.state, config.actions)

    def join(self, seen: Tensor, prompt: Tensor, there: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Patches of each row's cameras [batch * cameras, patches, width], then the prompt int64 [batch or 1, ids], of
        which `there` (bool, as it) are there -> the prefix [batch, P, width] and which of it is there [batch, P]."""
        batch = len(state)  # what is in it goes on to the expert
        seen = seen.reshape(batch, -1, seen.shape[-1])
        pictures = torch.ones(seen.shape[:2], dtype=torch.bool, device=seen.device)
        return self.prefix(seen, prompt[:, :0], prompt), torch.cat([pictures, there.expand(batch, -1)], 1)

    def layer(self, index: int, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """One layer over the whole prefix: what it hands on and its keys and values, [B, 2, kv_heads, P, head_dim]."""
        return self.prefix_layer(index, x, valid, valid[:, None, None])
