"""The pi0 layout (Black et al. 2024): SigLIP and Gemma process images and prompt, an action expert reads their keys and
values.

Images and prompt attend to one another in both directions and never to what follows, so the expert needs one tensor of
them: the keys and values of all layers, and a mask of the tokens. Together with the robot's state, which enters with
the actions, it is the public context. pi0.5 (Physical Intelligence 2025) is the same with `adaptive`: its state is in
the prompt, and the time in the expert's norms. The policy chooses the images, the prompt and the number of steps.
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
    """Both decoders have the same number of layers and keys of the same shape. state, actions: numbers of the robot's
    state and of one action in the networks; for robots with fewer they are padded with zeros. adaptive: pi0.5, whose
    expert takes no state. Raises ValueError, naming the size."""

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
    """`vision`, `projector` and `language` make the context of images, prompt and state, `expert` the velocity."""

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
        """Patches of each row's cameras [batch * cameras, patches, width], then the prompt int64 [batch or 1, ids] with
        its mask `there` (bool, same shape) -> the prefix [batch, P, width] and its mask [batch, P]."""
        batch = len(state)  # the state itself goes to the expert
        seen = seen.reshape(batch, -1, seen.shape[-1])
        pictures = torch.ones(seen.shape[:2], dtype=torch.bool, device=seen.device)
        return self.prefix(seen, prompt[:, :0], prompt), torch.cat([pictures, there.expand(batch, -1)], 1)

    def layer(self, index: int, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """One layer over the whole prefix: its output, and its keys and values [B, 2, kv_heads, P, head_dim]."""
        return self.prefix_layer(index, x, valid, valid[:, None, None])
