"""The models that are compared: their sizes, and everything else of a folder but its weights.

Two tiny ones, where a side's own work a request and a token counts most, and one in the shape of Qwen2.5-0.5B (width,
layers, heads, vocabulary) behind a vision tower scaled to it, where matrix products do; and four of that one's
layers, of which memory holds as many servers as many adapters are compared on. Images come in a size that no
side has to resize: libraries differ in that by a rounding, and then so might tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

QWEN_SPECIAL = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
LLAVA_SPECIAL = ("<s>", "</s>", "<image>")
QWEN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}"
    "{{ message['content'] }}{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAVA_TEMPLATE = (  # with the first token: vLLM adds none to a conversation
    "<s>"
    "{% for message in messages %}{{ message['role'].upper() + ': ' }}{% if message['content'] is string %}"
    "{{ message['content'] + ' ' }}{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "{{ '<image>\n' }}{% else %}{{ part['text'] + ' ' }}{% endif %}{% endfor %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
NORMAL = {
    "do_resize": True,
    "do_rescale": True,
    "do_normalize": True,
    "do_convert_rgb": True,
    "rescale_factor": 1 / 255,
    "resample": 3,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
QWEN_PATCHES = {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 3136, "max_pixels": 451584}
LENGTH = 4096


@dataclass(frozen=True)
class PeerModel:
    """name: of the option. settings: what `write_model.py` takes. image_px: sides of images. requests: of a window.
    letters, tokens: see `Shape`. tiny: whether the promise over transformers counts."""

    name: str
    settings: Mapping[str, Any]
    image_px: int
    requests: int
    tiny: bool = True
    letters: tuple[int, int] = (20, 400)
    tokens: tuple[int, int] = (16, 64)


def _qwen(
    width: int, layers: int, heads: int, hidden: int, vocabulary: int, vision: Mapping[str, Any]
) -> dict[str, Any]:
    head = width // heads
    text = {
        "model_type": "qwen2_5_vl_text",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 2,
        "max_position_embeddings": LENGTH,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e6,
            "mrope_section": [head // 8, 3 * head // 16, 3 * head // 16],
        },
    }
    tower = {
        "model_type": "qwen2_5_vl_vision",
        "patch_size": 14,
        "window_size": 112,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": width,
        **vision,
    }
    image = {**NORMAL, **QWEN_PATCHES, "image_processor_type": "Qwen2VLImageProcessor"}
    return {
        "model_type": "qwen2_5_vl",
        "config": {"text_config": text, "vision_config": tower, "tie_word_embeddings": True},
        "ids": {
            "image_token_id": "<|image_pad|>",
            "video_token_id": "<|video_pad|>",
            "vision_start_token_id": "<|vision_start|>",
            "vision_end_token_id": "<|vision_end|>",
        },
        "special": list(QWEN_SPECIAL),
        "start": "",
        "stop": "<|im_end|>",
        "template": QWEN_TEMPLATE,
        "processor": image,
        "processor_class": "Qwen2_5_VLProcessor",
        "video_processor": {**NORMAL, **QWEN_PATCHES, "video_processor_type": "Qwen2VLVideoProcessor"},
        "whole_processor": None,
        "seed": 0,
    }


def _llava(vocabulary: int) -> dict[str, Any]:
    text = {
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": LENGTH,
        "rms_norm_eps": 1e-5,
    }
    tower = {
        "model_type": "clip_vision_model",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "image_size": 168,
        "patch_size": 14,
        "projection_dim": 64,
    }
    side = {"height": 168, "width": 168}
    image = {**NORMAL, "do_center_crop": True, "size": {"shortest_edge": 168}, "crop_size": side}
    whole = {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    return {
        "model_type": "llava",
        "config": {
            "text_config": text,
            "vision_config": tower,
            "image_seq_length": 144,
            "vision_feature_layer": -2,
            "tie_word_embeddings": False,
        },
        "ids": {"image_token_index": "<image>"},
        "special": list(LLAVA_SPECIAL),
        "start": "<s>",
        "stop": "</s>",
        "template": LLAVA_TEMPLATE,
        "processor": {**image, "image_processor_type": "CLIPImageProcessor"},
        "processor_class": "LlavaProcessor",
        "video_processor": None,
        "whole_processor": {**whole, "processor_class": "LlavaProcessor", "image_token": "<image>"},
        "seed": 0,
    }


TINY_TOWER = {"hidden_size": 64, "intermediate_size": 128, "depth": 4, "num_heads": 2, "fullatt_block_indexes": [1, 3]}
# Qwen2.5-VL's tower is 1.8 to 4 times narrower than its language models and as deep as they are: here so, too.
HALF_TOWER = {
    "hidden_size": 512,
    "intermediate_size": 1368,
    "depth": 12,
    "num_heads": 8,
    "fullatt_block_indexes": [2, 5, 8, 11],
}
MODELS = {
    each.name: each
    for each in (
        PeerModel("tiny-qwen", _qwen(128, 4, 4, 256, 2048, TINY_TOWER), 336, 192),
        PeerModel("tiny-llava", _llava(2048), 168, 192),
        PeerModel("qwen-0.5b", _qwen(896, 24, 14, 4864, 151936, HALF_TOWER), 336, 24, tiny=False),
        PeerModel("qwen-60m", _qwen(896, 4, 14, 4864, 2048, TINY_TOWER), 336, 64, tiny=False),
    )
}
PEERS = ("tiny-qwen", "tiny-llava", "qwen-0.5b")  # of `auras bench peers-vlm`
