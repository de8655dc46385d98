"""What pi0, pi0.5 and SmolVLA have in common: an action expert attends to a language model's keys and values.

Perception runs the language model's layers over the prefix and keeps each layer's keys and values. Together with the
robot's state and the mask of the prefix they are the public context, one tensor. Generation runs only the expert.
"""

from __future__ import annotations

import torch
from torch import Tensor

from auras_ros.models.blocks import Block, Blocks
from auras_ros.models.flow_context import pack, padded, places, unpack
from auras_ros.models.flow_expert import AdaptiveExpert, TimedExpert
from auras_ros.models.kv_cache import attention
from auras_ros.models.llama import Llama, LlamaConfig, LlamaDecoderLayer
from auras_ros.models.rotary import rotary, rotate
from auras_ros.models.vision_language import SeeingLanguage


class FlowModel(SeeingLanguage):
    """`vision`, `projector` and `language` make the context of images, prompt and state; `expert` gives the velocity.
    states: how many numbers of the robot's state the expert takes beside the prefix."""

    language: Llama
    expert: TimedExpert | AdaptiveExpert
    states: int

    @property
    def dtype(self) -> torch.dtype:
        """The type of the computation; actions and contexts may have another."""
        return self.expert.action_in_proj.weight.dtype

    def layer(self, index: int, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """One layer over the whole prefix [B, P, width] with its mask `valid` [B, P]: the layer's output, and what the
        expert's layer reads of it."""
        raise NotImplementedError

    def prefix_layer(self, index: int, x: Tensor, valid: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        """The language model's layer over the prefix, of which `visible` [B, 1, 1 or P, P] is seen: its output, and its
        keys and values [B, 2, kv_heads, P, head_dim].

        The last layer computes only keys and values, because nothing reads the rest: x is returned unchanged.
        """
        each, config = self.language.layers[index], self.language.config
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

    def prefix_blocks(self) -> Blocks:
        """(x, valid, state) -> (x, what each layer kept, valid, state) -> ... -> (context,)."""
        layers = [(f"language.layers.{i}", self._part(i)) for i in range(self.language.config.layers)]
        return [*layers, ("context", self._context)]

    def velocity(self, sample: Tensor, time: Tensor, context: Tensor) -> Tensor:
        """sample [B, horizon, actions], time [B] (1: noise, 0: data), context [B, C] -> velocity, like sample."""
        prefix, state = unpack(context.to(self.dtype), self.language.config, self.states)
        out: Tensor = self.expert(sample.to(self.dtype), time, state, prefix)
        return out.to(sample.dtype)

    def _part(self, index: int) -> Block:
        def run(x: Tensor, *carried: Tensor) -> tuple[Tensor, ...]:
            *kept, valid, state = carried
            x, now = self.layer(index, x, valid)
            return (x, *kept, now, valid, state)

        return run

    def _context(self, _x: Tensor, *carried: Tensor) -> tuple[Tensor, ...]:
        *kept, valid, state = carried
        own = padded(state, self.states, "pi0") if self.states else state[:, :0]
        return (pack(kept, own, valid),)


def check_keys(model: str, large: LlamaConfig, small: LlamaConfig) -> None:
    """Raise ValueError, naming the size, if the expert cannot read the language model's keys."""
    for name in ("layers", "kv_heads", "size_of_head", "rope_theta", "rope_scaling"):
        one, other = getattr(large, name), getattr(small, name)
        if one != other:
            raise ValueError(f"{model}: {name}: {one} in the language model, {other} in the expert that reads its keys")
