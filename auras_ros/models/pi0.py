"""The pi0 layout (Black et al. 2024): SigLIP and Gemma read pictures and prompt, an action expert reads their keys and
values.

Pictures and prompt see one another in both directions and never what follows, so what the expert needs of them is one
tensor: the keys and values of all layers. With the robot's state behind them, which enters with the actions, it is the
public context. Nothing is padded: a prompt has a fixed length and every camera a picture. Which pictures, which prompt
and how many steps is the policy's matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from auras_ros.models.flow_expert import ActionExpert
from auras_ros.models.kv_cache import attention
from auras_ros.models.llama import DecoderLayer, Llama, LlamaConfig
from auras_ros.models.rotary import rotary, rotate
from auras_ros.models.vision_language import Block, SeeingLanguage
from auras_ros.models.vit import Vit, VitConfig


@dataclass(frozen=True)
class Pi0Config:
    """Both decoders have as many layers and keys of the same shape. state, actions: numbers of the robot's state and of
    one action as the networks take them; robots with fewer fill up with zeros. Raises ValueError, naming the size."""

    vision: VitConfig
    language: LlamaConfig
    expert: LlamaConfig
    horizon: int = 50
    state: int = 32
    actions: int = 32

    def __post_init__(self) -> None:
        for name in ("horizon", "state", "actions"):
            if getattr(self, name) < 1:
                raise ValueError(f"pi0: {name}: {getattr(self, name)} is less than 1")
        for name in ("layers", "kv_heads", "size_of_head", "rope_theta", "rope_scaling"):
            large, small = getattr(self.language, name), getattr(self.expert, name)
            if large != small:
                raise ValueError(
                    f"pi0: {name}: {large} in the language model, {small} in the expert that reads its keys"
                )


class PatchProjector(nn.Module):
    """SigLIP's last norm and PaliGemma's projection: patches [..., features] -> [..., width]."""

    def __init__(self, vision: VitConfig, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(vision.width, vision.norm_eps)
        self.linear = nn.Linear(vision.width, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(self.norm(x))
        return out


class Pi0(SeeingLanguage):
    """`vision`, `projector` and `language` make the context of images, prompt and state; `expert` is the velocity."""

    language: Llama

    def __init__(self, config: Pi0Config) -> None:
        projector = PatchProjector(config.vision, config.language.width)
        super().__init__(Vit(config.vision), projector, Llama(config.language))
        self.config = config
        self.expert = ActionExpert(config.expert, config.state, config.actions)

    @property
    def dtype(self) -> torch.dtype:
        """In which it computes; actions and contexts may come in another."""
        return self.expert.action_in_proj.weight.dtype

    def join(self, seen: Tensor, prompt: Tensor, batch: int) -> Tensor:
        """Patches of each row's cameras [batch * cameras, patches, width], then the prompt int64 [batch or 1, ids] ->
        the prefix [batch, P, width]."""
        return self.prefix(seen.reshape(batch, -1, seen.shape[-1]), prompt[:, :0], prompt)

    def layer(self, index: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """One layer over the whole prefix: what it hands on and its keys and values, [B, 2, kv_heads, P, head_dim].

        Of the last layer only keys and values are computed, because nobody reads the rest: x comes back as it was.
        """
        each, config = self.language.layers[index], self.config.language
        assert isinstance(each, DecoderLayer)
        places = torch.arange(x.shape[1], device=x.device)
        angles = rotary(places, config.size_of_head, config.rope_theta, config.rope_scaling, x.dtype)
        if index + 1 == config.layers:
            normed = each.input_layernorm(x)
            parts = [part(normed) for part in (each.self_attn.k_proj, each.self_attn.v_proj)]
            key, value = (part.unflatten(-1, (config.kv_heads, -1)).transpose(1, 2) for part in parts)
            return x, torch.stack([rotate(key, angles), value], 1)
        kept: list[Tensor] = []

        def attend(_layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            kept.append(torch.stack([key, value], 1))
            return attention(query, key, value, causal=False)

        return each(x, angles, attend), kept[0]

    def context(self, kept: tuple[Tensor, ...], state: Tensor) -> Tensor:
        """Keys and values of every layer and the robot's state [B, D] -> [B, C]. Raises ValueError by D."""
        missing = self.config.state - state.shape[-1]
        if missing < 0:
            raise ValueError(f"pi0: state: {state.shape[-1]} numbers, but the network takes {self.config.state}")
        return torch.cat([torch.stack(kept, 1).flatten(1), F.pad(state, (0, missing)).to(kept[0].dtype)], 1)

    def prefix_blocks(self) -> list[tuple[str, Block]]:
        """From the prefix to the context in parts: (x, state) -> (x, what each layer kept, state) -> (context,)."""

        def part(index: int) -> Block:
            def run(x: Tensor, *carried: Tensor) -> tuple[Tensor, ...]:
                x, now = self.layer(index, x)
                return (x, *carried[:-1], now, carried[-1])

            return run

        named = [(f"language.layers.{i}", part(i)) for i in range(self.config.language.layers)]
        return [*named, ("context", lambda _x, *carried: (self.context(carried[:-1], carried[-1]),))]

    def velocity(self, sample: Tensor, time: Tensor, context: Tensor) -> Tensor:
        """sample [B, horizon, actions], time [B] from 1, noise, to 0, data, context [B, C] -> as sample."""
        config = self.config.language
        context = context.to(self.dtype)
        state = context[:, context.shape[1] - self.config.state :]
        kept = context[:, : context.shape[1] - self.config.state]
        prefix = kept.unflatten(1, (config.layers, 2, config.kv_heads, -1, config.size_of_head))
        out: Tensor = self.expert(sample.to(self.dtype), time, state, prefix)
        return out.to(sample.dtype)
