"""Adapters as PEFT saves them, with random numbers, and transformers' models with their products added."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

PREFIX = "base_model.model."
LANGUAGE = r".*(?:language_model|text_model)\.layers\.\d+\.(?:self_attn\.[qkvo]_proj|mlp\.(?:gate|up|down)_proj)"
VISION = (
    r".*(?:vision_model|vision_tower|visual)\..*(?:q_proj|k_proj|v_proj|out_proj|qkv|proj|fc1|fc2|gate_proj|up_proj)"
)
CONFIG: dict[str, Any] = {
    "peft_type": "LORA", "base_model_name_or_path": "somewhere", "bias": "none", "fan_in_fan_out": False,
    "inference_mode": True, "init_lora_weights": True, "lora_dropout": 0.1, "modules_to_save": None,
    "task_type": "CAUSAL_LM", "use_dora": False, "use_rslora": False, "rank_pattern": {}, "alpha_pattern": {},
}  # fmt: skip


def linears(model: nn.Module, pattern: str) -> dict[str, nn.Linear]:
    """The model's linear layers whose name the pattern is."""
    found = {name: each for name, each in model.named_modules() if type(each) is nn.Linear}
    return {name: each for name, each in found.items() if re.fullmatch(pattern, name)}


def save_adapter(
    path: Path,
    model: nn.Module,
    pattern: str = LANGUAGE,
    rank: int = 4,
    alpha: float = 8.0,
    seed: int = 0,
    **config: Any,
) -> Path:
    """For all layers of transformers' model whose name the pattern is. config: more keys of its configuration."""
    shapes = {name: (layer.out_features, layer.in_features) for name, layer in linears(model, pattern).items()}
    return save_factors(path, shapes, rank, alpha, seed, **{"target_modules": pattern} | config)


def save_factors(
    path: Path, shapes: Mapping[str, tuple[int, int]], rank: int = 4, alpha: float = 8.0, seed: int = 0, **config: Any
) -> Path:
    """For these layers. shapes: [out, in] by published name."""
    path.mkdir(parents=True, exist_ok=True)
    made = CONFIG | {"r": rank, "lora_alpha": alpha, "target_modules": sorted(shapes)} | config
    random, tensors = torch.Generator().manual_seed(seed), dict[str, Tensor]()
    for name, (out, width) in shapes.items():
        own = of_pattern(made["rank_pattern"], name, rank)
        tensors[f"{PREFIX}{name}.lora_A.weight"] = torch.randn(own, width, generator=random) / own
        tensors[f"{PREFIX}{name}.lora_B.weight"] = torch.randn(out, own, generator=random) / 8
    save_file(tensors, path / "adapter_model.safetensors")
    (path / "adapter_config.json").write_text(json.dumps(made))
    return path


def of_pattern(patterns: Mapping[str, Any], layer: str, default: Any) -> Any:
    """The value of the first pattern that fits, as PEFT's `get_pattern_key` finds it."""
    return next((value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", layer)), default)


def products(path: Path) -> Iterator[tuple[str, Tensor]]:
    """What a layer's weight changes by, as PEFT's formula says, float64, by the layer's name."""
    config = json.loads((path / "adapter_config.json").read_text())
    tensors = load_file(path / "adapter_model.safetensors")
    for name, a in tensors.items():
        if name.endswith(".lora_A.weight"):
            layer = name.removeprefix(PREFIX).removesuffix(".lora_A.weight")
            b = tensors[name.replace("lora_A", "lora_B")]
            alpha = of_pattern(config["alpha_pattern"], layer, config["lora_alpha"])
            scale = alpha / (math.sqrt(len(a)) if config["use_rslora"] else len(a))
            yield layer, scale * (b.double() @ a.double())


@torch.no_grad()
def with_adapter(model: Any, path: Path) -> Any:
    """A copy of transformers' model with the adapter's products added to its weights."""
    made = copy.deepcopy(model)
    for layer, product in products(path):
        weight = made.get_submodule(layer).weight
        weight += product.to(weight.dtype)
    return made


def add_to_folder(folder: Path, adapter: Path) -> None:
    """Adds the adapter's products to the weights of a model's folder, whose names its layers have."""
    tensors = load_file(folder / "model.safetensors")
    for layer, product in products(adapter):
        tensors[f"{layer}.weight"] = (tensors[f"{layer}.weight"].double() + product).float()
    save_file(tensors, folder / "model.safetensors")


Changes = Callable[[dict[str, Tensor]], object]


def change_tensors(path: Path, change: Changes) -> None:
    """Rewrites the adapter's file."""
    tensors = load_file(path / "adapter_model.safetensors")
    change(tensors)
    save_file(tensors, path / "adapter_model.safetensors")


def change_config(path: Path, **keys: Any) -> None:
    file = path / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))
