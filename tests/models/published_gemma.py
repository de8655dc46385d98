"""transformers' Gemma and pi0 at our sizes with random weights, and their weights under our names."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from auras_ros.models.llama import LlamaConfig
from auras_ros.models.pi0 import Pi0, Pi0Config
from tests.models import published


def gemma_values(config: LlamaConfig) -> dict[str, Any]:
    values = published.llama_values(config)
    theta = values.pop("rope_theta")
    return values | {
        "hidden_act": "gelu_pytorch_tanh",
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
    }


def gemma(config: LlamaConfig, attention: str) -> Any:
    import transformers

    with torch.random.fork_rng(devices=[]):
        made = transformers.GemmaForCausalLM(
            transformers.GemmaConfig(**gemma_values(config), attn_implementation=attention)
        )
    return published.randomise(made)


def exact(model: Any) -> Any:
    """Norms that do not fall back to float32 where the model is float64."""

    class Exact(nn.Module):
        def __init__(self, weight: Tensor, eps: float) -> None:
            super().__init__()
            self.weight, self.eps = weight, eps

        def forward(self, x: Tensor) -> Tensor:
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * (1 + self.weight)

    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__ == "GemmaRMSNorm":
                setattr(module, name, Exact(child.weight, child.eps))
    return model


def pi0(config: Pi0Config, attention: str) -> Any:
    """PI0ForConditionalGeneration."""
    import transformers

    text = gemma_values(config.language) | {"model_type": "gemma"}
    vision = published.vit_values(config.vision) | {
        "model_type": "siglip_vision_model",
        "vision_use_head": False,
        "projection_dim": config.language.width,
    }
    large = {
        "model_type": "paligemma",
        "text_config": text,
        "vision_config": vision,
        "projection_dim": config.language.width,
        "image_token_id": config.language.vocabulary - 1,
    }
    values = transformers.PI0Config(
        vlm_config=large,
        dit_config=gemma_values(config.expert) | {"model_type": "gemma"},
        chunk_size=config.horizon,
        max_state_dim=config.state,
        max_action_dim=config.actions,
        attn_implementation=attention,
    )
    with torch.random.fork_rng(devices=[]):
        return published.randomise(transformers.PI0ForConditionalGeneration(values))


def frequencies(count: int) -> Tensor:
    """Of the time embedding, in float64: the other's float32 shows in the fifth digit, which is not compared."""
    return torch.tensor([2 * math.pi / (0.004 * 1000 ** (i / (count - 1))) for i in range(count)], dtype=torch.float64)


def pi0_as_ours(model: Any, config: Pi0Config, dtype: torch.dtype) -> Pi0:
    given: dict[str, Tensor] = {}
    for name, tensor in published.siglip_as_timm(model.model.vlm.vision_tower).items():
        if name.startswith("norm."):
            given[f"projector.{name}"] = tensor
        elif not name.startswith("attn_pool"):
            given["vision." + name.replace("blocks.", "layers.")] = tensor
    starts = {
        "model.vlm.multi_modal_projector.": "projector.",
        "model.vlm.language_model.": "language.",
        "model.dit.": "expert.",
        "embed_action_time.": "expert.",
        "action_out_proj.": "expert.action_out_proj.",
    }
    for name, tensor in model.state_dict().items():
        for there, here in starts.items():
            if name.startswith(there) and "dit.embed_tokens" not in name:
                given[here + name.removeprefix(there)] = tensor
    ours = Pi0(config).to(dtype).eval().requires_grad_(False)
    ours.load_state_dict(given)
    return ours
