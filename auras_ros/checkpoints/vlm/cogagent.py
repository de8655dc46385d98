"""Folders of our CogAgent form (`model_type` cogagent): see docs/vlm.md. The decoder's keys and tensors are those of
transformers' GLM-4 (`glm`), all others our modules' own."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from auras_ros.checkpoints.config_reader import ConfigReader
from auras_ros.checkpoints.hf_config import required_sizes
from auras_ros.checkpoints.vlm.form import GENERAL, PROCESSOR, VlmForm, tied
from auras_ros.checkpoints.vlm.pictures import BICUBIC, CLIP_MEAN, CLIP_STD, Normalization, SquareProcessor, size_of
from auras_ros.checkpoints.vlm.sources import TensorSource
from auras_ros.checkpoints.vlm.towers import tower
from auras_ros.models.cogagent import CogAgent, CogAgentConfig
from auras_ros.models.llama import LlamaConfig
from auras_ros.models.presets import COGAGENT_9B
from auras_ros.models.vit import VitConfig

PARTS = (("vision.", "vision."), ("adapter.", "adapter."), ("model.", "language."), ("lm_head.", "language.lm_head."))
TOWER = (
    "image_size", "patch_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
)  # fmt: skip


def read(config: ConfigReader) -> VlmForm:
    """Raises ModelConfigError, or ValueError, which names the size."""
    config.only("model_type", "cogagent")
    text = config.inner("text_config")
    language = replace(_glm(text), tied=tied(config, text))
    made = CogAgentConfig(
        _eva2(config.inner("vision_config")),
        language,
        config.integer("adapter_hidden_size"),
        config.integer("cross_hidden_size"),
        config.integer("cross_num_attention_heads"),
    )
    length = text.integer("max_position_embeddings", 131072, 1, 1 << 24)
    image_token_id = config.integer("image_token_id", None, 0, language.vocabulary - 1)
    text.finish(GENERAL)
    config.finish(GENERAL)
    return VlmForm(
        sizes=made,
        build=lambda: CogAgent(made),
        parts=PARTS,
        source_of=lambda name: _source_of(name, language),
        image_token_id=image_token_id,
        processor=lambda given: _processor(given, made),
        length=length,
    )


def _glm(read: ConfigReader) -> LlamaConfig:
    read.only("model_type", "glm")
    read.integer("head_dim")
    bias = bool(read.only("attention_bias", True, False))
    sizes = required_sizes(read)
    rope = read.inner("rope_parameters")
    rope.only("rope_type", "default")
    share = rope.number("partial_rotary_factor", read.number("partial_rotary_factor", 0.5))
    theta = rope.number("rope_theta", read.number("rope_theta", 10000.0, least=1.0), least=1.0)
    rope.finish(set())
    eps = read.number("rms_norm_eps", 1.5625e-7)
    return replace(sizes, norm_eps=eps, rope_theta=theta, qkv_bias=bias, rotated=int(sizes.size_of_head * share))


def _eva2(read: ConfigReader) -> VitConfig:
    """EVA2-CLIP-E: a class token with a position, and norms behind attention and linear layers."""
    for key in TOWER:  # the defaults of `tower` would be the published sizes
        read.integer(key)
    return tower(read, ("cogagent",), COGAGENT_9B.vision)


def _source_of(name: str, language: LlamaConfig) -> TensorSource:
    """GLM-4's gate and up projections are one tensor, and its rotation is of neighbours: rows of queries and keys are
    reordered, the same in both, so that pairs stand half of the rotated numbers apart."""
    for half, each in enumerate(("gate_proj", "up_proj")):
        if name.startswith("language.layers.") and f".mlp.{each}." in name:
            joined = name.replace(each, "gate_up_proj")
            return TensorSource((joined,), lambda tensor, half=half: tensor.chunk(2)[half])
    if ".self_attn.q_proj." in name or ".self_attn.k_proj." in name:
        return TensorSource((name,), lambda tensor: halved(tensor, language.size_of_head, language.size_rotated))
    return TensorSource((name,))


def halved(tensor: Tensor, head_dim: int, rotated: int) -> Tensor:
    """Rows [heads * head_dim, ...] whose rotated pairs are neighbours -> pairs (i, i + rotated / 2)."""
    heads = tensor.unflatten(0, (-1, head_dim))
    order = [*range(0, rotated, 2), *range(1, rotated, 2), *range(rotated, head_dim)]
    made: Tensor = heads[:, order].flatten(0, 1)
    return made


def _processor(read: ConfigReader, config: CogAgentConfig) -> SquareProcessor:
    normalize = Normalization.read(read, BICUBIC, CLIP_MEAN, CLIP_STD)
    side = config.vision.image_px
    size = size_of(read, "size", "height", "width", default={"height": side, "width": side})
    if size != (side, side):
        raise read.error("size", f"{list(size)} pixels, but the vision model takes {side}")
    read.finish(PROCESSOR)
    return SquareProcessor(normalize, side, config.tokens)
