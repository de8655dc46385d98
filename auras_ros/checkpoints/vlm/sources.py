"""Where each of our tensors comes from in a published folder, and the folder's tensors that nothing needs.

Folders of one model differ in their prefixes, by the version of transformers that wrote them: a `Part` gives both forms
one name. A tensor is read when it is copied to its place, so that a model is never in memory twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.hf_names import siglip_name
from auras_ros.checkpoints.shards import Shards

Part = tuple[str, str]
"""A prefix of the folder's names, and what replaces it; the first that fits counts."""


@dataclass(frozen=True)
class TensorSource:
    """One of our tensors, made of these of the folder."""

    names: tuple[str, ...]
    make: Callable[..., Tensor] = lambda tensor: tensor


class SourcedTensors(Mapping[str, Tensor]):
    """Our tensors by name, each made when it is read."""

    def __init__(self, shards: Shards, sources: Mapping[str, TensorSource], stored: Mapping[str, str]) -> None:
        self._shards, self._sources, self._stored = shards, sources, stored

    def __getitem__(self, name: str) -> Tensor:
        source = self._sources[name]
        parts = [self._shards[self._stored[each]] for each in source.names]
        try:
            return source.make(*parts)
        except (RuntimeError, IndexError) as error:
            shapes = ", ".join(str(list(part.shape)) for part in parts)
            raise CheckpointError(f"{self.origin(name)} has shape {shapes}, which does not fit: {error}") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def kinds(self) -> list[tuple[torch.dtype, int]]:
        return self._shards.kinds()

    def stored(self, name: str) -> Tensor | None:
        """The folder's tensor of this name without the version's prefix, if it has one."""
        return self._shards[self._stored[name]] if name in self._stored else None

    def origin(self, name: str) -> str:
        return self._shards.origin(self._stored[self._sources[name].names[0]])


def linked(
    wanted: Sequence[str],
    shards: Shards,
    parts: Sequence[Part],
    source_of: Callable[[str], TensorSource],
    is_ignored: Callable[[str], bool],
) -> SourcedTensors:
    """Our `wanted` names and what they are made of. Raises CheckpointError, which names the tensor that is missing, is
    there twice, or belongs to no part of the model."""
    stored = _renamed(shards, parts)
    sources = {name: source_of(name) for name in wanted}
    needed = {each for source in sources.values() for each in source.names}
    for each in sorted(needed - stored.keys()):
        raise CheckpointError(f"{shards.folder}: tensor '{_there(each, stored, parts)}' is missing")
    for each in sorted(stored.keys() - needed):
        if not is_ignored(each):
            raise CheckpointError(f"{shards.origin(stored[each])} belongs to no part of this model")
    return SourcedTensors(shards, sources, stored)


def tower_source(name: str, prefix: str) -> TensorSource:
    """The source of a tensor of `models.vit` in a SigLIP or CLIP tower of transformers."""
    if name == "cls_token":
        return TensorSource((f"{prefix}embeddings.class_embedding",), lambda tensor: tensor[None, None])
    if name == "pos_embed":
        return TensorSource((prefix + siglip_name(name),), lambda tensor: tensor[None])
    if name.startswith("norm_pre."):
        return TensorSource((f"{prefix}pre_layrnorm.{name.removeprefix('norm_pre.')}",))
    place = prefix + siglip_name(name)
    if ".qkv." in place:
        return TensorSource(
            tuple(place.replace(".qkv.", f".{each}_proj.") for each in "qkv"), lambda *parts: torch.cat(parts)
        )
    return TensorSource((place,))


def _renamed(shards: Shards, parts: Sequence[Part]) -> dict[str, str]:
    """Name without the version's prefix -> the folder's name."""
    stored: dict[str, str] = {}
    for name in shards:
        there = next(((old, new) for old, new in parts if name.startswith(old)), None)
        if there is None:
            raise CheckpointError(f"{shards.origin(name)} belongs to no part of this model")
        plain = there[1] + name.removeprefix(there[0])
        if plain in stored:
            raise CheckpointError(f"{shards.origin(name)} repeats '{stored[plain]}' under another name")
        stored[plain] = name
    return stored


def _there(plain: str, stored: Mapping[str, str], parts: Sequence[Part]) -> str:
    """A missing tensor's name as this folder would have it: with the prefix that its neighbours have."""
    fitting = [(old, new) for old, new in parts if plain.startswith(new)]

    def fit(part: Part) -> tuple[int, bool]:
        return len(part[1]), any(name.startswith(part[0]) for name in stored.values())

    old, new = max(fitting, key=fit)
    return old + re.sub(f"^{re.escape(new)}", "", plain)
