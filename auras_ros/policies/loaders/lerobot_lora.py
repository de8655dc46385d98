"""LoRA adapters that LeRobot trains: adapter_config.json and adapter_model.safetensors, beside config.json and the
processors, with no weights of the policy itself.

The adapter is merged into the weights of its base, which the user names: W + scale B A for every adapted layer, and
layers that were trained whole take the place of the base's. Names are those of LeRobot's networks. Nothing is
downloaded, and nothing of the folders is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from auras_ros.checkpoints.config_reader import ConfigReader
from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.files import read_weights
from auras_ros.checkpoints.json_file import read_json
from auras_ros.checkpoints.peft import CONFIG, WEIGHTS, PublishedLayer, published_layer
from auras_ros.checkpoints.peft_config import RankAndScale, layer_scales
from auras_ros.values import shown

POLICY_CONFIG, POLICY_WEIGHTS = "config.json", "model.safetensors"
WHOLE = "modules_to_save"  # key of adapter_config.json: modules that are trained whole; also a part of their names
PREFIX = "base_model.model."
MODEL = "model."  # openpi's own folders do not have it


def is_adapter_folder(folder: Path) -> bool:
    """Whether a folder is an adapter. Raises CheckpointError if it has weights of its own too."""
    if not (folder / CONFIG).is_file():
        return False
    if (folder / POLICY_WEIGHTS).is_file():
        raise CheckpointError(f"{folder}: has both {POLICY_WEIGHTS} and {CONFIG}: remove the one that is not meant")
    return True


def merged_tensors(folder: Path, base: Path | None) -> dict[str, Tensor]:
    """The base's tensors with the adapter in them, by the base's names; adapted ones are float32. Raises
    CheckpointError if no base is given, if it is of another type, or if the adapter does not fit it."""
    values = read_json(folder / CONFIG)
    if base is None:
        of = values.get("base_model_name_or_path")
        raise CheckpointError(
            f"{folder}: is a LoRA adapter ({CONFIG}, no {POLICY_WEIGHTS}) of the base {shown(of)}; merge them first: "
            f"auras convert {folder} --base FOLDER --out NEW, where FOLDER has the base's {POLICY_WEIGHTS}"
        )
    kind, base_kind = (read_json(each / POLICY_CONFIG).get("type") for each in (folder, base))
    if kind != base_kind:
        raise CheckpointError(f"{base / POLICY_CONFIG}: type {shown(base_kind)}, but the adapter is of {shown(kind)}")
    scale_of, is_whole = _settings(folder / CONFIG, values)
    tensors = read_weights(base / POLICY_WEIGHTS)
    layers, whole = _adapter_tensors(folder / WEIGHTS, is_whole)
    for name, tensor in whole.items():
        target = _target(name, tensors, folder / WEIGHTS, base)
        if tensors[target].shape != tensor.shape:
            shapes = f"{list(tensor.shape)}, expected {list(tensors[target].shape)}"
            raise CheckpointError(f"{folder / WEIGHTS}: tensor '{name}' has shape {shapes}")
        tensors[target] = tensor
    for name, layer in layers.items():
        target = _target(f"{name}.weight", tensors, folder / WEIGHTS, base)
        weight = tensors[target]
        if weight.dim() != 2:
            dims = f"{weight.dim()} dimensions, expected 2: it is no linear layer"
            raise CheckpointError(f"{base / POLICY_WEIGHTS}: tensor '{target}' has {dims}")
        rows, width = weight.shape
        factors = layer.read(scale_of, width, rows)
        tensors[target] = weight.float() + factors.b @ factors.a
    return tensors


def _settings(file: Path, values: Mapping[str, Any]) -> tuple[Callable[[str], RankAndScale], Callable[[str], bool]]:
    """(rank and scale of a layer, whether a tensor's module was trained whole). Raises CheckpointError."""
    modules = values.get(WHOLE) or []
    if not isinstance(modules, list) or not all(isinstance(module, str) and module for module in modules):
        raise CheckpointError(f"{file}: {WHOLE}: {shown(modules)} is not a list of names")
    plain = {key: value for key, value in values.items() if key != WHOLE}
    with refusing(file, ValueError, TypeError):
        scale_of = layer_scales(ConfigReader(plain, "adapter_config"))

    def is_whole(name: str) -> bool:
        parents = name.split(".")[:-1]
        paths = [".".join(parents[:count]) for count in range(1, len(parents) + 1)]
        return any(path == module or path.endswith(f".{module}") for path in paths for module in modules)

    return scale_of, is_whole


def _adapter_tensors(
    file: Path, is_whole: Callable[[str], bool]
) -> tuple[dict[str, PublishedLayer], dict[str, Tensor]]:
    """(adapted layers by name, tensors of layers that were trained whole by name). Raises CheckpointError."""
    layers, whole = dict[str, PublishedLayer](), dict[str, Tensor]()
    for name, tensor in read_weights(file).items():
        if not tensor.is_floating_point():
            raise CheckpointError(f"{file}: tensor '{name}' has type {tensor.dtype}, expected floating point numbers")
        plain = name.removeprefix(PREFIX).replace(f".{WHOLE}.", ".").replace(".default.", ".")
        if is_whole(plain) and ".lora_" not in name:
            whole[plain] = tensor
            continue
        layer, part = published_layer(name, file)
        layers.setdefault(layer, PublishedLayer(file, layer)).tensors[part] = tensor
    if not layers and not whole:
        raise CheckpointError(f"{file}: holds no tensor of an adapter")
    return layers, whole


def _target(name: str, tensors: Mapping[str, Tensor], file: Path, base: Path) -> str:
    """The base's name of a tensor. Raises CheckpointError if the base has none."""
    found = next((each for each in (name, name.removeprefix(MODEL)) if each in tensors), None)
    if found is None:
        raise CheckpointError(f"{file}: adapts '{name}', which {base / POLICY_WEIGHTS} does not have")
    return found
