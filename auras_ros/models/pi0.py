"""The pi0 layout (Black et al. 2024): SigLIP and Gemma read pictures and prompt, an action expert reads their keys and
values.

Pictures and prompt see one another in both directions and never what follows, so what the expert needs of them is one
tensor: the keys and values of all layers, and which tokens are there. With the robot's state behind them, which enters
with the actions, it is the public context. pi0.5 (Physical Intelligence 2025) is the same with `adaptive`: its state
stands in the prompt, and the time in the expert's norms. Which pictures, which prompt and how many steps is the
policy's matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from auras_ros.models.flow_context import pack, places, unpack
from auras_ros.models.flow_expert import ActionExpert, AdaptiveExpert
from auras_ros.models.kv_cache import attention
from auras_ros.models.llama import Llama, LlamaConfig, LlamaDecoderLayer
from auras_ros.models.rotary import rotary, rotate
from auras_ros.models.vision_language import Block, SeeingLanguage
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

    @property
    def expert_state(self) -> int:
        """Numbers of the state that the expert takes."""
        return 0 if self.adaptive else self.state


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
        self.expert: ActionExpert | AdaptiveExpert = (
            AdaptiveExpert(config.expert, config.actions)
            if config.adaptive
            else ActionExpert(config.expert, config.state, config.actions)
        )

    @property
    def dtype(self) -> torch.dtype:
        """In which it computes; actions and contexts may come in another."""
        return self.expert.action_in_proj.weight.dtype

    def join(self, seen: Tensor, prompt: Tensor, there: Tensor, batch: int) -> tuple[Tensor, Tensor]:
        """Patches of each row's cameras [batch * cameras, patches, width], then the prompt int64 [batch or 1, ids], of
        which `there` (bool, as it) are there -> the prefix [batch, P, width] and which of it is there [batch, P]."""
        seen = seen.reshape(batch, -1, seen.shape[-1])
        pictures = torch.ones(seen.shape[:2], dtype=torch.bool, device=seen.device)
        return self.prefix(seen, prompt[:, :0], prompt), torch.cat([pictures, there.expand(batch, -1)], 1)

    def layer(self, index: int, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """One layer over the whole prefix: what it hands on and its keys and values, [B, 2, kv_heads, P, head_dim]."""
        return prefix_layer(self.language, index, x, valid, valid[:, None, None])

    def context(self, kept: tuple[Tensor, ...], valid: Tensor, state: Tensor) -> Tensor:
        """What every layer kept and the robot's state [B, D] -> [B, C]. Raises ValueError by D."""
        try:
            return pack(kept, state[:, : 0 if self.config.adaptive else None], valid, self.config.expert_state)
        except ValueError as error:
            raise ValueError(f"pi0: {error}") from None

    def prefix_blocks(self) -> list[tuple[str, Block]]:
        """(x, valid, state) -> (x, what each layer kept, valid, state) -> ... -> (context,)."""
        return prefix_blocks(self.config.language.layers, self.layer, self.context)

    def velocity(self, sample: Tensor, time: Tensor, context: Tensor) -> Tensor:
        """sample [B, horizon, actions], time [B] from 1, noise, to 0, data, context [B, C] -> as sample."""
        prefix, state = unpack(context.to(self.dtype), self.config.language, self.config.expert_state)
        out: Tensor = self.expert(sample.to(self.dtype), time, state, prefix)
        return out.to(sample.dtype)


def check_keys(model: str, large: LlamaConfig, small: LlamaConfig) -> None:
    """Raise ValueError, naming the size, where the expert cannot read the language model's keys."""
    for name in ("layers", "kv_heads", "size_of_head", "rope_theta", "rope_scaling"):
        one, other = getattr(large, name), getattr(small, name)
        if one != other:
            raise ValueError(f"{model}: {name}: {one} in the language model, {other} in the expert that reads its keys")


def prefix_layer(language: Llama, index: int, x: Tensor, valid: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """One layer of a decoder over a prefix [B, P, width], of which `visible` [B, 1, 1 or P, P] is seen: what it hands
    on and its keys and values, [B, 2, kv_heads, P, head_dim].

    Of the last layer only keys and values are computed, because nobody reads the rest: x comes back as it was.
    """
    each, config = language.layers[index], language.config
    assert isinstance(each, LlamaDecoderLayer)
    angles = rotary(places(valid), config.size_of_head, config.rope_theta, config.rope_scaling, x.dtype)
    if index + 1 == config.layers:
        normed = each.input_layernorm(x)
        parts = [part(normed) for part in (each.self_attn.k_proj, each.self_attn.v_proj)]
        key, value = (part.unflatten(-1, (config.kv_heads, -1)).transpose(1, 2) for part in parts)
        return x, torch.stack([rotate(key, angles), value], 1)
    kept: list[Tensor] = []

    def attend(_layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        kept.append(torch.stack([key, value], 1))
        return attention(query, key, value, visible)

    return each(x, angles, attend), kept[0]


def prefix_blocks(
    layers: int, layer: Block, context: Callable[[tuple[Tensor, ...], Tensor, Tensor], Tensor]
) -> list[tuple[str, Block]]:
    """A decoder's layers and the end of perception as blocks, by name; see `Pi0.prefix_blocks`."""

    def part(index: int) -> Block:
        def run(x: Tensor, *carried: Tensor) -> tuple[Tensor, ...]:
            *kept, valid, state = carried
            x, now = layer(index, x, valid)
            return (x, *kept, now, valid, state)

        return run

    def end(_x: Tensor, *carried: Tensor) -> tuple[Tensor, ...]:
        *kept, valid, state = carried
        return (context(tuple(kept), valid, state),)

    return [*((f"language.layers.{i}", part(i)) for i in range(layers)), ("context", end)]
