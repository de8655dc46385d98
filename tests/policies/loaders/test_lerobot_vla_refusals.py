"""Folders of pi0, pi0.5 and SmolVLA that are not what they say: each refused, with the file and the thing named.

Every guard is tried alone, on a folder that is sound but for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from auras_ros.checkpoints import tokenizer
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.policies.loaders import lerobot_pi, lerobot_smolvla
from auras_ros.policies.loaders.open import load
from tests.policies.loaders.reference import DATA
from tests.policies.loaders.spoil_vla import (
    Spoil,
    config,
    filled,
    joined_digits,
    robot,
    step,
    tensors,
    text,
    tokenizing,
    without,
)
from tests.policies.loaders.tiny_vla import copied, shrink

PI0, PI05, SMOL, TOKENS = "lerobot_pi0", "lerobot_pi05", "lerobot_smolvla", "lerobot_smolvla_tokens"
LARGE = "model.paligemma_with_expert.paligemma."
EXPERT = "model.paligemma_with_expert.gemma_expert.model."
VLM = "model.vlm_with_expert."
UNNORMALIZER = "policy_postprocessor_step_0_unnormalizer_processor.safetensors"
NORMALIZER = "policy_preprocessor_step_5_normalizer_processor.safetensors"


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)


def steps(edit: Callable[[list[dict[str, Any]]], object]) -> Spoil:
    return text(lambda raw: edit(raw["steps"]), "policy_preprocessor.json")


def by_statistics(folder: Path) -> None:
    steps(lambda found: found[5]["config"]["norm_map"].update(VISUAL="MEAN_STD"))(folder)
    text(lambda raw: raw["normalization_mapping"].update(VISUAL="MEAN_STD"))(folder)
    mean, std = (f"observation.images.{{}}.{each}" for each in ("mean", "std"))
    cameras = ("top", "wrist", "empty_camera_0")
    made = {key.format(camera): torch.ones(3) for camera in cameras for key in (mean, std)}
    tensors(lambda found: found.update(made), NORMALIZER)(folder)


FAULTS: dict[str, tuple[str, Spoil, str]] = {
    "missing: vision": (
        PI0,
        without(f"{LARGE}model.vision_tower.vision_model.encoder.layers.1.mlp.fc1.weight"),
        f"tensor '{LARGE}model.vision_tower.vision_model.encoder.layers.1.mlp.fc1.weight' is missing",
    ),
    "missing: one of query, key, value": (
        PI0,
        without(f"{LARGE}model.vision_tower.vision_model.encoder.layers.0.self_attn.k_proj.bias"),
        "layers.0.self_attn.qkv.bias' is missing",
    ),
    "missing: expert": (
        PI0,
        without(f"{EXPERT}layers.1.input_layernorm.weight"),
        "layers.1.input_layernorm.weight' is",
    ),
    "missing: words": (PI05, without(f"{LARGE}lm_head.weight"), "language_model.embed_tokens.weight' is missing"),
    "missing: adaptive norm": (
        PI05,
        without(f"{EXPERT}norm.dense.bias"),
        "gemma_expert.model.norm.dense.bias' is miss",
    ),
    "missing: cross layer": (
        SMOL,
        without(f"{VLM}lm_expert.layers.1.self_attn.k_proj.weight"),
        "model.vlm_with_expert.lm_expert.layers.1.self_attn.k_proj.weight' is missing",
    ),
    "missing: state": (SMOL, without("model.state_proj.bias"), "tensor 'model.state_proj.bias' is missing"),
    "unknown: one more layer": (
        PI0,
        tensors(lambda found: found.update({f"{EXPERT}layers.2.mlp.up_proj.weight": torch.ones(24, 16)})),
        "tensor 'model.paligemma_with_expert.gemma_expert.model.layers.2.mlp.up_proj.weight' belongs to no part",
    ),
    "unknown: pi0's state in pi0.5": (
        PI05,
        tensors(lambda found: found.update({"model.state_proj.bias": torch.ones(16)})),
        "tensor 'model.state_proj.bias' belongs to no part",
    ),
    "unknown: smolvla": (
        SMOL,
        tensors(lambda found: found.update({f"{VLM}vlm.model.extra": torch.ones(1)})),
        "tensor 'model.vlm_with_expert.vlm.model.extra' belongs to no part",
    ),
    "shape: expert": (
        PI0,
        tensors(lambda found: found.update({f"{EXPERT}norm.weight": torch.zeros(17)})),
        r"gemma_expert.model.norm.weight' has shape \[17\], expected \[16\]",
    ),
    "shape: positions": (
        SMOL,
        tensors(
            lambda found: found.update(
                {f"{VLM}vlm.model.vision_model.embeddings.position_embedding.weight": torch.zeros(9, 24)}
            )
        ),
        r"position_embedding.weight' has shape \[1, 9, 24\], expected \[1, 16, 24\]",
    ),
    "type: whole numbers": (
        PI0,
        tensors(lambda found: found.update({"model.state_proj.bias": torch.ones(16, dtype=torch.int64)})),
        "tensor 'model.state_proj.bias' has type torch.int64",
    ),
    "NaN: weight": (PI0, filled("model.state_proj.bias", float("nan")), "'model.state_proj.bias' holds NaN"),
    "infinity: weight": (
        SMOL,
        filled("model.action_in_proj.bias", float("inf")),
        "'model.action_in_proj.bias' holds NaN",
    ),
    "statistics: missing": (
        PI0,
        without("action.std", UNNORMALIZER),
        f"{UNNORMALIZER}: tensor 'action.std'.*is missing",
    ),
    "statistics: of quantiles": (PI05, without("action.q99", UNNORMALIZER), "tensor 'action.q99'.*is missing"),
    "statistics: NaN": (
        PI0,
        filled("observation.state.mean", float("nan"), NORMALIZER),
        "'observation.state.mean' holds",
    ),
    "statistics: std below 0": (SMOL, filled("action.std", -0.5, UNNORMALIZER), "'action': std -0.5 is below zero"),
    "statistics: no range": (PI05, filled("action.q01", 99.0, UNNORMALIZER), "'action': q99 .* is below q01 99.0"),
    "pickle under a false name": (
        PI0,
        lambda folder: (folder / "model.safetensors").write_bytes(b"PK\x03\x04" + bytes(64)),
        "model.safetensors: is a pickle despite its name",
    ),
    "pickle": (
        SMOL,
        lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
        "model.safetensors: file not found; pytorch_model.bin is a pickle",
    ),
    "truncated": (
        PI05,
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-9]),
        "model.safetensors: not a readable safetensors file",
    ),
    "no JSON": (SMOL, lambda folder: (folder / "config.json").write_text("{"), "config.json: not JSON"),
    "unknown key": (PI0, config(lookahead=3), "config.json: key 'lookahead' is not known: what"),
    "unknown step": (PI0, step, "policy_preprocessor.json: step 'delta_actions' is not supported; expected"),
    "pi0's step in pi0.5": (
        PI05,
        text(lambda raw: raw["steps"][3].update(registry_name="pi0_new_line_processor"), "policy_preprocessor.json"),
        "step 'pi0_new_line_processor' is not supported",
    ),
    "pi0 without its line break": (PI0, steps(lambda found: found.pop(2)), "step 'pi0_new_line_processor' is missing"),
    "pi0 without its tokenizer": (PI0, steps(lambda found: found.pop(3)), "step 'tokenizer_processor' is missing"),
    "pi0.5 without its state": (
        PI05,
        steps(lambda found: found.pop(3)),
        "step 'pi05_prepare_state_tokenizer_processor_step' is missing; expected, in this order: normalizer_proc",
    ),
    "pi0.5's state before it is normalised": (
        PI05,
        steps(lambda found: found.append(found.pop(2))),
        "steps pi05_prepare_state_tokenizer_processor_step, tokenizer_processor, normalizer_processor; expected, in ",
    ),
    "a line break after the tokenizer": (
        SMOL,
        steps(lambda found: found.insert(3, found.pop(2))),
        "steps tokenizer_processor, smolvla_new_line_processor, normalizer_processor; expected, in this order: smol",
    ),
    "padding on the left": (
        PI0,
        tokenizing(padding_side="left"),
        "padding_side: 'left' is not supported; expected 'right'",
    ),
    "variant": (
        PI0,
        config(paligemma_variant="gemma_7b"),
        "paligemma_variant: 'gemma_7b' is not supported; expected 'gem",
    ),
    "expert's variant": (PI05, config(action_expert_variant="big"), "action_expert_variant: 'big' is not supported"),
    "layers that do not fit": (PI0, config(action_expert_variant="gemma_2b"), "has shape .*, expected"),
    "history": (PI0, config(n_obs_steps=2), "n_obs_steps: 2 is not supported; expected 1"),
    "periods": (SMOL, config(max_period=8.0), "max_period: 8.0 is not supported; expected 4.0"),
    "real-time chunking": (PI05, config(rtc_config={"enabled": True}), "rtc_config: .* is not supported"),
    "no square": (
        PI0,
        config(image_resolution=[28, 42]),
        r"image_resolution: \[28, 42\] is not supported; there are sq",
    ),
    "more executed than there is": (PI0, config(n_action_steps=7), "n_action_steps: 7 is more than chunk_size, 6"),
    "no number": (PI0, config(chunk_size="6"), "chunk_size: '6' is not a whole number above zero"),
    "too few states": (PI0, config(max_state_dim=2), "state: the robot has 3, the network takes 1 to 2"),
    "too few actions": (SMOL, config(max_action_dim=3), "actions: the robot has 4, the network takes 1 to 3"),
    "pictures by statistics": (
        PI0,
        by_statistics,
        "'observation.images.top' is normalised by statistics; expected IDENTITY",
    ),
    "vlm": (
        SMOL,
        config(vlm_model_name="HuggingFaceTB/Other"),
        "vlm_model_name: 'HuggingFaceTB/Other' is not supported",
    ),
    "aloha": (SMOL, config(adapt_to_pi_aloha=True), "adapt_to_pi_aloha: True is not supported; expected False"),
    "no cache": (SMOL, config(use_cache=False), "use_cache: False is not supported"),
    "size of pictures": (
        SMOL,
        config(resize_imgs_with_padding=[64, 64]),
        r"resize_imgs_with_padding: \[64, 64\] is not",
    ),
    "attention": (SMOL, config(attention_mode="linear"), "attention_mode: 'linear' is not supported"),
    "expert's layers": (SMOL, config(num_expert_layers=2), "num_expert_layers: 2 is not supported; expected -1 and 3"),
    "empty cameras": (TOKENS, config(empty_cameras=2), "empty_cameras: 2, but input_features has 1"),
    "tokens around pictures": (
        TOKENS,
        lambda folder: (folder / "tokenizer.json").write_text(
            (folder / "tokenizer.json").read_text().replace("<global-img>", "<local-img>")
        ),
        "tokenizer.json: token '<global-img>', which stands around images, is missing",
    ),
    "channels": (
        PI0,
        text(lambda raw: raw["action"]["channels"].pop(), "robot.json"),
        r"robot.json: action: 3 channels \(shoulder, elbow, wrist\), but .*config.json has 4 actions",
    ),
    "joints": (SMOL, robot(state=["shoulder"]), r"robot.json: state: 1 names \(shoulder\), but .* has 3"),
    "camera": (PI05, robot(cameras={"left": {"name": "left"}}), "robot.json: cameras: 'left' is not a camera"),
    "no robot.json": (PI0, lambda folder: (folder / "robot.json").unlink(), "robot.json: file not found"),
    "no instruction": (PI0, text(lambda raw: raw.pop("prompt"), "robot.json"), "robot.json: key 'prompt' is missing"),
    "long instruction": (SMOL, robot(prompt="turn " * 9), r"robot.json: prompt: \d+ tokens, but .* leaves room for 24"),
    "long instruction beside the state": (
        PI05,
        robot(prompt="turn " * 12),
        r"robot.json: prompt: \d+ tokens, but .* leaves room for 50",
    ),
    "no tokenizer": (
        PI0,
        lambda folder: (folder / "tokenizer.json").unlink(),
        "tokenizer.json: file not found; copy that of .* google/paligemma-3b-pt-224",
    ),
    "tokenizer that is none": (
        SMOL,
        lambda folder: (folder / "tokenizer.json").write_text("[]"),
        "tokenizer.json: not a tokenizer",
    ),
    "tokenizer without a beginning": (
        PI0,
        text(lambda raw: raw.update(post_processor=None), "tokenizer.json"),
        r"tokenizer.json: a text begins with ids \[\d+\], not with 2",
    ),
    "tokenizer without a beginning, pi0.5": (
        PI05,
        text(lambda raw: raw.update(post_processor=None), "tokenizer.json"),
        r"tokenizer.json: a text begins with ids \[\d+\], not with 2",
    ),
    "states beyond counting": (PI05, config(max_state_dim=10**9), "max_state_dim: 1000000000 is more than 1024"),
    "steps beyond counting": (PI0, config(num_inference_steps=10**9), "steps: 1000000000 is more than 1000"),
    "horizon beyond counting": (PI0, config(chunk_size=10**9), "horizon: 1000000000 is more than 1024"),
    "robot's steps beyond counting": (
        PI0,
        robot(plans={"slow": {"steps": 10**9}}),
        "plans: slow: steps: 1000000000 is more than 1000",
    ),
    "tokenizer that joins numbers": (PI05, joined_digits, "the tokenizer joins numbers with their neighbours"),
    "tokenizer of more words": (
        PI0,
        tensors(lambda found: found.update({f"{LARGE}lm_head.weight": torch.ones(20, 32)})),
        r"embed_tokens.weight' has shape \[20, 32\], expected \[82, 32\]",
    ),
}


@pytest.mark.parametrize(
    ("name", "module"), [(PI0, lerobot_pi), (PI05, lerobot_pi), (SMOL, lerobot_smolvla)], ids=[PI0, PI05, SMOL]
)
def test_a_key_that_changes_actions_is_not_guessed(name: str, module: ModuleType, tmp_path: Path) -> None:
    folder = copied(name, tmp_path)
    whole = (folder / "config.json").read_text()
    for key in sorted((module.KEYS | {"n_obs_steps", "normalization_mapping"}) - module.LATER):
        text(lambda raw, key=key: raw.pop(key))(folder)  # type: ignore[misc]
        with pytest.raises(CheckpointError, match=f"config.json: key '{key}' is missing"):
            load(folder)
        (folder / "config.json").write_text(whole)
    text(lambda raw: raw.pop("rtc_config"))(folder)
    load(folder)


def test_a_tokenizer_too_large_to_be_one_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "TOKENIZER_BYTES", 1000)
    with pytest.raises(CheckpointError, match=r"tokenizer.json: \d+ bytes, expected 1000 at most"):
        load(DATA / PI0)


@pytest.mark.parametrize("fault", FAULTS)
def test_refused_by_name(fault: str, tmp_path: Path) -> None:
    name, spoil, why = FAULTS[fault]
    folder = copied(name, tmp_path)
    spoil(folder)
    with pytest.raises(CheckpointError) as raised:
        load(folder)
    assert re.search(why, str(raised.value)), str(raised.value)
    assert str(tmp_path) in str(raised.value)
