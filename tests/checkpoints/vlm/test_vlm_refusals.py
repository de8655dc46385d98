"""Folders that are not quite what they should be: each is refused by file and key, or by file and tensor.

Guards: a key that changes the arithmetic and is passed over; a tensor that is left out and stays random; half a folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from auras_ros.checkpoints.config_reader import ConfigReader
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.vlm import idefics3, llava, qwen_vl
from auras_ros.checkpoints.vlm import open as opening
from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.models.sampler import Sampling
from tests.checkpoints.vlm.folders import image, rewrite, write

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: write(kind, tmp_path_factory.mktemp(kind)).path for kind in ("smolvlm", "llava", "qwen2_5_vl")}


def copied(source: Path, path: Path) -> Path:
    for file in source.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    return path


CONFIG: dict[str, tuple[str, dict[str, Any], str]] = {
    "type": ("llava", {"model_type": "llava_next"}, "model_type: 'llava_next' is not known; known: cogagent, idefics3"),
    "unknown": ("llava", {"feature_layer": -2}, "feature_layer: is unknown; did you mean vision_feature_layer"),
    "two-unknown": ("llava", {"layer": -2, "tokens": 3}, r"config.layer: is unknown, and config.tokens: is unknown"),
    "unknown-text": ("smolvlm", {"text_config": {"rope_base": 3}}, "config.text_config.rope_base: is unknown"),
    "unknown-vision": ("qwen2_5_vl", {"vision_config": {"deepstack": 3}}, "config.vision_config.deepstack: is unknown"),
    "layers": ("llava", {"vision_feature_layer": [-2, -1]}, "config.vision_feature_layer: .* expected one layer"),
    "deeper": ("llava", {"vision_feature_layer": -9}, "feature_layer: -9 is not in"),
    "strategy": ("llava", {"vision_feature_select_strategy": "full"}, "vision_feature_select_strategy: 'full'"),
    "activation": ("smolvlm", {"text_config": {"hidden_act": "relu"}}, "config.text_config.hidden_act: 'relu'"),
    "tower": ("smolvlm", {"vision_config": {"hidden_act": "relu"}}, "config.vision_config.hidden_act: 'relu'"),
    "heads": ("smolvlm", {"text_config": {"num_key_value_heads": 3}}, "heads: 4 is not a multiple of kv_heads, 3"),
    "no-number": ("smolvlm", {"text_config": {"hidden_size": "48"}}, "text_config.hidden_size: '48' is not a whole"),
    "fold": ("smolvlm", {"scale_factor": 3}, "fold: 3 does not divide the 4 patches of a side"),
    "sliding": ("qwen2_5_vl", {"text_config": {"use_sliding_window": True}}, "text_config.use_sliding_window: True"),
    "some-layers": ("qwen2_5_vl", {"text_config": {"layer_types": ["sliding_attention"]}}, "text_config.layer_types"),
    "sections": (
        "qwen2_5_vl",
        {"text_config": {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 2]}}},
        r"mrope: \[2, 2\] are not 6 frequencies",
    ),
    "rope": (
        "qwen2_5_vl",
        {"text_config": {"rope_parameters": {"rope_type": "yarn", "mrope_section": [2, 2, 2]}}},
        "text_config.rope_parameters.rope_type: 'yarn'",
    ),
    "window": ("qwen2_5_vl", {"vision_config": {"window_size": 12}}, "window_px: 12 is not a multiple of 8"),
    "whole": ("qwen2_5_vl", {"vision_config": {"fullatt_block_indexes": [9]}}, "there is no layer 9 of 4"),
    "out": ("qwen2_5_vl", {"vision_config": {"out_hidden_size": 40}}, "vision.out: 40 is not the language width, 48"),
    "image-token": ("llava", {"image_token_index": 999}, "config.image_token_index: 999 is not from 0 to 319"),
    "endless-layers": ("llava", {"text_config": {"num_hidden_layers": 10**9}}, "layers: 1000000000 is more than 256"),
    "endless-tower": ("smolvlm", {"vision_config": {"num_hidden_layers": 10**9}}, "depth: 1000000000 is more than"),
    "wide": ("qwen2_5_vl", {"text_config": {"intermediate_size": 10**30}}, "hidden: a number of 100 bits is more than"),
    "larger-than-its-file": ("llava", {"text_config": {"vocab_size": 10**6}}, "the tensors have .* numbers, but"),
    "no-text": ("llava", {"text_config": [1]}, "config.text_config: is not a mapping"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIG)
def test_a_configuration_that_is_not_built_is_refused_by_key(
    name: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    kind, changes, said = CONFIG[name]
    path = copied(folders[kind], tmp_path)
    values = json.loads((path / "config.json").read_text())
    for key, value in changes.items():
        values[key] = values[key] | value if isinstance(value, dict) else value
    (path / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=said) as error:
        open_vlm(path)
    assert str(path if name == "larger-than-its-file" else path / "config.json") in str(error.value)


TENSORS = {
    "missing": ("llava", "language_model.model.norm.weight", "is missing"),
    "missing-part": ("smolvlm", "model.vision_model.encoder.layers.1.self_attn.k_proj.bias", "is missing"),
    "missing-head": ("qwen2_5_vl", "lm_head.weight", "is missing"),
    "of-no-part": ("llava", "audio_tower.weight", "belongs to no part of this model"),
    "of-no-layer": ("llava", "language_model.model.layers.3.mlp.up_proj.weight", "belongs to no part of this model"),
    "of-no-tower-layer": ("llava", "vision_tower.encoder.layers.3.mlp.fc1.bias", "belongs to no part of this model"),
    "adapter-of-the-head": ("smolvlm", "lm_head.lora_A.weight", "belongs to no part of this model"),
    "twice": ("llava", "model.language_model.norm.weight", "repeats 'language_model.model.norm.weight' under another"),
    "adapter": ("smolvlm", "model.text_model.layers.0.mlp.up_proj.lora_A.weight", "belongs to no part of this model"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_missing_or_too_many_is_refused_by_name(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    """A missing one by the name that it would have in the folder."""
    kind, tensor, said = TENSORS[name]
    path = copied(folders[kind], tmp_path)
    tensors = load_file(path / "model.safetensors")
    if tensors.pop(tensor, None) is None:
        tensors[tensor] = torch.zeros(48)
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"tensor '{tensor}' {said}"):
        open_vlm(path)


def test_a_tensor_of_another_shape_is_refused_by_name(folders: dict[str, Path], tmp_path: Path) -> None:
    for kind, tensor, other in (
        ("llava", "multi_modal_projector.linear_1.weight", torch.zeros(3, 3)),
        ("smolvlm", "model.vision_model.encoder.layers.1.self_attn.k_proj.weight", torch.zeros(3, 3)),
        ("qwen2_5_vl", "visual.patch_embed.proj.weight", torch.zeros(32, 3, 3, 4, 4)),
    ):
        path = tmp_path / kind
        path.mkdir()
        tensors = load_file(copied(folders[kind], path) / "model.safetensors")
        save_file(tensors | {tensor: other}, path / "model.safetensors")
        with pytest.raises(CheckpointError, match=r"shape .*expected|does not fit") as error:
            open_vlm(path)
        assert tensor.rsplit(".", 2)[0] in str(error.value)


def test_numbers_that_are_not_finite_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    path = copied(folders["llava"], tmp_path)
    tensors = load_file(path / "model.safetensors")
    tensors["language_model.model.norm.weight"][3] = torch.nan
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"language_model.model.norm.weight' holds NaN"):
        open_vlm(path)


FILES: dict[str, tuple[str, Any, str]] = {
    "no-config": ("config.json", None, "config.json: file not found"),
    "no-tokenizer": ("tokenizer.json", None, "tokenizer.json: not a tokenizer"),
    "no-processor": ("preprocessor_config.json", None, "preprocessor_config.json: file not found"),
    "no-weights": ("model.safetensors", None, "neither model.safetensors nor"),
    "half-tokenizer": ("tokenizer.json", b"{", "not a tokenizer"),
    "half-weights": ("model.safetensors", b"\x10\0\0\0\0\0\0\0{", "not a readable safetensors file"),
    "list": ("config.json", b"[]", "expected an object, got list"),
    "stop": ("generation_config.json", b'{"eos_token_id": 320}', "eos_token_id: 320 is not a token of 320"),
    "stop-text": ("generation_config.json", b'{"eos_token_id": ["</s>"]}', "eos_token_id: '</s>' is not a token"),
}


@pytest.mark.parametrize("name", FILES)
def test_half_a_folder_is_refused_by_file(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    file, content, said = FILES[name]
    path = copied(folders["llava"], tmp_path)
    (path / file).unlink()
    if content is not None:
        (path / file).write_bytes(content)
    with pytest.raises(CheckpointError, match=said):
        open_vlm(path)


def test_without_a_stop_token_an_answer_would_not_end(folders: dict[str, Path], tmp_path: Path) -> None:
    path = copied(folders["smolvlm"], tmp_path)
    (path / "generation_config.json").unlink()
    values = json.loads((path / "config.json").read_text())
    values["text_config"].pop("eos_token_id", None)
    (path / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match="eos_token_id: missing"):
        open_vlm(path)
    rewrite(path, "config.json", eos_token_id=5)
    assert open_vlm(path).stop_ids == {5}


def test_a_tied_model_has_one_head(folders: dict[str, Path], tmp_path: Path) -> None:
    """A head that is stored beside it must be the embedding."""
    path = copied(folders["qwen2_5_vl"], tmp_path)
    rewrite(path, "config.json", tie_word_embeddings=True)
    with pytest.raises(CheckpointError, match=r"embed_tokens.weight': lm_head.weight differs from it"):
        open_vlm(path)
    tensors = load_file(path / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, path / "model.safetensors")
    assert open_vlm(path).model.language.lm_head is None


def test_what_generation_config_asks_for(folders: dict[str, Path], tmp_path: Path) -> None:
    path = copied(folders["llava"], tmp_path)
    assert open_vlm(path).sampling == Sampling(temperature=0)
    rewrite(path, "generation_config.json", do_sample=True, temperature=0.7, repetition_penalty=1.05, top_k=None)
    assert open_vlm(path).sampling == Sampling(temperature=0.7, repetition_penalty=1.05)
    rewrite(path, "generation_config.json", top_p=3)
    with pytest.raises(CheckpointError, match=r"generation_config.json: top_p: 3 is not a number from 0 to 1"):
        open_vlm(path)


def test_the_file_of_the_whole_processor_counts(folders: dict[str, Path], tmp_path: Path) -> None:
    """transformers 5 writes it, and may leave an older file beside it."""

    def pixels() -> Tensor:
        return open_vlm(path).prompts.plain("<image>", [image(28, 28)]).images[0].pixels

    path = copied(folders["llava"], tmp_path)
    usual = pixels()
    inner = json.loads((path / "preprocessor_config.json").read_text()) | {"image_mean": [0.1, 0.5, 0.7]}
    (path / "processor_config.json").write_text(json.dumps({"image_processor": inner}))
    made = pixels()
    assert not torch.equal(made, usual)
    (path / "preprocessor_config.json").unlink()
    assert torch.equal(pixels(), made)


@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "float16"])
def test_the_runtime_dtype_is_the_policies_rule(dtype: str, folders: dict[str, Path]) -> None:
    made = open_vlm(folders["qwen2_5_vl"], dtype).model
    kinds = {parameter.dtype for parameter in made.parameters()}
    assert kinds == {torch.float32 if dtype == "auto" else getattr(torch, dtype)}


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("faster", [True, False])
def test_weights_stay_in_bfloat16_where_it_is_faster(
    stored: torch.dtype, faster: bool, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "bfloat16_is_faster", lambda: faster)
    path = copied(folders["llava"], tmp_path)
    for file in path.glob("*.safetensors"):
        save_file({name: each.to(stored) for name, each in load_file(file).items()}, file, {"format": "pt"})
    kinds = {parameter.dtype for parameter in open_vlm(path).model.parameters()}
    assert kinds == {stored if faster and stored == torch.bfloat16 else torch.float32}


def test_the_published_configurations_are_taken() -> None:
    """The keys of SmolVLM2-500M, LLaVA-1.5-7B and Qwen2.5-VL-3B as they are published, and their sizes."""
    smol = idefics3.read(ConfigReader(SMOLVLM2, "config"))
    assert (smol.image_token_id, smol.length, smol.vocabulary) == (49190, 8192, 49280)
    large = llava.read(ConfigReader(LLAVA, "config"))
    assert (large.image_token_id, large.length, large.vocabulary) == (32000, 4096, 32064)
    qwen = qwen_vl.read(ConfigReader(QWEN, "config"))
    assert (qwen.image_token_id, qwen.length, qwen.vocabulary) == (151655, 128000, 151936)
    whole = {
        **SMOLVLM2,
        "scale_factor": 3,
        "text_config": SMOL_2B,
        "vision_config": SIGLIP_384,
        "image_token_id": 49153,
    }
    two = idefics3.read(ConfigReader(whole, "config"))
    assert two.sizes.tokens == 81
    for form, numbers in (
        (smol, 507_482_304),
        (qwen, 3_754_622_976 - 1280 * 588),
        (large, 7_063_427_072 - 12_596_224 - 2048),
    ):
        with torch.device("meta"):
            assert sum(each.numel() for each in form.build().parameters()) == numbers


SMOLVLM2 = {
    "architectures": ["SmolVLMForConditionalGeneration"], "image_token_id": 49190, "model_type": "smolvlm",
    "pad_token_id": 128002, "scale_factor": 4, "tie_word_embeddings": False, "torch_dtype": "float32",
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}, "transformers_version": "4.47.1",
    "use_cache": False, "use_reentrant_checkpointing": False, "vocab_size": 49280,
    "text_config": {
        "_flash_attn_2_enabled": True, "_name_or_path": "None", "architectures": ["VLlama3ForCausalLM"],
        "head_dim": 64, "hidden_size": 960, "intermediate_size": 2560, "is_llama_config": True,
        "max_position_embeddings": 8192, "model_type": "llama", "neftune_noise_alpha": 0.0,
        "num_attention_heads": 15, "num_hidden_layers": 32, "num_key_value_heads": 5, "pad_token_id": 2,
        "perceiver_config": {"resampler_depth": 6}, "pixel_shuffle_factor": 4, "qk_layer_norms": False,
        "rms_norm_eps": 1e-05, "rope_interleaved": False, "rope_theta": 100000, "torch_dtype": "bfloat16",
        "use_resampler": False, "vocab_size": 49280,
    },
    "vision_config": {
        "hidden_size": 768, "image_size": 512, "max_image_size": {"longest_edge": 512}, "model_type": "smolvlm_vision",
        "num_attention_heads": 12, "patch_size": 16, "size": {"longest_edge": 2048}, "tie_word_embeddings": False,
        "use_base_siglip": False,
    },
}  # fmt: skip
SMOL_2B = {
    "_flash_attn_2_enabled": True, "head_dim": 64, "hidden_size": 2048, "intermediate_size": 8192,
    "max_position_embeddings": 8192, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 24,
    "num_key_value_heads": 32, "rms_norm_eps": 1e-05, "rope_theta": 130000, "vocab_size": 49280,
}  # fmt: skip
SIGLIP_384 = {
    "hidden_size": 1152, "image_size": 384, "intermediate_size": 4304, "max_image_size": {"longest_edge": 384},
    "model_type": "smolvlm_vision", "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14,
}  # fmt: skip
LLAVA = {
    "architectures": ["LlavaForConditionalGeneration"], "ignore_index": -100, "image_token_index": 32000,
    "model_type": "llava", "pad_token_id": 32001, "projector_hidden_act": "gelu", "tie_word_embeddings": False,
    "torch_dtype": "float16", "transformers_version": "4.36.0.dev0", "vision_feature_layer": -2,
    "vision_feature_select_strategy": "default", "vocab_size": 32064,
    "text_config": {
        "_name_or_path": "lmsys/vicuna-7b-v1.5", "architectures": ["LlamaForCausalLM"],
        "max_position_embeddings": 4096, "model_type": "llama", "rms_norm_eps": 1e-05, "torch_dtype": "float16",
        "vocab_size": 32064,
    },
    "vision_config": {
        "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "model_type": "clip_vision_model",
        "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14, "projection_dim": 768,
        "vocab_size": 32000,
    },
}  # fmt: skip
QWEN = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"], "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151645, "vision_start_token_id": 151652, "vision_end_token_id": 151653, "vision_token_id": 151654,
    "image_token_id": 151655, "video_token_id": 151656, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 128000,
    "max_window_layers": 70, "model_type": "qwen2_5_vl", "num_attention_heads": 16, "num_hidden_layers": 36,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "transformers_version": "4.41.2", "use_cache": True,
    "use_sliding_window": False, "vocab_size": 151936,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "vision_config": {
        "depth": 32, "hidden_act": "silu", "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
        "in_chans": 3, "out_hidden_size": 2048, "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14,
        "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31], "tokens_per_second": 2, "temporal_patch_size": 2,
    },
}  # fmt: skip
