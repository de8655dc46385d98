"""LeRobot's pi0 and pi0.5 ask for a changed transformers; these are its changes, for a transformers that has none.

What is changed: Gemma does not multiply its embeddings by the square root of the width, and PaliGemma does not divide
its pictures by it; norms take a condition, from which a linear layer makes scale, shift and gate, and residuals are
added through the gate. `Model` was compared with the class that LeRobot 0.6.1 has for the same (`PiGemmaModel`), with
and without a condition: equal bit for bit.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import torch
from torch import nn
from transformers.models.gemma import modeling_gemma
from transformers.models.paligemma import modeling_paligemma


class Norm(nn.Module):
    """Gemma's norm; with a condition, an adaptive one."""

    def __init__(self, width: int, eps: float = 1e-6, condition: int | None = None) -> None:
        super().__init__()
        self.eps = eps
        self.dense = None
        if condition is None:
            self.weight = nn.Parameter(torch.zeros(width))
        else:
            self.dense = nn.Linear(condition, 3 * width)

    def forward(self, x: torch.Tensor, cond: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
        normed = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        if self.dense is None:
            return (normed * (1 + self.weight.float())).to(x.dtype), None
        scale, shift, gate = self.dense(cond).unsqueeze(1).chunk(3, dim=-1)
        return (normed * (1 + scale.float()) + shift.float()).to(x.dtype), gate.to(x.dtype)


def gated(x: torch.Tensor, y: torch.Tensor, gate: torch.Tensor | None) -> torch.Tensor:
    return x + y if gate is None else x + y * gate


class Layer(nn.Module):
    def __init__(self, config: Any, layer_idx: int) -> None:
        super().__init__()
        condition = getattr(config, "adarms_cond_dim", None)
        self.self_attn = modeling_gemma.GemmaAttention(config=config, layer_idx=layer_idx)
        self.mlp = modeling_gemma.GemmaMLP(config)
        self.input_layernorm = Norm(config.hidden_size, config.rms_norm_eps, condition)
        self.post_attention_layernorm = Norm(config.hidden_size, config.rms_norm_eps, condition)

    def forward(self, x: torch.Tensor, cond: torch.Tensor | None, **rest: Any) -> torch.Tensor:
        normed, gate = self.input_layernorm(x, cond)
        x = gated(x, self.self_attn(hidden_states=normed, **rest)[0], gate)
        normed, gate = self.post_attention_layernorm(x, cond)
        return gated(x, self.mlp(normed), gate)


class Model(modeling_gemma.GemmaPreTrainedModel):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.num_hidden_layers))
        self.norm = Norm(config.hidden_size, config.rms_norm_eps, getattr(config, "adarms_cond_dim", None))
        self.rotary_emb = modeling_gemma.GemmaRotaryEmbedding(config=config)

    def get_input_embeddings(self) -> Any:
        return self.embed_tokens

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        past_key_values: Any = None,
        use_cache: bool = False,
        adarms_cond: torch.Tensor | None = None,
    ) -> Any:
        """Keys of the prefix are made where use_cache is set, and read, never added to, where it is not."""
        cache = past_key_values
        if use_cache:
            cache = modeling_gemma.DynamicCache(config=self.config)
        elif cache is not None:
            cache = ReadOnly(cache)
        x, angles = inputs_embeds, self.rotary_emb(inputs_embeds, position_ids)
        for layer in self.layers:
            x = layer(
                x,
                adarms_cond,
                attention_mask=attention_mask,
                past_key_values=cache,
                position_embeddings=angles,
            )
        return types.SimpleNamespace(last_hidden_state=self.norm(x, adarms_cond)[0], past_key_values=cache)


class ReadOnly:
    """A cache that gives what it has with what is new behind it, and keeps nothing."""

    def __init__(self, kept: Any) -> None:
        self.kept = kept

    def update(self, key: torch.Tensor, value: torch.Tensor, layer: int, *_rest: Any) -> tuple[Any, Any]:
        before = self.kept.layers[layer]
        return torch.cat([before.keys, key], 2), torch.cat([before.values, value], 2)


def install() -> None:
    """Before lerobot's modules are imported. Does nothing where transformers has been changed already."""
    try:
        from transformers.models.siglip import check  # noqa: F401

        return
    except ImportError:
        pass
    import transformers.models.siglip as siglip

    made = types.ModuleType("transformers.models.siglip.check")
    made.check_whether_transformers_replace_is_installed_correctly = lambda: True  # type: ignore[attr-defined]
    sys.modules[made.__name__] = siglip.check = made
    modeling_gemma.GemmaModel = Model
    modeling_gemma._gated_residual = gated
    from transformers import AutoModel

    AutoModel._model_mapping.register(modeling_gemma.GemmaConfig, Model, exist_ok=True)

    def features(self: Any, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.multi_modal_projector(self.vision_tower(pixel_values).last_hidden_state)

    modeling_paligemma.PaliGemmaModel.get_image_features = features
