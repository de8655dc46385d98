"""Folders of LLaVA-1.5 (`model_type` llava)."""

from __future__ import annotations

import re
from dataclasses import replace

from auras_ros.checkpoints.config_reader import ConfigReader
from auras_ros.checkpoints.hf_config import llama_config
from auras_ros.checkpoints.vlm.form import GENERAL, PROCESSOR, VlmForm, is_table, tied
from auras_ros.checkpoints.vlm.pictures import BICUBIC, CLIP_MEAN, CLIP_STD, LlavaProcessor, Normalization, size_of
from auras_ros.checkpoints.vlm.sources import TensorSource, tower_source
from auras_ros.checkpoints.vlm.towers import tower
from auras_ros.models.llava import build_llava
from auras_ros.models.rt2 import Rt2Config
from auras_ros.models.vit import VitConfig

PARTS = (
    ("model.vision_tower.vision_model.", "vision."),
    ("model.vision_tower.", "vision."),
    ("vision_tower.vision_model.", "vision."),
    ("vision_tower.", "vision."),
    ("model.multi_modal_projector.", "projector."),
    ("multi_modal_projector.", "projector."),
    ("model.language_model.model.", "language."),  # transformers 5.4 to 5.5
    ("model.language_model.", "language."),
    ("language_model.lm_head.", "language.lm_head."),
    ("language_model.model.", "language."),
    ("lm_head.", "language.lm_head."),
)
UNREAD = {"ignore_index", "image_seq_length", "vocab_size"}  # by transformers: an image has as many tokens as patches
CLIP = VitConfig(  # transformers' defaults
    224, 32, 768, 12, 12, 3072, "quick_gelu", class_token=True, class_position=True, pre_norm=True, patch_bias=False,
    norm_eps=1e-5,
)  # fmt: skip


def read(config: ConfigReader) -> VlmForm:
    """Raises ModelConfigError, or ValueError, which names the size."""
    config.only("model_type", "llava")
    config.only("vision_feature_select_strategy", "default")
    config.only("projector_hidden_act", "gelu")
    config.only("multimodal_projector_bias", True)
    layer = config.get("vision_feature_layer", -2)
    if type(layer) is not int or layer >= 0:
        raise config.error(
            "vision_feature_layer", f"{layer!r} is not supported; expected one layer, counted from the end"
        )
    text = config.inner("text_config")
    language = replace(llama_config(text), tied=tied(config, text))
    if config.get("vision_config") is None:
        raise config.error("vision_config", "missing")
    clip = tower(config.inner("vision_config"), ("clip_vision_model",), CLIP, {"projection_dim", "vocab_size"})
    vision = replace(clip, feature_layer=layer)
    length = text.integer("max_position_embeddings", 2048, 1, 1 << 24)
    key = "image_token_index" if "image_token_index" in config.values else "image_token_id"
    image_token_id = config.integer(key, 32000, 0, language.vocabulary - 1)
    text.finish(GENERAL)
    config.finish(GENERAL | UNREAD)
    made = Rt2Config(vision, language)
    return VlmForm(
        sizes=made,
        build=lambda: build_llava(made),
        parts=PARTS,
        source_of=_source_of,
        is_ignored=lambda name: _is_ignored(name, vision),
        image_token_id=image_token_id,
        processor=lambda given: _processor(given, vision),
        length=length,
    )


def _source_of(name: str) -> TensorSource:
    return (
        tower_source(name.removeprefix("vision."), "vision.") if name.startswith("vision.") else TensorSource((name,))
    )


def _is_ignored(name: str, vision: VitConfig) -> bool:
    """Layers behind the one whose features are used, and tables that are recomputed."""
    layer = re.match(r"vision\.encoder\.layers\.(\d+)\.", name)
    if layer is not None:
        return vision.built <= int(layer[1]) < vision.depth
    return name.startswith("vision.post_layernorm.") or is_table(name)


def _processor(read: ConfigReader, vision: VitConfig) -> LlavaProcessor:
    normalize = Normalization.read(read, BICUBIC, CLIP_MEAN, CLIP_STD)
    read.only("do_center_crop", True)
    read.only("do_pad", False)
    (shortest,) = size_of(read, "size", "shortest_edge", default={"shortest_edge": 224})
    crop = size_of(read, "crop_size", "height", "width", default={"height": 224, "width": 224})
    if crop != (vision.image_px, vision.image_px):
        raise read.error("crop_size", f"{list(crop)} pixels, but the vision model takes {vision.image_px}")
    if shortest < vision.image_px:
        raise read.error("size", f"{shortest} pixels are less than those cut out of them, {vision.image_px}")
    read.finish(PROCESSOR)
    return LlavaProcessor(normalize, shortest, vision.image_px, vision.patches)
