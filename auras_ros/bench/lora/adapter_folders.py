"""Folders of random adapters for a published model, as PEFT saves them: what every side of a comparison loads."""

from __future__ import annotations

import json
import re
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

LAYER = re.compile(r"(?P<layer>.*\blayers\.\d+\.(?:self_attn\.[qkvo]_proj|mlp\.(?:gate|up|down)_proj))\.weight")
TOWERS = ("visual.", "vision")
WEIGHTS = "model.safetensors"


def write_adapters(model: Path, into: Path, count: int, rank: int, seed: int) -> dict[str, Path]:
    """`count` adapters of all linear layers of the decoder, by name, in bfloat16 as training usually leaves them. Their
    products are about a tenth of the weights, so that answers differ and numbers stay finite. An earlier folder is
    written over."""
    with safe_open(model / WEIGHTS, framework="pt") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118  (not a dict)
    layers = {match["layer"]: shapes[name] for name in shapes if (match := LAYER.fullmatch(name)) and not _sees(name)}
    made = {}
    for number in range(count):
        random = torch.Generator().manual_seed(seed * 1000 + number)
        name, tensors = f"adapter-{number}", dict[str, torch.Tensor]()
        for layer, (out, width) in layers.items():
            tensors[f"base_model.model.{layer}.lora_A.weight"] = torch.randn(rank, width, generator=random) / width**0.5
            tensors[f"base_model.model.{layer}.lora_B.weight"] = (
                torch.randn(out, rank, generator=random) / 10 / rank**0.5
            )
        made[name] = into / name
        made[name].mkdir(parents=True, exist_ok=True)
        tensors = {each: tensor.bfloat16() for each, tensor in tensors.items()}
        save_file(tensors, made[name] / "adapter_model.safetensors")
        config = {
            "peft_type": "LORA",
            "r": rank,
            "lora_alpha": rank,
            "target_modules": _targets(layers),
            "bias": "none",
        }
        (made[name] / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    return made


def _sees(name: str) -> bool:
    return any(tower in name for tower in TOWERS)


def _targets(layers: dict[str, list[int]]) -> list[str]:
    return sorted({name.rpartition(".")[2] for name in layers})
