"""Reads a LoRA adapter from the folder that PEFT saves: adapter_config.json and adapter_model.safetensors.

A model here joins or reorders some published layers (`vlm.sources`). What is done to the rows of their weights is done
to the rows of B: (P B) A = P (B A). So the adapter of one of our layers is one pair of matrices too, whatever layers
it was trained on. Nothing of the folder is executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from auras_ros.checkpoints.config_reader import ConfigReader
from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.files import digest, read_weights
from auras_ros.checkpoints.json_file import read_json
from auras_ros.checkpoints.peft_config import RankAndScale, layer_scales
from auras_ros.checkpoints.task_head import FILES as TASK_HEAD_FILES
from auras_ros.checkpoints.task_head import TaskHead, read_task_head
from auras_ros.checkpoints.vlm.form import HEAD
from auras_ros.checkpoints.vlm.sources import Part, TensorSource

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
LARGEST = torch.finfo(torch.float32).max
TENSOR = re.compile(
    r"(?:base_model\.model\.)?(?P<layer>.+)\.(?:lora_(?P<factor>[AB])(?:\.default)?|(?P<base>base_layer))\.weight"
)


class LoraFactors(NamedTuple):
    """What an adapter adds to one weight: B A. a: [rank, in]; b: [out, rank], the scale in it."""

    a: Tensor
    b: Tensor


@dataclass(frozen=True, eq=False)
class PeftAdapter:
    """factors: by the name of our linear layer, float32. head: stored with it."""

    name: str
    digest: str
    factors: Mapping[str, LoraFactors]
    head: TaskHead | None = None


@dataclass(frozen=True, eq=False)
class AdapterTargets:
    """The linear layers that an adapter can change. layers: [out, in] by our name. parts, source_of: how published
    names become ours (`vlm.sources.linked`). is_ignored: published tensors that nothing
    needs. width: of the decoder, for task heads."""

    layers: Mapping[str, tuple[int, int]]
    parts: Sequence[Part]
    source_of: Callable[[str], TensorSource]
    is_ignored: Callable[[str], bool]
    width: int


def read_peft(folder: Path, targets: AdapterTargets) -> PeftAdapter:
    """Raises CheckpointError, naming the file and the key or tensor."""
    with refusing(folder, OSError):
        path = folder / CONFIG
        values = read_json(path)
        with refusing(path, ValueError, TypeError):
            scale_of = layer_scales(ConfigReader(values, "adapter_config"))
        factors = _factors(_published(folder / WEIGHTS, targets.parts), targets, scale_of)
        head = read_task_head(folder, targets.width)
        return PeftAdapter(folder.resolve().name, adapter_digest(folder), factors, head)


def adapter_digest(folder: Path) -> str:
    """SHA-256 of the files that `read_peft` reads, hex. Raises CheckpointError or OSError."""
    return digest(folder, {CONFIG, WEIGHTS, *TASK_HEAD_FILES})


class PublishedLayer:
    """The tensors of one published layer: lora_A, lora_B, and of the head its own weight.

    path: the file of the adapter. name: of the layer, as published; both for errors.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.name, self.what = name, f"{path}: '{name}'"
        self.tensors: dict[str, Tensor] = {}

    def read(self, scale_of: Callable[[str], RankAndScale], width: int, rows: int | None) -> LoraFactors:
        """With the scale. rows: of lora_B, where it is known. Raises CheckpointError."""
        for factor in ("lora_A", "lora_B"):
            if factor not in self.tensors:
                raise CheckpointError(f"{self.what}: {factor} is missing")
            if (dims := self.tensors[factor].dim()) != 2:
                raise CheckpointError(f"{self.what}: {factor} has {dims} dimensions, expected 2: it is no linear layer")
        (rank, scale), a, b = scale_of(self.name), self.tensors["lora_A"].float(), self.tensors["lora_B"].float()
        if len(a) != rank or b.shape[1] != rank:
            raise CheckpointError(
                f"{self.what}: lora_A has {len(a)} rows and lora_B {b.shape[1]} columns, but the rank is {rank}"
            )
        if a.shape[1] != width:
            raise CheckpointError(f"{self.what}: lora_A has {a.shape[1]} columns, expected {width}")
        if rows is not None and len(b) != rows:
            raise CheckpointError(f"{self.what}: lora_B has {len(b)} rows, expected {rows}")
        base = self.tensors.get("base_layer")
        if base is not None and base.shape != (len(b), width):
            raise CheckpointError(f"{self.what}: base_layer has shape {list(base.shape)}, expected {[len(b), width]}")
        largest = a.abs().amax().double() * (scale * b).abs().sum(dtype=torch.float64)  # of any number of B A
        if not largest <= LARGEST:  # refuses NaN too: infinity times zero
            raise CheckpointError(f"{self.what}: lora_B lora_A, times {scale:g}, may be beyond the range of float32")
        return LoraFactors(a, scale * b)


