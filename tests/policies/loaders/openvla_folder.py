"""A tiny OpenVLA folder as Hugging Face's library lays it out, and what the published parts make of a picture.

The published code asks for old versions of timm and transformers, so the model is put together by hand of transformers'
own parts (`published_openvla`), with the sizes of its vision encoders cut down: timm's names stand for tiny networks
while `tiny_encoders` holds. The vocabulary is the true one, so that the ids of actions and of the prompt's end are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from auras_ros.checkpoints import hf_config
from auras_ros.models.llama import LlamaConfig
from auras_ros.models.openvla import OpenVlaConfig
from auras_ros.models.presets import OPENVLAS
from tests.models.published import llama_values
from tests.models.published_openvla import PublishedOpenVla

DINO, SIGLIP = "vit_large_patch14_reg4_dinov2.lvd142m", "vit_so400m_patch14_siglip_224"
TINY = OPENVLAS["openvla-tiny"]
CONFIG = OpenVlaConfig(
    replace(TINY.dinov2, width=16, hidden=32, heads=2),
    replace(TINY.siglip, width=24, hidden=40, depth=3),
    LlamaConfig(32064, 24, layers=2, heads=4, kv_heads=4, hidden=40),
)
PX, HEIGHT, WIDTH = 28, 36, 50
TEXT = "Put the Carrot on the plate"
WORDS = [
    "In:",
    "What",
    "action",
    "should",
    "the",
    "robot",
    "take",
    "to",
    "put",
    "carrot",
    "on",
    "plate",
    "pick",
    "up",
    "?",
    "Out:",
]  # ids 300 on
AXES = ("x", "y", "z", "gripper")
STATS: dict[str, Any] = {
    "bridge_orig": {
        "action": {
            "q01": [-0.03, -0.05, -0.2, 0.0], "q99": [0.04, 0.05, 0.1, 1.0], "mask": [True, True, True, False],
            "mean": [0.0] * 4, "std": [1.0] * 4, "min": [-1.0] * 4, "max": [1.0] * 4,
        },
        "num_trajectories": 7,
    },
    "fractal": {"action": {"q01": [-1.0] * 4, "q99": [1.0] * 4, "mask": [True, True, True, False]}},
}  # fmt: skip
PREPROCESSOR: dict[str, Any] = {
    "image_resize_strategy": "resize-naive",
    "use_fused_vision_backbone": True,
    "input_sizes": [[3, PX, PX], [3, PX, PX]],
    "interpolations": ["bicubic", "bicubic"],
    "means": [[0.485, 0.456, 0.406], [0.5, 0.5, 0.5]],
    "stds": [[0.229, 0.224, 0.225], [0.5, 0.5, 0.5]],
    "tvf_do_letterbox": False,
    "tvf_resize_params": [{"antialias": True, "interpolation": 3, "max_size": None, "size": [PX, PX]}] * 2,
    "tvf_crop_params": [{"output_size": [PX, PX]}] * 2,
    "tvf_normalize_params": [
        {"inplace": False, "mean": [0.484375, 0.455078125, 0.40625], "std": [0.228515625, 0.2236328125, 0.224609375]},
        {"inplace": False, "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
    ],
}


@contextmanager
def tiny_encoders() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hf_config, "TIMM_VITS", {DINO: CONFIG.dinov2, SIGLIP: CONFIG.siglip})
        yield


def config() -> dict[str, Any]:
    """config.json."""
    return {
        "architectures": ["OpenVLAForActionPrediction"],
        "model_type": "openvla",
        "arch_specifier": "no-align+fused-gelu-mlp",
        "vision_backbone_id": "dinosiglip-vit-so-224px",
        "llm_backbone_id": "llama2-7b-pure",
        "use_fused_vision_backbone": True,
        "timm_model_ids": [DINO, SIGLIP],
        "timm_override_act_layers": [None, None],
        "image_sizes": [PX, PX],
        "image_resize_strategy": "resize-naive",
        "text_config": {"model_type": "llama", "pad_token_id": 32000, **llama_values(CONFIG.language)},
        "n_action_bins": 256,
        "pad_to_multiple_of": 64,
        "norm_stats": STATS,
        "torch_dtype": "float32",
        "transformers_version": "4.40.1",
    }


def robot() -> dict[str, Any]:
    """robot.json."""
    channel = {"unit": "m", "kind": "delta_previous", "lower": -2.0, "upper": 2.0, "hold": "zero"}
    channels = [{"name": name, **channel, **({"kind": "gripper"} if name == "gripper" else {})} for name in AXES]
    return {
        "dt_ms": 200,
        "action": {"channels": channels},
        "cameras": {"image": {"name": "top", "height": HEIGHT, "width": WIDTH}},
        "prompt": TEXT,
        "unnorm_key": "bridge_orig",
    }


def write_tokenizer(path: Path) -> None:
    """Words to ids as Llama's tokenizer begins: the sentence's first token first; the end does not come by itself."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    table = {"<unk>": 0, "<s>": 1, "": 29871} | {word: 300 + i for i, word in enumerate(WORDS)}
    made = Tokenizer(models.WordLevel(table, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split("?", "isolated")]
    )
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made.save(str(path))


