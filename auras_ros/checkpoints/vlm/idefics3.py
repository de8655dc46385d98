"""Folders of Idefics3 and SmolVLM2 (`model_type` idefics3, smolvlm)."""

from __future__ import annotations

from dataclasses import replace

from auras_ros.checkpoints.config_reader import ConfigReader
from auras_ros.checkpoints.hf_config import llama_config
from auras_ros.checkpoints.vlm.form import GENERAL, PROCESSOR, VlmForm, tied
from auras_ros.checkpoints.vlm.pictures import HALF, LANCZOS, Idefics3Processor, Normalization, size_of
from auras_ros.checkpoints.vlm.sources import TensorSource, tower_source
from auras_ros.checkpoints.vlm.towers import tower
from auras_ros.models.idefics3 import Idefics3Config, build_idefics3
from auras_ros.models.vit import VitConfig

PARTS = (
    ("model.vision_model.", "vision."),
    ("model.connector.", "connector."),
    ("model.text_model.", "language."),
    ("lm_head.", "language.lm_head."),
)
TYPES = ("smolvlm_vision", "idefics3_vision", "idefics3", "smolvlm")
SIGLIP = VitConfig(224, 32, 1152, 12, 16, 3072, "gelu_tanh", feature_layer=-1)  # transformers' defaults
# Idefics2's, whose values nothing of Idefics3 reads.
OLDER = {
    "is_llama_config", "perceiver_config", "pixel_shuffle_factor", "qk_layer_norms", "rope_interleaved",
    "use_resampler", "max_image_size", "size", "use_base_siglip", "use_cache", "vocab_size",
}  # fmt: skip
VIDEO = {"video_sampling", "video_processor_type"}  # of the image processor's file: videos are not taken


def read(config: ConfigReader) -> VlmForm:
    """Raises ModelConfigError, or ValueError, which names the size."""
    config.only("model_type", "smolvlm", "idefics3")
    text = config.inner("text_config")
    for key in ("qk_layer_norms", "rope_interleaved", "use_resampler"):
        text.only(key, False)
    language = replace(llama_config(text), tied=tied(config))
    vision = tower(config.inner("vision_config"), TYPES, SIGLIP, OLDER)
    made = Idefics3Config(vision, language, config.integer("scale_factor", 2))
    length = text.integer("max_position_embeddings", 2048, 1, 1 << 24)
    image_token_id = config.integer("image_token_id", 128257, 0, language.vocabulary - 1)
    text.finish(GENERAL | OLDER)
    config.finish(GENERAL | OLDER)
    return VlmForm(
        sizes=made,
        build=lambda: build_idefics3(made),
        parts=PARTS,
        source_of=_source_of,
        image_token_id=image_token_id,
        processor=lambda given: _processor(given, made),
        length=length,
    )


def _source_of(name: str) -> TensorSource:
    if name.startswith("language."):
        return TensorSource((name,))
    if name == "projector.linear.weight":
        return TensorSource(("connector.modality_projection.proj.weight",))
    if name.startswith("projector.norm."):
        return TensorSource((f"vision.post_layernorm.{name.removeprefix('projector.norm.')}",))
    return tower_source(name.removeprefix("vision."), "vision.")


def _processor(read: ConfigReader, config: Idefics3Config) -> Idefics3Processor:
    normalize = Normalization.read(read, LANCZOS, HALF, HALF)
    side = config.vision.image_px
    (longest,) = size_of(read, "size", "longest_edge", default={"longest_edge": 4 * side})
    (tile,) = size_of(read, "max_image_size", "longest_edge", default={"longest_edge": side})
    if tile != side:
        raise read.error("max_image_size", f"{tile} pixels, but the vision model takes {side}")
    splitting = bool(read.only("do_image_splitting", True, False))
    read.finish(PROCESSOR | VIDEO)
    return Idefics3Processor(normalize, longest, tile, splitting, config.tokens)
