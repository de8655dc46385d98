"""Folders that older versions of transformers saved, from the image and the question to the tokens and their scores.

Written by scripts/write_loader_fixtures/vlm_folders.py; the newest version writes those of test_vlm_parity.py. Guards:
a prefix, a key or a file's form that only one version writes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from auras_ros.checkpoints.vlm.open import open_vlm
from tests.checkpoints.vlm.decoding import greedy_logits
from tests.checkpoints.vlm.versions import DATA, QUESTION, TOKENS, picture

pytest.importorskip("PIL")
pytest.importorskip("jinja2")
pytest.importorskip("tokenizers")

# What tells the versions apart: the names of the first layer's norm and of the head.
NORM, HEAD = "layers.0.input_layernorm.weight", "lm_head.weight"
WRITTEN = {
    "llava_4.46.3": ("language_model.model.", "language_model."),
    "llava_4.52.3": ("model.language_model.", ""),
    "llava_5.4.0": ("model.language_model.model.", "language_model."),
    "qwen2_5_vl_4.50.3": ("model.", ""),
    "qwen2_5_vl_4.57.3": ("model.", ""),
    "idefics3_4.46.3": ("model.text_model.", ""),
    "smolvlm_4.50.3": ("model.text_model.", ""),
}


def test_every_folder_is_tried() -> None:
    assert {path.name for path in DATA.iterdir()} == set(WRITTEN)


@pytest.mark.parametrize("name", WRITTEN)
def test_the_answer_is_that_of_the_version_that_wrote_it(name: str) -> None:
    kind, _, version = name.rpartition("_")
    path = DATA / name
    assert json.loads((path / "config.json").read_text())["transformers_version"] == version
    names = load_file(path / "model.safetensors").keys()
    norm, head = WRITTEN[name]
    assert {norm + NORM, head + HEAD} <= names
    answered = load_file(path / "reference.safetensors")
    checkpoint = open_vlm(path, dtype="float32")
    parts = [{"type": "image"}, {"type": "text", "text": QUESTION}]
    prompt = checkpoint.prompts.chat([{"role": "user", "content": parts}], [picture(kind)])
    assert prompt.ids.tolist() == answered["ids"].tolist()
    tokens, scores = greedy_logits(checkpoint.model, prompt, TOKENS)
    assert tokens == answered["tokens"].tolist()
    torch.testing.assert_close(scores, answered["scores"], atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("unread", [{"image_seq_length": 576}, {"unsloth_fixed": True, "unsloth_version": "2026.11.1"}])
def test_keys_that_transformers_does_not_read_refuse_no_folder(unread: dict[str, Any], tmp_path: Path) -> None:
    """transformers writes image_seq_length 576 whatever the tower: an image has as many tokens as the tower patches."""
    source = DATA / "llava_5.4.0"
    for file in source.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(values | unread))
    messages = [{"role": "user", "content": [{"type": "image"}]}]
    prompts = [open_vlm(folder).prompts.chat(messages, [picture("llava")]) for folder in (source, tmp_path)]
    assert prompts[0].ids.tolist() == prompts[1].ids.tolist()
    assert prompts[0].images[0].tokens == 16
