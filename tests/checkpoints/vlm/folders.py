"""Tiny folders as transformers writes them, with random weights and a tokenizer trained on one sentence; and the model
that wrote each, to compare with. Nothing is downloaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file

from tests.models.published import randomise

TEXT = "the tee is on its goal and the block must turn left: how many red things are in the way? USER ASSISTANT user\n"
SPECIAL = {
    "smolvlm": ["<|im_start|>", "<end_of_utterance>", "<fake_token_around_image>", "<image>", "<global-img>"],
    "llava": ["<s>", "</s>", "<image>"],
    "qwen2_5_vl": ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"],
    "cogagent": ["<s>", "</s>", "<image>"],
}
TILES = [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
STOP = {"smolvlm": "<end_of_utterance>", "llava": "</s>", "qwen2_5_vl": "<|im_end|>", "cogagent": "</s>"}
IMAGE = {"smolvlm": "<image>", "llava": "<image>", "qwen2_5_vl": "<|image_pad|>", "cogagent": "<image>"}
VOCABULARY = 320
TEMPLATES = {
    "smolvlm": "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}{% if message['content'][0]"
    "['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}{% for line in message['content'] %}"
    "{% if line['type'] == 'text' %}{{line['text']}}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}"
    "{% endfor %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}",
    "llava": "{% for message in messages %}{{ message['role'].upper() + ': ' }}{% for part in message['content'] |"
    " selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}{% for part in message['content'] |"
    " selectattr('type', 'equalto', 'text') %}{% generation %}{{ part['text'] + ' ' }}{% endgeneration %}{% endfor %}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}",
    "qwen2_5_vl": "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
}
TEMPLATES["cogagent"] = TEMPLATES["llava"]
TILED = ("smolvlm", "idefics3")
for by_kind in (SPECIAL, STOP, IMAGE, TEMPLATES):
    by_kind["idefics3"] = by_kind["smolvlm"]
NORMAL = {"do_resize": True, "do_rescale": True, "do_normalize": True, "do_convert_rgb": True}


@dataclass(frozen=True)
class Written:
    """A folder, and the model that wrote it; None where no library has one."""

    path: Path
    model: Any


def image(height: int, width: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """A smooth random picture: what resizing does to it shows."""
    random = np.random.default_rng(seed)
    small = random.integers(0, 256, (max(height // 8, 2), max(width // 8, 2), 3), np.uint8)
    return np.ascontiguousarray(small.repeat(8, 0).repeat(8, 1)[:height, :width])


def write(
    kind: str, path: Path, dtype: torch.dtype = torch.float32, values: dict[str, Any] | None = None, **changes: Any
) -> Written:
    """dtype: of the weights in the file, which the returned model has in float32. values: the configuration's keys;
    CONFIGS' by default. changes: of these; `text_config` and `vision_config` are merged."""
    path.mkdir(parents=True, exist_ok=True)
    ids = tokenizer(kind, path)
    values = _merged(CONFIGS[kind](ids) if values is None else values, changes)
    model = _model(values) if kind != "cogagent" else None
    if model is not None:
        model.save_pretrained(path)
        file = path / "model.safetensors"
        save_file({name: tensor.to(dtype) for name, tensor in load_file(file).items()}, file)
        for parameter in model.parameters():
            parameter.copy_(parameter.to(dtype))
    else:
        (path / "config.json").write_text(json.dumps(values))
    processor = PROCESSORS[kind] | NORMAL
    if kind in TILED:
        side = values["vision_config"]["image_size"]
        processor |= {"size": {"longest_edge": 2 * side}, "max_image_size": {"longest_edge": side}}
    (path / "preprocessor_config.json").write_text(json.dumps(processor))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [ids[STOP[kind]]]}))
    (path / "chat_template.jinja").write_text(TEMPLATES[kind])
    settings = {"bos_token": "<s>"} if "<s>" in SPECIAL[kind] else {}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return Written(path, model)


