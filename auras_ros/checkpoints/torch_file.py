"""Reads the zip file that torch.save writes: its pickle as data (`inert`), and the tensors beside it.

Nothing of the file is ever executed. A tensor is read on demand, and only the bytes that it declares. A tensor that
does not fit is refused by name.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.inert import InertError, Name, PickledObject, Stored, read
from auras_ros.values import shown

STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
TENSOR, PARAMETER = Name("torch._utils", "_rebuild_tensor_v2"), Name("torch._utils", "_rebuild_parameter")
UNLIKE = AttributeError, LookupError, TypeError, ValueError  # of a recipe that does not make a tensor
PICKLE = "data.pkl"
MOST_PICKLE_BYTES = 1 << 28
MOST_NUMBERS, MOST_DIMENSIONS = 1 << 48, 16  # of a tensor


class TorchFile:
    """value: the content of the file's pickle, inert. Use as a context manager. Raises CheckpointError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        no_zip = zipfile.BadZipFile, NotImplementedError, ValueError  # unknown version; name is not text
        with (
            refusing(f"{path}: is not a zip file as torch.save writes it", *no_zip),
            refusing(f"{path}: cannot be read", OSError),
        ):
            self._zip = zipfile.ZipFile(path)
        try:
            self._root, self.value = self._open()
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> TorchFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def tensors(self, values: Mapping[str, Any]) -> LazyTensors:
        """The values that are tensors, read on demand."""
        found = {name: recipe for name, value in values.items() if (recipe := _tensor(value)) is not None}
        return LazyTensors(self, found)

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size

    @staticmethod
    def item_bytes(recipe: PickledObject) -> int:
        """Bytes of one number; 1 if the storage type is unknown, which `read` refuses."""
        identity, kind = recipe.args[0].identity, None
        if isinstance(identity, tuple) and len(identity) > 1 and isinstance(identity[1], Name):
            kind = identity[1].name
        return STORAGES[kind].itemsize if kind in STORAGES else 1

    def read(self, name: str, recipe: PickledObject) -> Tensor:
        """Read one tensor. Raises CheckpointError, naming it; also if it holds NaN or infinity."""
        with refusing(f"{self.path}: tensor '{name}' is not one that is supported", *UNLIKE):
            storage, offset, size, stride = recipe.args[:4]
            kind, key, count = storage.identity[1].name, storage.identity[2], storage.identity[4]
            dtype = STORAGES[kind]
            if not isinstance(key, str) or not re.fullmatch("[0-9]+", key):
                raise ValueError(f"storage {shown(key)}")
            numbers = (offset, count, *size, *stride)
            if not all(type(number) is int and 0 <= number <= MOST_NUMBERS for number in numbers):
                raise ValueError(f"size {shown(size)}, stride {shown(stride)}, {shown(offset)} of {shown(count)}")
            if len(size) != len(stride) or len(size) > MOST_DIMENSIONS:
                raise ValueError(f"size {shown(size)}, stride {shown(stride)}")
        if 0 in size:
            return torch.empty(size, dtype=dtype)
        last = offset + sum((side - 1) * step for side, step in zip(size, stride, strict=True))
        if math.prod(size) > count or last >= count:
            raise CheckpointError(f"{self.path}: tensor '{name}' reaches beyond its storage of {count} numbers")
        flat = torch.frombuffer(self._bytes(f"data/{key}", count * dtype.itemsize, f"tensor '{name}'"), dtype=dtype)
        tensor = flat.as_strided(size, stride, offset).clone()
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(f"{self.path}: tensor '{name}' holds NaN or infinity")
        return tensor

    def _open(self) -> tuple[str, Any]:
        roots = [name[: -len(PICKLE)] for name in self._zip.namelist() if re.fullmatch(rf"[^/]+/{PICKLE}", name)]
        if len(roots) != 1:
            raise CheckpointError(f"{self.path}: expected one {PICKLE} as torch.save writes it, found {len(roots)}")
        self._root = roots[0]
        if f"{self._root}byteorder" in self._zip.namelist():
            order = bytes(self._bytes("byteorder", None, "byte order"))
            if order != b"little":
                raise CheckpointError(f"{self.path}: byte order {order!r} is not supported")
        with refusing(f"{self.path}: {PICKLE}", InertError):
            return self._root, read(bytes(self._bytes(PICKLE, None, "pickle")))

    def _bytes(self, name: str, size: int | None, what: str) -> bytearray:
        """size: the exact number of bytes; None: unknown, at most MOST_PICKLE_BYTES."""
        try:
            info = self._zip.getinfo(self._root + name)
        except KeyError:
            raise CheckpointError(f"{self.path}: {what}: {name} is missing in the file") from None
        if info.compress_type != zipfile.ZIP_STORED:
            raise CheckpointError(f"{self.path}: {what}: is compressed, which torch.save never does")
        if size is None and info.file_size > MOST_PICKLE_BYTES:
            raise CheckpointError(f"{self.path}: {what}: {info.file_size} bytes are more than {MOST_PICKLE_BYTES}")
        if size is not None and info.file_size != size:
            raise CheckpointError(f"{self.path}: {what}: {info.file_size} bytes are stored, expected {size}")
        unread = zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError
        with refusing(f"{self.path}: {what}: cannot be read", *unread):
            return bytearray(self._zip.read(info))


