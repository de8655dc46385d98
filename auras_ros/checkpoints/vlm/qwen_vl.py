"""Folders of Qwen2.5-VL (`model_type` qwen2_5_vl)."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from auras_ros.checkpoints.config_reader import ConfigReader
from auras_ros.checkpoints.hf_config import required_sizes
from auras_ros.checkpoints.vlm.form import GENERAL, PROCESSOR, VlmForm, tied
from auras_ros.checkpoints.vlm.pictures import (
    BICUBIC,
    CLIP_MEAN,
    CLIP_STD,
    MOST_PIXELS,
    Normalization,
    QwenProcessor,
    size_of,
)
from auras_ros.checkpoints.vlm.sources import TensorSource
from auras_ros.models.llama import LlamaConfig
from auras_ros.models.qwen_vision import THETA, QwenVisionConfig, in_pair_order
from auras_ros.models.qwen_vl import QwenVl, QwenVlConfig

PARTS = (
    ("model.visual.", "vision."),
    ("visual.", "vision."),
    ("model.language_model.", "language."),
    ("model.", "language."),
    ("lm_head.", "language.lm_head."),
)
# Of the whole configuration: token ids that the processor writes, and those of the text model in older folders.
TOKENS = {"video_token_id", "vision_start_token_id", "vision_end_token_id", "vision_token_id"}
TEXT = {
    "attention_dropout", "hidden_act", "hidden_size", "intermediate_size", "max_position_embeddings",
    "max_window_layers", "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "rms_norm_eps",
    "rope_scaling", "rope_theta", "sliding_window", "use_sliding_window", "vocab_size", "rope_parameters",
    "layer_types",
}  # fmt: skip


def read(config: ConfigReader) -> VlmForm:
    """Raises ModelConfigError, or ValueError, which names the size."""
    config.only("model_type", "qwen2_5_vl")
    if config.get("text_config") is None:
        text = ConfigReader({key: config.values[key] for key in TEXT if key in config.values}, config.where)
    else:
        text = config.inner("text_config")
    text.only("model_type", "qwen2_5_vl_text", "qwen2_5_vl")
    language = replace(_language(text), tied=tied(config, text))
    vision = _vision(config.inner("vision_config"))
    length = text.integer("max_position_embeddings", 32768, 1, 1 << 24)
    image_token_id = config.integer("image_token_id", 151655, 0, language.vocabulary - 1)
    text.finish(GENERAL | TOKENS | {"image_token_id", "sliding_window", "max_window_layers"})
    config.finish(GENERAL | TOKENS | TEXT)
    made = QwenVlConfig(vision, language)
    return VlmForm(
        sizes=made,
        build=lambda: QwenVl(made),
        parts=PARTS,
        source_of=lambda name: _source_of(name, vision),
        image_token="<|image_pad|>",
        image_token_id=image_token_id,
        processor=lambda given: _processor(given, vision),
        length=length,
    )


def _language(read: ConfigReader) -> LlamaConfig:
    read.only("use_sliding_window", False)
    sizes = required_sizes(read)
    kinds = read.get("layer_types", ["full_attention"])
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        raise read.error("layer_types", f"{kinds!r} is not supported; expected full_attention alone")
    key = "rope_scaling" if read.get("rope_parameters") is None else "rope_parameters"
    rope = read.inner(key)
    for name in ("rope_type", "type"):
        rope.only(name, "default", "mrope")
    theta = rope.number("rope_theta", read.number("rope_theta", 1e6, least=1.0), least=1.0)
    sections = rope.integers("mrope_section", (16, 24, 24))
    rope.finish(set())
    eps = read.number("rms_norm_eps", 1e-5)
    return replace(sizes, norm_eps=eps, rope_theta=theta, qkv_bias=True, mrope=sections)


def _vision(read: ConfigReader) -> QwenVisionConfig:
    read.only("model_type", "qwen2_5_vl_vision", "qwen2_5_vl")
    read.only("hidden_act", "silu")
    for key in ("in_channels", "in_chans"):
        read.only(key, 3)
    rope = read.inner("rope_parameters")
    rope.only("rope_type", "axial", "default")
    if rope.number("rope_theta", THETA) != THETA:
        raise rope.error("rope_theta", f"is not supported; expected {THETA:g}")
    rope.finish(set())
    depth = read.integer("depth", 32)
    made = QwenVisionConfig(
        width=read.integer("hidden_size", 3584),
        depth=depth,
        heads=read.integer("num_heads", 16),
        hidden=read.integer("intermediate_size", 3420),
        out=read.integer("out_hidden_size", 3584),
        whole=read.integers("fullatt_block_indexes", (7, 15, 23, 31)),
        patch_px=_first(read, "patch_size", "spatial_patch_size", 14),
        merge=read.integer("spatial_merge_size", 2),
        window_px=read.integer("window_size", 112),
        frames=read.integer("temporal_patch_size", 2),
    )
    read.finish(GENERAL | {"tokens_per_second", "tie_word_embeddings"})
    return made


def _first(read: ConfigReader, key: str, other: str, default: int) -> int:
    """The key's number; another key, if it is there, must say the same."""
    value = read.integer(key, default)
    read.only(other, value)
    return value


def _source_of(name: str, vision: QwenVisionConfig) -> TensorSource:
    if ".attn.qkv." in name:
        return TensorSource((name,), lambda tensor: in_pair_order(tensor, vision.heads))
    if name != "vision.patch_embed.proj.weight":
        return TensorSource((name,))

    def summed(weight: Tensor) -> Tensor:
        """[width, 3, frames, px, px]: a still image fills every frame."""
        if weight.dim() != 5 or weight.shape[2] != vision.frames:
            raise RuntimeError(f"expected 5 dimensions, {vision.frames} frames")
        return weight.float().sum(2).flatten(1)  # rounded, if it must be, when it is copied to its place

    return TensorSource((name,), summed)


def _processor(read: ConfigReader, vision: QwenVisionConfig) -> QwenProcessor:
    normalize = Normalization.read(read, BICUBIC, CLIP_MEAN, CLIP_STD)
    for key, value in (
        ("patch_size", vision.patch_px),
        ("merge_size", vision.merge),
        ("temporal_patch_size", vision.frames),
    ):
        read.only(key, value)
    least, most = size_of(
        read,
        "size",
        "shortest_edge",
        "longest_edge",
        default={"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280},
        most=MOST_PIXELS,
    )
    least, most = (
        read.integer(key, default, 1, MOST_PIXELS) for key, default in (("min_pixels", least), ("max_pixels", most))
    )
    if not (vision.patch_px * vision.merge) ** 2 <= most or not 1 <= least <= most:
        raise read.error("size", f"{least} to {most} pixels: not a range that has an image of one token")
    read.finish(PROCESSOR)
    return QwenProcessor(normalize, vision.patch_px, vision.merge, least, most)