def tokenizer(kind: str, path: Path) -> dict[str, int]:
    """Writes tokenizer.json; returns the ids of its special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    special = SPECIAL[kind] + (TILES if kind in TILED else [])
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator([TEXT] * 4, trainer)
    ids = {token: made.token_to_id(token) for token in special}
    if "<s>" in ids:
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", ids["<s>"])])
    made.save(str(path / "tokenizer.json"))
    return ids


def rewrite(path: Path, file: str, **changes: Any) -> None:
    """Changes keys of a JSON file; None removes one."""
    values = json.loads((path / file).read_text())
    values |= changes
    (path / file).write_text(json.dumps({key: value for key, value in values.items() if value is not None}))


def rename(path: Path, rule: Mapping[str, str]) -> int:
    """Rewrites model.safetensors with prefixes replaced, as other versions of transformers write them. Returns how many
    of the prefixes were there."""
    file, made, found = path / "model.safetensors", {}, set()
    for name, tensor in load_file(file).items():
        old = next((each for each in rule if name.startswith(each)), "")
        found.add(old)
        made[rule.get(old, "") + name.removeprefix(old)] = tensor
    save_file(made, file)
    return len(found - {""})


def _merged(values: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in changes.items():
        values[key] = values[key] | value if isinstance(values.get(key), dict) else value
    return values


def _model(values: dict[str, Any]) -> Any:
    import transformers

    name = {"smolvlm": "SmolVLM", "idefics3": "Idefics3", "llava": "Llava", "qwen2_5_vl": "Qwen2_5_VL"}
    settings, model = (
        getattr(transformers, name[values["model_type"]] + part) for part in ("Config", "ForConditionalGeneration")
    )
    with torch.random.fork_rng(devices=[]):
        made = model(settings(**values))
    randomise(made)
    made.tie_weights()
    return made


def _llama(**others: Any) -> dict[str, Any]:
    return {
        "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": 48, "intermediate_size": 80,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096,
        "rope_theta": 5000.0, **others,
    }  # fmt: skip


def _smolvlm(ids: dict[str, int]) -> dict[str, Any]:
    vision = {
        "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32,
        "patch_size": 8, "model_type": "smolvlm_vision",
    }  # fmt: skip
    return {
        "model_type": "smolvlm", "image_token_id": ids["<image>"], "scale_factor": 2, "vision_config": vision,
        "text_config": _llama(), "tie_word_embeddings": False,
    }  # fmt: skip


def _idefics3(ids: dict[str, int]) -> dict[str, Any]:
    made = _smolvlm(ids) | {"model_type": "idefics3"}
    made["vision_config"]["model_type"] = "idefics3_vision"
    return made


def _llava(ids: dict[str, int]) -> dict[str, Any]:
    vision = {
        "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 28,
        "patch_size": 7, "model_type": "clip_vision_model", "projection_dim": 16, "hidden_act": "quick_gelu",
    }  # fmt: skip
    return {
        "model_type": "llava", "image_token_index": ids["<image>"], "image_seq_length": 16, "vision_config": vision,
        "text_config": _llama(), "vision_feature_layer": -2,
    }  # fmt: skip


def _qwen(ids: dict[str, int]) -> dict[str, Any]:
    vision = {
        "hidden_size": 32, "intermediate_size": 44, "depth": 4, "num_heads": 2, "out_hidden_size": 48, "patch_size": 4,
        "window_size": 16, "fullatt_block_indexes": [1, 3], "model_type": "qwen2_5_vl_vision",
    }  # fmt: skip
    text = _llama(model_type="qwen2_5_vl_text") | {
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "mrope_section": [2, 2, 2]}
    }
    text.pop("rope_theta")
    return {
        "model_type": "qwen2_5_vl", "image_token_id": ids["<|image_pad|>"], "vision_config": vision,
        "vision_start_token_id": ids["<|vision_start|>"], "vision_end_token_id": ids["<|vision_end|>"],
        "text_config": text, "tie_word_embeddings": False,
    }  # fmt: skip


def _cogagent(ids: dict[str, int]) -> dict[str, Any]:
    vision = {
        "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 32,
        "patch_size": 8,
    }  # fmt: skip
    text = _llama(model_type="glm", attention_bias=True, rope_theta=5000.0, partial_rotary_factor=0.5, head_dim=16)
    return {
        "model_type": "cogagent", "image_token_id": ids["<image>"], "vision_config": vision, "text_config": text,
        "adapter_hidden_size": 72, "cross_hidden_size": 24, "cross_num_attention_heads": 3,
    }  # fmt: skip


CONFIGS = {"smolvlm": _smolvlm, "idefics3": _idefics3, "llava": _llava, "qwen2_5_vl": _qwen, "cogagent": _cogagent}
PROCESSORS: dict[str, dict[str, Any]] = {
    "smolvlm": {"do_image_splitting": True},
    "idefics3": {"do_image_splitting": True},
    "llava": {"size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}, "do_center_crop": True},
    "qwen2_5_vl": {"patch_size": 4, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 256, "max_pixels": 4096},
    "cogagent": {"size": {"height": 32, "width": 32}},
}
