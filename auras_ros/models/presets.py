"""Sizes of the published models and of small ones for benches and tests, by name. Weights are never here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from auras_ros.models.cogagent import CogAgentConfig
from auras_ros.models.gemma import gemma_config
from auras_ros.models.gpt_neox import GptNeoxConfig
from auras_ros.models.llama import LlamaConfig
from auras_ros.models.openvla import OpenVlaConfig
from auras_ros.models.pi0 import Pi0Config
from auras_ros.models.rt2 import Rt2Config
from auras_ros.models.smolvla import SmolVlaConfig
from auras_ros.models.tinyvla import TinyVlaConfig
from auras_ros.models.vit import VitConfig

# ViT-L/14 with 4 registers (Oquab et al. 2023, Darcet et al. 2024) and so400m/14 (Zhai et al. 2023), at OpenVLA's size.
DINOV2_L = VitConfig(224, 14, 1024, 24, 16, 4096, class_token=True, registers=4, layer_scale=True)
# Exact GELU, as OpenVLA was trained; the published SigLIP has the tanh approximation.
SIGLIP_SO400M = VitConfig(224, 14, 1152, 27, 16, 4304)
CLIP_L_336 = VitConfig(
    336, 14, 1024, 24, 16, 4096, "quick_gelu", True, True, pre_norm=True, patch_bias=False, norm_eps=1e-5
)
_SMALL_CLIP = replace(CLIP_L_336, image_px=224, width=192, depth=6, heads=3, hidden=768)
_QUARTER_CLIP = replace(CLIP_L_336, image_px=112, width=256, depth=6, heads=4, hidden=1024)
_TINY_CLIP = replace(CLIP_L_336, image_px=28, width=32, depth=3, heads=2, hidden=64)
_SMALL_DINOV2 = replace(DINOV2_L, width=192, depth=6, heads=3, hidden=768)
_SMALL_SIGLIP = replace(SIGLIP_SO400M, width=192, depth=6, heads=3, hidden=768)
_TINY_DINOV2 = replace(DINOV2_L, image_px=28, width=32, depth=3, heads=2, hidden=64)
_TINY_SIGLIP = replace(SIGLIP_SO400M, image_px=28, width=48, depth=4, heads=3, hidden=80)

LLAMAS: Mapping[str, LlamaConfig] = {
    "llama2-7b": LlamaConfig(32000, 4096, 32, 32, 32, 11008, norm_eps=1e-5),
    "llama-small": LlamaConfig(32064, 768, 12, 12, 12, 2048),  # small enough for a CPU
    "llama-tiny": LlamaConfig(512, 32, 3, 4, 2, 88),
}
# Both pad the vocabulary to 32064. OpenVLA's folder leaves the norm's eps at the implementation's 1e-6.
_OPENVLA_LLAMA = replace(LLAMAS["llama2-7b"], vocabulary=32064, norm_eps=1e-6)
_LLAVA_LLAMA = replace(LLAMAS["llama2-7b"], vocabulary=32064)

OPENVLAS: Mapping[str, OpenVlaConfig] = {
    "openvla-7b": OpenVlaConfig(DINOV2_L, SIGLIP_SO400M, _OPENVLA_LLAMA),
    "openvla-small": OpenVlaConfig(_SMALL_DINOV2, _SMALL_SIGLIP, LLAMAS["llama-small"]),
    "openvla-tiny": OpenVlaConfig(_TINY_DINOV2, _TINY_SIGLIP, LLAMAS["llama-tiny"]),
}
RT2S: Mapping[str, Rt2Config] = {
    "llava-1.5-7b": Rt2Config(CLIP_L_336, _LLAVA_LLAMA),
    "rt2-small": Rt2Config(_SMALL_CLIP, LLAMAS["llama-small"]),
    "rt2-tiny": Rt2Config(_TINY_CLIP, LLAMAS["llama-tiny"]),
}

PYTHIAS: Mapping[str, GptNeoxConfig] = {  # Biderman et al. 2023, table 1
    "pythia-70m": GptNeoxConfig(50304, 512, 6, 8, 2048),
    "pythia-410m": GptNeoxConfig(50304, 1024, 24, 16, 4096),
    "pythia-1b": GptNeoxConfig(50304, 2048, 16, 8, 8192),
    "pythia-small": GptNeoxConfig(50304, 256, 6, 4, 1024),
    "pythia-tiny": GptNeoxConfig(512, 32, 3, 2, 64),
}
QUARTER = "-quarter"
# LLaVA-Pythia's names count CLIP too: 400M is Pythia-70M.
TINYVLAS: Mapping[str, TinyVlaConfig] = {
    "tinyvla-400m": TinyVlaConfig(CLIP_L_336, PYTHIAS["pythia-70m"]),
    "tinyvla-700m": TinyVlaConfig(CLIP_L_336, PYTHIAS["pythia-410m"]),
    "tinyvla-1.3b": TinyVlaConfig(CLIP_L_336, PYTHIAS["pythia-1b"]),
    # The published three for a CPU: a quarter of the width, of the heads and of the layers (at least two),
    # images of a third of the side, a small vocabulary.
    **{
        f"{name}{QUARTER}": TinyVlaConfig(_QUARTER_CLIP, language, down_dims=(64, 128, 256), step_width=64)
        for name, language in (
            ("tinyvla-400m", GptNeoxConfig(512, 128, 2, 2, 512)),
            ("tinyvla-700m", GptNeoxConfig(512, 256, 6, 4, 1024)),
            ("tinyvla-1.3b", GptNeoxConfig(512, 512, 4, 2, 2048)),
        )
    },
    "tinyvla-small": TinyVlaConfig(_SMALL_CLIP, PYTHIAS["pythia-small"], down_dims=(64, 128, 256), step_width=64),
    "tinyvla-tiny": TinyVlaConfig(_TINY_CLIP, PYTHIAS["pythia-tiny"], down_dims=(8, 16, 16), step_width=8),
}

# PaliGemma's language model at 3B (Gemma 2B) and the 300M expert of the published pi0; SigLIP as its authors
# trained it (tanh GELU), its last layer.
GEMMA_2B = gemma_config(257152, 2048, 18, 8, 1, 16384, 256)
_GEMMA_300M = replace(GEMMA_2B, width=1024, hidden=4096)
_PALIGEMMA_SIGLIP = replace(SIGLIP_SO400M, activation="gelu_tanh", feature_layer=-1)
_SMALL_SEEING = replace(_PALIGEMMA_SIGLIP, width=192, depth=6, heads=3, hidden=768)
_TINY_SEEING = replace(_PALIGEMMA_SIGLIP, image_px=28, width=48, depth=2, heads=3, hidden=80)
_SMALL_GEMMA = gemma_config(32064, 768, 12, 8, 1, 3072, 96)
_TINY_GEMMA = gemma_config(512, 64, 3, 4, 2, 96, 24)
_TINY_ACTING = replace(_TINY_GEMMA, width=32, hidden=48)

PI0S: Mapping[str, Pi0Config] = {
    "pi0": Pi0Config(_PALIGEMMA_SIGLIP, GEMMA_2B, _GEMMA_300M),
    "pi0-small": Pi0Config(_SMALL_SEEING, _SMALL_GEMMA, replace(_SMALL_GEMMA, width=256, hidden=1024)),
    "pi0-tiny": Pi0Config(_TINY_SEEING, _TINY_GEMMA, _TINY_ACTING, horizon=6, state=5, actions=4),
}

# SmolVLM2 500M, of whose 32 layers the first 16 are used, and an expert of three quarters of its width. The base of
# the rotary frequencies is SmolVLA's, not SmolVLM2's.
_SMOL = LlamaConfig(49280, 960, 16, 15, 5, 2560, 64, norm_eps=1e-5, tied=True, scaled_embedding=True)
_SMOL_VISION = VitConfig(512, 16, 768, 12, 12, 3072, "gelu_tanh", feature_layer=-1)
_TINY_SMOL_VISION = replace(_SMOL_VISION, image_px=32, patch_px=8, width=24, depth=2, heads=2, hidden=32)
_TINY_SMOL = LlamaConfig(512, 32, 3, 4, 2, 48, 8, norm_eps=1e-5, tied=True, scaled_embedding=True)
_TINY_SMOL_EXPERT = replace(_TINY_SMOL, width=24, hidden=40)

SMOLVLAS: Mapping[str, SmolVlaConfig] = {
    "smolvla": SmolVlaConfig(_SMOL_VISION, _SMOL, replace(_SMOL, width=720, hidden=2048)),
    "smolvla-tiny": SmolVlaConfig(_TINY_SMOL_VISION, _TINY_SMOL, _TINY_SMOL_EXPERT, 2, horizon=6, state=5, actions=4),
}

# Nova's table II: a 64-layer tower of 4 B parameters (EVA2-CLIP-E+ at CogAgent's 1120 pixels) and GLM-4-9B's 40 layers;
# the cross-attention's width is CogAgent's (Hong et al. 2024).
COGAGENT_9B = CogAgentConfig(
    VitConfig(1120, 14, 1792, 64, 16, 15360, class_token=True, class_position=True, feature_layer=-1, post_norm=True),
    LlamaConfig(151552, 4096, 40, 32, 2, 13696, norm_eps=1.5625e-7, qkv_bias=True, rotated=64),
    adapter=13696,
    cross_width=1024,
    cross_heads=32,
)
