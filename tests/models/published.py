"""The published implementations at tiny sizes with random weights, and their weights under the names of folders.

Every parameter is random, norms and biases too: with the usual initial values two that are swapped would not show.
Nothing is downloaded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from auras_ros.models.gpt_neox import GptNeoxConfig
from auras_ros.models.llama import LlamaConfig
from auras_ros.models.vit import VitConfig

PREFIX_NORM = ("norm", "layrnorm", "lambda")


def randomise(module: nn.Module, seed: int = 0) -> nn.Module:
    """Norms' weights and layer scales around one, everything else around zero."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            around = float(any(part in name for part in PREFIX_NORM) and not name.endswith("bias"))
            parameter.copy_(around + 0.15 * torch.randn(parameter.shape, generator=random))
    return module.eval().requires_grad_(False)


def llama(config: LlamaConfig, attention: str = "eager", **extra: Any) -> Any:
    """transformers' LlamaForCausalLM of these sizes."""
    import transformers

    values = llama_values(config) | extra
    with torch.random.fork_rng(devices=[]):
        made = transformers.LlamaForCausalLM(transformers.LlamaConfig(**values, attn_implementation=attention))
    return randomise(made)


def llama_values(config: LlamaConfig) -> dict[str, Any]:
    """The keys of a folder's `config.json` for these sizes."""
    return {
        "vocab_size": config.vocabulary,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "intermediate_size": config.hidden,
        "head_dim": config.size_of_head,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tied,
        "rope_theta": config.rope_theta,
    }


def gpt_neox(config: GptNeoxConfig, attention: str = "eager") -> Any:
    """transformers' GPTNeoXForCausalLM of these sizes."""
    import transformers

    rope = {
        "rope_type": "default",
        "rope_theta": config.rope_theta,
        "partial_rotary_factor": config.rotary_share,
    }
    made = transformers.GPTNeoXConfig(
        vocab_size=config.vocabulary,
        hidden_size=config.width,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        intermediate_size=config.hidden,
        layer_norm_eps=config.norm_eps,
        rope_parameters=rope,
        attn_implementation=attention,
    )
    with torch.random.fork_rng(devices=[]):
        return randomise(transformers.GPTNeoXForCausalLM(made), seed=4)


def exact_norms(model: Any) -> Any:
    """Llama's norms as torch's own, which do not fall back to float32 where the model is float64."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__ == "LlamaRMSNorm":
                norm = nn.RMSNorm(len(child.weight), child.variance_epsilon)
                norm.weight = child.weight
                setattr(module, name, norm)
    return model


def without(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}


def vit_values(config: VitConfig) -> dict[str, Any]:
    activation = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "quick_gelu": "quick_gelu"}[config.activation]
    return {
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "image_size": config.image_px,
        "patch_size": config.patch_px,
        "layer_norm_eps": config.norm_eps,
        "hidden_act": activation,
    }


def dinov2(config: VitConfig, attention: str = "eager") -> Any:
    import transformers

    values = vit_values(config)
    ratio = values.pop("intermediate_size") // config.width
    made = transformers.Dinov2WithRegistersConfig(
        **values, mlp_ratio=ratio, num_register_tokens=config.registers, attn_implementation=attention
    )
    return randomise(transformers.Dinov2WithRegistersModel(made))


def siglip(config: VitConfig, attention: str = "eager") -> Any:
    import transformers

    made = transformers.SiglipVisionConfig(**vit_values(config), attn_implementation=attention)
    return randomise(transformers.SiglipVisionModel(made), seed=1)


def clip(config: VitConfig, attention: str = "eager") -> Any:
    import transformers

    made = transformers.CLIPVisionConfig(**vit_values(config), attn_implementation=attention)
    return randomise(transformers.CLIPVisionModel(made), seed=2)


def features(model: Any, images: Tensor, config: VitConfig) -> Tensor:
    """The patch tokens of the feature layer, as LLaVA and OpenVLA take them."""
    states = model(images, output_hidden_states=True).hidden_states
    out: Tensor = states[config.feature_layer][:, config.prefix :]
    return out


def dinov2_as_timm(model: Any) -> dict[str, Tensor]:
    """timm's converted weights: the class token's position is added to it, query, key and value are one."""
    given = model.state_dict()
    places = given["embeddings.position_embeddings"]
    out = {
        "cls_token": given["embeddings.cls_token"] + places[:, :1],
        "reg_token": given["embeddings.register_tokens"],
        "pos_embed": places[:, 1:],
    }
    for kind in ("weight", "bias"):
        out[f"patch_embed.proj.{kind}"] = given[f"embeddings.patch_embeddings.projection.{kind}"]
        out[f"norm.{kind}"] = given[f"layernorm.{kind}"]
    for i in range(model.config.num_hidden_layers):
        there, here = f"encoder.layer.{i}", f"blocks.{i}"
        out |= _layer_as_timm(given, there, here, attention="attention", out="o_proj", norms=("norm1", "norm2"))
        for j in (1, 2):
            out[f"{here}.ls{j}.scale_factor"] = given[f"{there}.layer_scale{j}.lambda1"]
    return out


def siglip_as_timm(model: Any) -> dict[str, Tensor]:
    """With timm's pooling head, whose weights are of no use here, at its true shapes."""
    given = model.state_dict()
    width, hidden = model.config.hidden_size, model.config.intermediate_size
    out = {"pos_embed": given["embeddings.position_embedding.weight"][None]}
    for kind in ("weight", "bias"):
        out[f"patch_embed.proj.{kind}"] = given[f"embeddings.patch_embedding.{kind}"]
        out[f"norm.{kind}"] = given[f"post_layernorm.{kind}"]
    for i in range(model.config.num_hidden_layers):
        norms = ("layer_norm1", "layer_norm2")
        out |= _layer_as_timm(given, f"encoder.layers.{i}", f"blocks.{i}", "self_attn", "out_proj", norms)
    shapes = {"q": (width, width), "kv": (2 * width, width), "proj": (width, width)}
    shapes |= {"mlp.fc1": (hidden, width), "mlp.fc2": (width, hidden)}
    for name, shape in shapes.items():
        out |= {f"attn_pool.{name}.weight": torch.randn(shape), f"attn_pool.{name}.bias": torch.randn(shape[0])}
    out |= {f"attn_pool.norm.{kind}": torch.randn(width) for kind in ("weight", "bias")}
    return out | {"attn_pool.latent": torch.randn(1, 1, width)}


def _layer_as_timm(
    given: dict[str, Tensor], there: str, here: str, attention: str, out: str, norms: tuple[str, str]
) -> dict[str, Tensor]:
    made = {}
    for kind in ("weight", "bias"):
        parts = [given[f"{there}.{attention}.{letter}_proj.{kind}"] for letter in "qkv"]
        made[f"{here}.attn.qkv.{kind}"] = torch.cat(parts)
        made[f"{here}.attn.proj.{kind}"] = given[f"{there}.{attention}.{out}.{kind}"]
        for j, norm in enumerate(norms, 1):
            made[f"{here}.norm{j}.{kind}"] = given[f"{there}.{norm}.{kind}"]
            made[f"{here}.mlp.fc{j}.{kind}"] = given[f"{there}.mlp.fc{j}.{kind}"]
    return made