class LazyTensors(Mapping[str, Tensor]):
    """Tensors by name, each read from the file on every access."""

    def __init__(self, file: TorchFile, recipes: Mapping[str, PickledObject]) -> None:
        self._file, self._recipes = file, recipes

    def __getitem__(self, name: str) -> Tensor:
        return self._file.read(name, self._recipes[name])

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape, without reading the tensor. Raises CheckpointError if there is no tensor of this name."""
        if name not in self._recipes:
            raise CheckpointError(f"{self._file.path}: tensor '{name}' is missing")
        size = self._recipes[name].args[2]
        if not isinstance(size, tuple) or not all(type(side) is int and 0 <= side <= MOST_NUMBERS for side in size):
            raise CheckpointError(
                f"{self._file.path}: tensor '{name}' is not one that is supported: size {shown(size)}"
            )
        return size

    def side(self, name: str, dimension: int) -> int:
        """One number of the shape. Raises CheckpointError if the tensor has fewer dimensions."""
        shape = self.shape(name)
        if len(shape) <= dimension:
            wanted = f"at least {dimension + 1} dimensions"
            raise CheckpointError(f"{self._file.path}: tensor '{name}' has shape {list(shape)}, expected {wanted}")
        return shape[dimension]

    def firsts(self) -> dict[str, str]:
        """Each name -> the first name of the same tensor: what two modules share is saved under two names."""
        seen = dict[str, str]()
        return {name: seen.setdefault(repr(recipe.args[:4]), name) for name, recipe in self._recipes.items()}

    def check_bytes(self, names: Iterable[str]) -> None:
        """Check, before any is read, that these tensors are not larger than the file: a file may give one storage any
        number of names. Raises CheckpointError."""
        total, held = 0, self._file.size_bytes
        for name in names:
            if name in self._recipes:
                total += math.prod(self.shape(name)) * self._file.item_bytes(self._recipes[name])
                if total > held:
                    raise CheckpointError(
                        f"{self._file.path}: tensor '{name}': it makes the tensors larger than the {held} bytes of "
                        f"the file: several are one and the same part of it"
                    )

    def __contains__(self, name: object) -> bool:
        return name in self._recipes

    def __iter__(self) -> Iterator[str]:
        return iter(self._recipes)

    def __len__(self) -> int:
        return len(self._recipes)


def _tensor(value: Any) -> PickledObject | None:
    """The recipe of a tensor, or None if the value is not a tensor."""
    if isinstance(value, PickledObject) and value.of == PARAMETER and isinstance(value.args, tuple) and value.args:
        value = value.args[0]
    if not isinstance(value, PickledObject) or value.of != TENSOR:
        return None
    if not isinstance(value.args, tuple) or len(value.args) < 4:
        return None
    return value if isinstance(value.args[0], Stored) else None