def _published(path: Path, parts: Sequence[Part]) -> dict[str, PublishedLayer]:
    """The folder's layers by name, without the prefix of the version that wrote it."""
    found = dict[str, PublishedLayer]()
    with refusing(path, RuntimeError):  # torch: a type that it cannot convert
        tensors = read_weights(path)
    for name, tensor in tensors.items():
        layer, kind = published_layer(name, path)
        plain = next((new + f"{layer}."[len(old) :] for old, new in parts if f"{layer}.".startswith(old)), None)
        if plain is None:
            raise CheckpointError(f"{path}: tensor '{name}' belongs to no part of this model")
        own = found.setdefault(plain[:-1], PublishedLayer(path, layer))
        if own.name != layer or kind in own.tensors:
            raise CheckpointError(f"{path}: tensor '{name}' repeats '{own.name}' under another name")
        if not tensor.is_floating_point():
            raise CheckpointError(f"{path}: tensor '{name}' has type {tensor.dtype}, expected floating point numbers")
        own.tensors[kind] = tensor
    if not found:
        raise CheckpointError(f"{path}: holds no tensor of an adapter")
    return found


def published_layer(name: str, path: Path) -> tuple[str, str]:
    """(layer, part) of an adapter's tensor. part: lora_A, lora_B, or base_layer, the weight of a head. path: the file,
    for errors. Raises CheckpointError if it belongs to no plain LoRA adapter."""
    match = TENSOR.fullmatch(name)
    if match is None or (match["base"] and not match["layer"].endswith("lm_head")):
        raise CheckpointError(f"{path}: tensor '{name}' {_foreign(name)}")
    return match["layer"], match["base"] or f"lora_{match['factor']}"


def _foreign(name: str) -> str:
    """Why a tensor is not one of a plain LoRA adapter."""
    if "lora_magnitude_vector" in name:
        return "is DoRA's, which is not supported"
    if "lora_embedding_" in name:
        return "adapts an embedding, which is not supported"
    if name.endswith("bias"):
        return "is a bias, which is not supported"
    return "is neither lora_A nor lora_B of a layer: layers that were trained whole are not supported"


def _factors(
    published: Mapping[str, PublishedLayer], targets: AdapterTargets, scale_of: Callable[[str], RankAndScale]
) -> dict[str, LoraFactors]:
    """Of our layers. Raises CheckpointError."""
    found, used = dict[str, LoraFactors](), set[str]()
    for name, (out, width) in targets.layers.items():
        source = targets.source_of(f"{name}.weight")
        layers = [each.removesuffix(".weight") for each in source.names]
        there = [published[layer] for layer in layers if layer in published]
        if there:
            used.update(layers)
            rows = out // len(layers) if len(layers) > 1 else None  # those that are joined have equally many
            parts = {layer: published[layer].read(scale_of, width, rows) for layer in layers if layer in published}
            found[name] = _joined([parts.get(layer) for layer in layers], source, out, there[0].what)
    for other in sorted(published.keys() - used):
        name = f"{other}.weight"
        if name == HEAD or not targets.is_ignored(name):  # a head that is the embedding has no weight of its own
            raise CheckpointError(
                f"{published[other].what} belongs to no linear layer of this model that adapters can change"
            )
    return found


def _joined(parts: Sequence[LoraFactors | None], source: TensorSource, out: int, what: str) -> LoraFactors:
    """The factors of one of our layers, of those of the published layers that it is made of. Raises CheckpointError."""
    there = [part for part in parts if part is not None]
    ranks = [len(part.a) for part in there]
    columns, wide = iter(torch.eye(sum(ranks)).split(ranks)), list[Tensor]()
    for part in parts:  # each has its own columns
        wide.append(part.b @ next(columns) if part else torch.zeros(out // len(parts), sum(ranks)))
    try:
        b = source.make(*wide)
    except (RuntimeError, IndexError) as error:
        raise CheckpointError(f"{what}: lora_B has {len(wide[0])} rows: {error}") from error
    if b.shape != (out, sum(ranks)):
        raise CheckpointError(f"{what}: lora_B has {len(b)} rows, expected {out}")
    return LoraFactors(torch.cat([part.a for part in there]), b.contiguous())
