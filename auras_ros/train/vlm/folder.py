"""Writes the model as a folder of SmolVLM's form, which `checkpoints.vlm` opens: half precision on disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from auras_ros.checkpoints.hf_names import siglip_name
from auras_ros.models.idefics3 import Idefics3Config
from auras_ros.models.llama import LlamaConfig
from auras_ros.models.vit import VitConfig
from auras_ros.models.vlm import Vlm
from auras_ros.sim.pusht.world import IMAGE_PX
from auras_ros.train.vlm.questions import TOPICS

START, END, AROUND, WHOLE, IMAGE = (
    "<|im_start|>", "<end_of_utterance>", "<fake_token_around_image>", "<global-img>", "<image>",
)  # fmt: skip
BEFORE, ASK = f"{START}User:", f"{END}\nAssistant:"
MOST_TOKENS = 2000
LENGTH = 512
# SmolVLM2's own, as published.
TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}{% if message['content'][0]['type'] =="
    " 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}{% for line in message['content'] %}{% if line['type'] =="
    " 'text' %}{{ line['text'] }}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}"
    "<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)


def sizes(vocabulary: int) -> Idefics3Config:
    """Patches of 8 pixels, four of which become one token: 36 an image."""
    vision = VitConfig(IMAGE_PX, 8, 128, 5, 4, 512, "gelu_tanh", feature_layer=-1)
    language = LlamaConfig(vocabulary, 128, 3, 4, 4, 352, tied=True)
    return Idefics3Config(vision, language, 2)


def make_tokenizer() -> Any:
    """Byte-level BPE of all questions and answers: every answer is one token, or one for each of its parts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=MOST_TOKENS,
        special_tokens=[START, END, AROUND, WHOLE, IMAGE],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator(_texts(), trainer)
    return made


def _texts() -> Iterator[str]:
    for topic in TOPICS.values():
        for colour in topic.colours:
            yield from (wording.format(colour) for wording in topic.wordings)
        yield from (f" {answer}" for answer in topic.answers)
    yield from (f" x {number} y {number}" for number in range(101))
    yield "User: Assistant:"


def write_folder(folder: Path, model: Vlm, config: Idefics3Config, tokenizer: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    end = tokenizer.token_to_id(END)
    tensors = {name: tensor for key, value in model.state_dict().items() for name, tensor in _published(key, value)}
    half = {name: tensor.to(torch.float16).contiguous() for name, tensor in tensors.items()}
    save_file(half, folder / "model.safetensors", {"format": "pt"})
    files = {
        "config.json": _config(config, tokenizer.token_to_id(IMAGE), end),
        "generation_config.json": {"eos_token_id": [end], "do_sample": False},
        "preprocessor_config.json": _preprocessor(),
        "tokenizer_config.json": {"eos_token": END},
    }
    for name, values in files.items():
        (folder / name).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")


def _published(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Our tensor as transformers names it: one tensor, or queries, keys and values."""
    if name.startswith("language."):
        yield f"model.text_model.{name.removeprefix('language.')}", tensor
    elif name == "projector.linear.weight":
        yield "model.connector.modality_projection.proj.weight", tensor
    elif name.startswith("projector.norm."):
        yield f"model.vision_model.post_layernorm.{name.removeprefix('projector.norm.')}", tensor
    else:
        place = f"model.vision_model.{siglip_name(name.removeprefix('vision.'))}"
        if ".qkv." in place:
            for letter, part in zip("qkv", tensor.chunk(3), strict=True):
                yield place.replace(".qkv.", f".{letter}_proj."), part
        else:
            yield place, tensor[0] if name == "vision.pos_embed" else tensor


def _config(config: Idefics3Config, image: int, end: int) -> dict[str, Any]:
    vision, text = config.vision, config.language
    return {
        "architectures": ["SmolVLMForConditionalGeneration"],
        "model_type": "smolvlm",
        "dtype": "float16",
        "image_token_id": image,
        "eos_token_id": end,
        "pad_token_id": end,
        "scale_factor": config.fold,
        "tie_word_embeddings": True,
        "vision_config": {
            "model_type": "smolvlm_vision",
            "image_size": vision.image_px,
            "patch_size": vision.patch_px,
            "hidden_size": vision.width,
            "intermediate_size": vision.hidden,
            "num_hidden_layers": vision.depth,
            "num_attention_heads": vision.heads,
            "hidden_act": "gelu_pytorch_tanh",
            "layer_norm_eps": vision.norm_eps,
        },
        "text_config": {
            "model_type": "llama",
            "vocab_size": text.vocabulary,
            "hidden_size": text.width,
            "intermediate_size": text.hidden,
            "num_hidden_layers": text.layers,
            "num_attention_heads": text.heads,
            "num_key_value_heads": text.kv_heads,
            "max_position_embeddings": LENGTH,
            "rms_norm_eps": text.norm_eps,
            "rope_theta": text.rope_theta,
            "tie_word_embeddings": True,
            "pad_token_id": end,
            "eos_token_id": end,
        },
    }


def _preprocessor() -> dict[str, Any]:
    return {
        "image_processor_type": "SmolVLMImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"longest_edge": IMAGE_PX},
        "max_image_size": {"longest_edge": IMAGE_PX},
        "do_image_splitting": False,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "do_pad": True,
        "resample": 1,
    }
