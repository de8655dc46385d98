"""The weights of a Hugging Face folder: one safetensors file, or several with an index of tensors and files.

A tensor is read on demand, and one file is open at a time, so that a model larger than memory can be copied to its
place. Index and files must agree: a tensor that is missing, in the wrong file, in two files or not in the index is
refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from itertools import groupby
from math import prod
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.json_file import read_json
from auras_ros.checkpoints.tensors import PICKLE_SUFFIXES, UNREADABLE, check_file, check_finite, pickle_hint
from auras_ros.panics import raising_panics

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
KINDS = {"BF16": torch.bfloat16, "F16": torch.float16}  # safetensors' names of half precision
SUFFIX = ".safetensors"


class Shards(Mapping[str, Tensor]):
    """Tensors by name, file by file. Raises CheckpointError, naming file and tensor, when it is made and when a tensor
    that holds NaN or infinity is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._places = {name: (path, name) for name, path in _located(folder).items()}  # file, name in it
        self._open: tuple[Path, Any] | None = None

    def renamed(self, names: Mapping[str, str]) -> Shards:
        """The same tensors under other names: new name -> name here."""
        made = copy(self)
        made._places = {new: self._places[name] for new, name in names.items()}
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> Tensor:
        path, stored = self._places[name]
        if self._open is None or self._open[0] != path:
            self._open = None  # close this file before the next one is opened
            self._open = path, _opened(path)
        with refusing(f"{self.origin(name)} cannot be read", *UNREADABLE, RuntimeError), raising_panics():
            tensor: Tensor = self._open[1].get_tensor(stored)
        check_finite(tensor, self.origin(name))
        return tensor

    def kinds(self) -> list[tuple[torch.dtype, int]]:
        """(type, numbers) of each tensor, from the files' headers."""
        found = []
        for path, places in groupby(sorted(self._places.values()), itemgetter(0)):
            file = _opened(path)
            parts = [file.get_slice(stored) for _, stored in places]
            found += [(KINDS.get(part.get_dtype(), torch.float32), prod(part.get_shape())) for part in parts]
        return found

    def file_names(self) -> set[str]:
        """The files of the folder that are read: those with tensors, and the index."""
        return {INDEX, *(path.name for path, _ in self._places.values())}

    def origin(self, name: str) -> str:
        """A tensor's place, for errors, even if the tensor is missing."""
        path, stored = self._places.get(name, (self.folder, name))
        return f"{path}: tensor '{stored}'"


def _located(folder: Path) -> dict[str, Path]:
    """Every tensor's file, file by file."""
    if (folder / INDEX).is_file():
        if (folder / WHOLE).is_file():
            raise CheckpointError(f"{folder}: has both {WHOLE} and {INDEX}, and it is unclear which one is meant")
        return _by_index(folder)
    if not (folder / WHOLE).is_file():
        raise CheckpointError(f"{folder}: has neither {WHOLE} nor {INDEX}{pickle_hint(folder)}")
    return dict.fromkeys(_names(folder / WHOLE), folder / WHOLE)


def _by_index(folder: Path) -> dict[str, Path]:
    index, found = folder / INDEX, dict[str, Path]()
    listed = read_json(index).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise CheckpointError(f"{index}: weight_map: expected an object of tensors and files")
    for name, file in listed.items():
        if not isinstance(file, str) or Path(file).name != file or file in ("", ".", ".."):
            raise CheckpointError(f"{index}: weight_map: '{name}': {file!r} is not a file of this folder")
        if Path(file).suffix != SUFFIX and Path(file).suffix not in PICKLE_SUFFIXES:  # pickles are refused later
            raise CheckpointError(f"{index}: weight_map: '{name}': {file!r} does not end in {SUFFIX}")
    for file in sorted(set(listed.values())):
        path = folder / file
        if not path.is_file():
            missing = next(name for name, each in listed.items() if each == file)
            raise CheckpointError(f"{path}: file not found, but {INDEX} lists tensor '{missing}' in it")
        for name in _names(path):
            if name in found:
                raise CheckpointError(f"{path}: tensor '{name}' is also in {found[name].name}")
            found[name] = path
    for name, path in found.items():
        if name not in listed:
            raise CheckpointError(f"{path}: tensor '{name}' is not in {INDEX}")
        if listed[name] != path.name:
            raise CheckpointError(f"{path}: tensor '{name}' should be in {listed[name]} according to {INDEX}")
    for name, file in listed.items():
        if name not in found:
            raise CheckpointError(f"{folder / file}: tensor '{name}' is missing, but {INDEX} lists it there")
    return found


def _names(path: Path) -> list[str]:
    return sorted(_opened(path).keys())


def _opened(path: Path) -> Any:
    """A file whose tensors are read one at a time. Raises CheckpointError."""
    check_file(path)
    with refusing(f"{path}: not a readable safetensors file", *UNREADABLE), raising_panics():
        return safe_open(path, framework="pt")
