"""OpenVLA built from transformers' own networks with our weights, for the measurement of `generate`.

It shares our tensors, so both models need the memory of one. Parts that OpenVLA does not use are not computed: the
encoders end at the layer whose features are taken, without their last norm and pooling head. transformers is imported
only when a model is built.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from auras_ros.models.llama import Llama, LlamaConfig
from auras_ros.models.openvla import FusedVision
from auras_ros.models.vision_language import VisionLanguage
from auras_ros.models.vit import VitConfig
from auras_ros.policies.vision_language import VisionLanguagePrefix

ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "quick_gelu": "quick_gelu"}
Weights = Mapping[str, Tensor]


class PublishedOpenVla:
    """Greedy decoding of `tokens` action tokens from one image, in two normalisations: [1, 6, px, px]."""

    def __init__(self, prefix: VisionLanguagePrefix, tokens: int) -> None:
        ours = prefix.model
        assert isinstance(ours, VisionLanguage)
        assert isinstance(ours.vision, FusedVision)
        transformers = importlib.import_module("transformers")
        first, second = ours.vision.featurizer, ours.vision.fused_featurizer
        self._dinov2 = dinov2(transformers, first.config, first.state_dict())
        self._siglip = siglip(transformers, second.config, second.state_dict())
        self._project = ours.projector  # linear layers and GELU in a row, as published
        self._llama = llama(transformers, ours.language)
        self._embed = self._llama.get_input_embeddings()
        self._before, self._after, self._tokens = prefix.before, prefix.after, tokens

    @property
    def device(self) -> torch.device:
        return self._before.device

    @torch.inference_mode()
    def prefix(self, images: Tensor) -> Tensor:
        """[1, 1 + patches + prompt, width]: the image between the first id of the prompt and the others."""
        one, other = images[:, :3], images[:, 3:]
        seen = [self._dinov2(one).last_hidden_state, self._siglip(other).last_hidden_state]
        patches = seen[1].shape[1]
        joined = self._project(torch.cat([seen[0][:, -patches:], seen[1]], 2))
        return torch.cat([self._embed(self._before), joined, self._embed(self._after)], 1)

    @torch.inference_mode()
    def generate(self, images: Tensor) -> Tensor:
        """int64 [1, tokens]."""
        prefix = self.prefix(images)
        mask = torch.ones(prefix.shape[:2], dtype=torch.int64, device=prefix.device)
        ids: Tensor = self._llama.generate(
            inputs_embeds=prefix, attention_mask=mask, max_new_tokens=self._tokens, do_sample=False
        )
        return ids


def llama(transformers: Any, ours: Llama) -> Any:
    """LlamaForCausalLM without an end token: every chunk has the same number of tokens."""
    made = transformers.LlamaConfig(**llama_sizes(ours.config))
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(made)
    head = "lm_head.weight"
    weights = {name if name == head else f"model.{name}": tensor for name, tensor in ours.state_dict().items()}
    filled(model, weights)
    model.model.rotary_emb = type(model.model.rotary_emb)(config=made).to(ours.embed_tokens.weight.device)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return ready(model)


def llama_sizes(config: LlamaConfig) -> dict[str, Any]:
    return {
        "vocab_size": config.vocabulary,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "intermediate_size": config.hidden,
        "head_dim": config.size_of_head,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tied,
    }


def dinov2(transformers: Any, config: VitConfig, ours: Weights) -> Any:
    """Dinov2WithRegistersModel. It adds a position embedding to the class token; ours already contains the sum."""
    sizes = _sizes(config)
    ratio = sizes.pop("intermediate_size") // config.width
    made = transformers.Dinov2WithRegistersConfig(**sizes, mlp_ratio=ratio, num_register_tokens=config.registers)
    with torch.device("meta"):
        model = transformers.Dinov2WithRegistersModel(made)
    places = ours["pos_embed"]
    weights = {
        "embeddings.cls_token": ours["cls_token"],
        "embeddings.register_tokens": ours["reg_token"],
        "embeddings.position_embeddings": torch.cat([torch.zeros_like(places[:, :1]), places], 1),
        "embeddings.mask_token": torch.zeros_like(ours["cls_token"][0]),  # used only in training
    }
    weights |= _patches(ours, "embeddings.patch_embeddings.projection")
    for i in range(config.built):
        there = f"encoder.layer.{i}"
        weights |= _layer(ours, i, there, "attention", "o_proj", ("norm1", "norm2"))
        weights |= {f"{there}.layer_scale{j}.lambda1": ours[f"layers.{i}.ls{j}.gamma"] for j in (1, 2)}
    model.layernorm = nn.Identity()
    return ready(filled(model, weights))


def siglip(transformers: Any, config: VitConfig, ours: Weights) -> Any:
    """SiglipVisionModel without its head."""
    with torch.device("meta"):
        model = transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**_sizes(config), vision_use_head=False))
    weights = {"embeddings.position_embedding.weight": ours["pos_embed"][0]}
    weights |= _patches(ours, "embeddings.patch_embedding")
    for i in range(config.built):
        weights |= _layer(ours, i, f"encoder.layers.{i}", "self_attn", "out_proj", ("layer_norm1", "layer_norm2"))
    model.post_layernorm = nn.Identity()
    filled(model, weights)
    model.embeddings.position_ids = torch.arange(config.patches, device=ours["pos_embed"].device)[None]
    return ready(model)


def filled(model: Any, weights: Weights) -> Any:
    """The model with these tensors as its parameters. Raises ValueError if this version of transformers has others."""
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        version = importlib.import_module("transformers").__version__
        raise ValueError(f"transformers {version} has other networks than 5.23 (pip install -U): {error}") from error
    return model


def ready(model: Any) -> Any:
    """The model set up for inference. Raises RuntimeError for a tensor without values."""
    tensors: Iterator[tuple[str, Tensor]] = chain(model.named_parameters(), model.named_buffers())
    if missing := [name for name, tensor in tensors if tensor.is_meta]:
        raise RuntimeError(f"{type(model).__name__}: '{missing[0]}' was given no values")
    return model.eval().requires_grad_(False)


def _sizes(config: VitConfig) -> dict[str, Any]:
    return {
        "hidden_size": config.width,
        "num_hidden_layers": config.built,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "image_size": config.image_px,
        "patch_size": config.patch_px,
        "layer_norm_eps": config.norm_eps,
        "hidden_act": ACTIVATIONS[config.activation],
    }


def _patches(ours: Weights, there: str) -> dict[str, Tensor]:
    return {f"{there}.{kind}": ours[f"patch_embed.proj.{kind}"] for kind in ("weight", "bias")}


def _layer(
    ours: Weights, number: int, there: str, attention: str, out: str, norms: tuple[str, str]
) -> dict[str, Tensor]:
    """A layer's tensors under transformers' names; query, key and value are views of our joint tensor."""
    made: dict[str, Tensor] = {}
    here = f"layers.{number}"
    for kind in ("weight", "bias"):
        parts = ours[f"{here}.attn.qkv.{kind}"].chunk(3)
        made |= {f"{there}.{attention}.{letter}_proj.{kind}": part for letter, part in zip("qkv", parts, strict=True)}
        made[f"{there}.{attention}.{out}.{kind}"] = ours[f"{here}.attn.proj.{kind}"]
        for j, norm in enumerate(norms, 1):
            made[f"{there}.{norm}.{kind}"] = ours[f"{here}.norm{j}.{kind}"]
            made[f"{there}.mlp.fc{j}.{kind}"] = ours[f"{here}.mlp.fc{j}.{kind}"]
    return made
