"""Every model against the library that published it: the same folder, the same images, the same tokens, in float32.

Guards: a key that is read and not used; a norm's eps or a rope's base that is the default's; projections or halves that
are swapped; an image whose tokens, order or positions differ; a prefix that only one version of transformers writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from auras_ros.checkpoints.vlm import open as opening
from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.checkpoints.vlm.open import VlmCheckpoint, open_vlm
from tests.checkpoints.vlm.decoding import greedy_logits
from tests.checkpoints.vlm.folders import IMAGE, Written, image, rename, write

pytest.importorskip("transformers")
pytest.importorskip("PIL")

KINDS = ("smolvlm", "llava", "qwen2_5_vl")
TOKENS = 12
SIZES = {"text": [], "one": [(40, 60)], "several": [(64, 64), (25, 70), (90, 31)]}


def asked(checkpoint: VlmCheckpoint, sizes: list[tuple[int, int]]) -> VlmPrompt:
    images = [image(*size, seed=seed) for seed, size in enumerate(sizes)]
    parts: list[dict[str, Any]] = [{"type": "image"} for _ in images] + [{"type": "text", "text": "is the tee left?"}]
    return checkpoint.prompts.chat([{"role": "user", "content": parts}], images)


def reference(written: Written, prompt: VlmPrompt, kind: str) -> tuple[list[int], torch.Tensor]:
    """transformers' greedy tokens and scores for the same ids and the same pixels."""
    inputs: dict[str, Any] = {"input_ids": prompt.ids[None], "attention_mask": torch.ones(1, len(prompt.ids))}
    if prompt.images:
        pixels = torch.cat([each.pixels for each in prompt.images])
        inputs["pixel_values"] = pixels[None] if kind in ("smolvlm", "idefics3") else pixels
    if kind == "qwen2_5_vl":
        types = torch.zeros(1, len(prompt.ids), dtype=torch.int64)
        types[0, prompt.at] = 1
        inputs["mm_token_type_ids"] = types
        if prompt.images:
            px = 4
            inputs["pixel_values"] = (
                inputs["pixel_values"].unflatten(1, (3, 1, px * px)).expand(-1, -1, 2, -1).flatten(1)
            )
            inputs["image_grid_thw"] = torch.tensor([[1, *each.grid] for each in prompt.images])
    out = written.model.generate(
        **inputs, max_new_tokens=TOKENS, do_sample=False, eos_token_id=None, return_dict_in_generate=True,
        output_logits=True, pad_token_id=0,
    )  # fmt: skip
    return out.sequences[0, len(prompt.ids) :].tolist(), torch.cat(out.logits)


def check(written: Written, kind: str, sizes: list[tuple[int, int]]) -> None:
    checkpoint = open_vlm(written.path)
    prompt = asked(checkpoint, sizes)
    assert len(prompt.images) == len(sizes)
    tokens, scores = greedy_logits(checkpoint.model, prompt, TOKENS)
    wanted, wanted_scores = reference(written, prompt, kind)
    assert tokens == wanted
    torch.testing.assert_close(scores, wanted_scores, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_those_of_transformers(kind: str, sizes: list[tuple[int, int]], tmp_path: Path) -> None:
    check(write(kind, tmp_path / kind), kind, sizes)


CHANGED: dict[str, tuple[str, dict[str, Any]]] = {
    "idefics3": ("smolvlm", {"model_type": "idefics3", "vision_config": {"model_type": "idefics3_vision"}}),
    "more-patches": ("smolvlm", {"vision_config": {"patch_size": 4, "layer_norm_eps": 1e-3}, "scale_factor": 4}),
    "remainder": ("smolvlm", {"vision_config": {"image_size": 31, "patch_size": 7}}),
    "odd-side": ("smolvlm", {"vision_config": {"image_size": 36, "patch_size": 6}, "scale_factor": 3}),
    "tied": ("smolvlm", {"tie_word_embeddings": True}),
    "llama3": (
        "llava",
        {
            "text_config": {
                "rms_norm_eps": 1e-3,
                "rope_theta": None,
                "rope_parameters": {
                    "rope_type": "llama3", "rope_theta": 5000.0, "factor": 4.0, "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
                },
            }
        },
    ),
    "last-layer": ("llava", {"vision_feature_layer": -1}),
    "no-window": ("qwen2_5_vl", {"vision_config": {"fullatt_block_indexes": [0, 1, 2, 3]}}),
    "one-token-windows": ("qwen2_5_vl", {"vision_config": {"window_size": 8}}),
    "one-key-head": ("qwen2_5_vl", {"text_config": {"num_key_value_heads": 1, "rms_norm_eps": 1e-3}}),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_every_key_counts(name: str, tmp_path: Path) -> None:
    kind, changes = CHANGED[name]
    check(write(kind, tmp_path / name, **changes), changes.get("model_type", kind), SIZES["several"])


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_in_the_file_is_widened_and_not_rounded_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers in float32 with the very weights of a bfloat16 folder, on a CPU that is slow in bfloat16."""
    monkeypatch.setattr(opening, "bfloat16_is_faster", lambda: False)
    written = write(kind, tmp_path, torch.bfloat16)
    check(written, kind, SIZES["several"])


OTHERS = {
    "llava": {
        "language_model.lm_head.": "lm_head.",
        "language_model.model.": "model.language_model.",
        "vision_tower.": "model.vision_tower.vision_model.",
        "multi_modal_projector.": "model.multi_modal_projector.",
    },
    "qwen2_5_vl": {"visual.": "model.visual.", "model.": "model.language_model."},
}


@pytest.mark.parametrize("kind", OTHERS)
def test_prefixes_of_other_versions_are_read_too(kind: str, tmp_path: Path) -> None:
    written = write(kind, tmp_path / kind)
    before = open_vlm(written.path).model.state_dict()
    assert rename(written.path, OTHERS[kind]) == len(OTHERS[kind])
    after = open_vlm(written.path).model.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_image_tokens_stand_where_the_template_puts_the_image(tmp_path: Path) -> None:
    checkpoint = open_vlm(write("qwen2_5_vl", tmp_path).path)
    parts = [{"type": "text", "text": "before"}, {"type": "image"}, {"type": "text", "text": "after"}]
    prompt = checkpoint.prompts.chat([{"role": "user", "content": parts}], [image(16, 24)])
    text = checkpoint.prompts.tokenizer.decode(prompt.ids.tolist(), skip_special_tokens=False)
    assert text.count(IMAGE["qwen2_5_vl"]) == prompt.images[0].tokens == len(prompt.at)
    assert "before<|vision_start|>" in text
    assert "<|vision_end|>after" in text