def ids_of(text: str) -> list[int]:
    """By hand: the instruction alone is made lower-case."""
    told = ["In:", *["What", "action", "should", "the", "robot", "take", "to"], *text.lower().split(), "?", "Out:"]
    return [1, *(300 + WORDS.index(word) if word in WORDS else 0 for word in told), 29871]


def write(folder: Path) -> PublishedOpenVla:
    """The folder, in several shards. Returns the model whose weights they are."""
    from huggingface_hub import save_torch_state_dict

    folder.mkdir(parents=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = PublishedOpenVla(CONFIG, "eager").eval().requires_grad_(False)
    head = model.llama.lm_head.weight  # words of the language are unlikely, as after training
    head[: 32000 - 256] *= 0.01
    head[32000:] *= 0.01
    tensors = {name: tensor.clone() for name, tensor in model.folder().items()}
    save_torch_state_dict(tensors, folder, max_shard_size="1500KB")
    for name, values in (
        ("config.json", config()),
        ("preprocessor_config.json", PREPROCESSOR),
        ("robot.json", robot()),
    ):
        (folder / name).write_text(json.dumps(values), encoding="utf-8")
    write_tokenizer(folder / "tokenizer.json")
    return model


def pixels_of(picture: np.ndarray) -> Tensor:
    """As the published processor: Pillow's bicubic, then each encoder's own mean and std: [1, 6, px, px]."""
    from PIL import Image

    small = np.asarray(Image.fromarray(picture).resize((PX, PX), Image.Resampling.BICUBIC), dtype=np.float32) / 255
    parts = []
    for rule in PREPROCESSOR["tvf_normalize_params"]:
        mean, std = (torch.tensor(rule[key])[:, None, None] for key in ("mean", "std"))
        parts.append((torch.from_numpy(small).permute(2, 0, 1) - mean) / std)
    return torch.cat(parts)[None]


@torch.no_grad()
def predict(model: PublishedOpenVla, picture: np.ndarray, prompt: list[int], key: str = "bridge_orig") -> np.ndarray:
    """`predict_action` as published, with nothing kept: greedy tokens, bin centres, quantiles, mask."""
    ids, images, tokens = torch.tensor([prompt]), pixels_of(picture), []
    for _ in AXES:
        tokens.append(
            int(model(images, torch.cat([ids, torch.tensor([tokens], dtype=torch.int64)], 1))[0, -1].argmax())
        )
    stats = STATS[key]["action"]
    edges = np.linspace(-1, 1, 256)
    centres = (edges[:-1] + edges[1:]) / 2.0
    normalised = centres[np.clip(32000 - np.array(tokens) - 1, 0, 254)]
    low, high = np.array(stats["q01"]), np.array(stats["q99"])
    return np.where(stats["mask"], 0.5 * (normalised + 1) * (high - low) + low, normalised)
