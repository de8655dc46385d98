"""Reads weights from untrusted files: safetensors only, every tensor checked before it is used."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.panics import ExtensionPanicError, raising_panics

PICKLE_SUFFIXES = (".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".bin", ".npy", ".joblib")
UNREADABLE = (SafetensorError, OSError, ExtensionPanicError)  # what reading a safetensors file raises
NOWHERE: Mapping[str, str] = {}
PICKLE_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError while writing path names it; the error for a full disk alone does not."""
    try:
        yield
    except SafetensorError as error:
        raise OSError(f"{path}: cannot be written: {error}") from error
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(f"{path}: cannot be written: {error.strerror or error}") from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file. Raises CheckpointError; a pickle is refused without being unpickled."""
    check_file(path)
    with refusing(f"{path}: not a readable safetensors file", *UNREADABLE), raising_panics():
        tensors: dict[str, Tensor] = load_file(path)
    for name, tensor in tensors.items():
        check_finite(tensor, f"{path}: tensor '{name}'")
    return tensors


def check_file(path: Path) -> None:
    """Check that a file may be read as safetensors: it exists and is not a pickle. Raises CheckpointError."""
    if path.suffix.lower() in PICKLE_SUFFIXES:
        raise CheckpointError(f"{path}: pickled weights can run code when loaded and are refused; use safetensors")
    if not path.is_file():
        raise CheckpointError(f"{path}: file not found")
    with path.open("rb") as file:
        start = file.read(9)
    # A safetensors file begins with its header's length, which may look like a pickle, and the header with a brace.
    if start.startswith(PICKLE_STARTS) and start[8:] != b"{":
        raise CheckpointError(f"{path}: is a pickle despite its name and is refused; use safetensors")


def pickle_hint(folder: Path) -> str:
    """The end of an error message if a pickle lies where other weights are expected."""
    pickles = sorted(path.name for path in folder.glob("*") if path.suffix in PICKLE_SUFFIXES)
    return f"; {pickles[0]} is a pickle and is refused" if pickles else ""


def check_finite(tensor: Tensor, what: str) -> None:
    """Raise CheckpointError, which begins with `what`, for NaN or infinity."""
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor.double()).all()):  # float8 has no isfinite
        raise CheckpointError(f"{what} holds NaN or infinity")


def fill(module: nn.Module, tensors: Mapping[str, Tensor], path: Path, origin: Mapping[str, str] = NOWHERE) -> None:
    """Copy tensors into a module, one at a time, in the module's types. origin: our name -> what errors call the
    tensor; without it they name `path`. Raises CheckpointError."""
    wanted = module.state_dict(keep_vars=True)
    check_shapes(wanted, tensors, path, origin)
    with torch.no_grad():
        for name in tensors:
            tensor, room, what = tensors[name], wanted[name], _what(name, path, origin)
            _check_shape(tensor, room, what)
            room.copy_(converted(room, tensor, what))


def check_shapes(
    wanted: Mapping[str, Tensor], tensors: Mapping[str, Tensor], path: Path, origin: Mapping[str, str] = NOWHERE
) -> None:
    """Check that every wanted tensor is there, and no other, with its shape if that is known without reading. Raises
    CheckpointError."""
    if missing := sorted(wanted.keys() - tensors.keys()):
        raise CheckpointError(f"{_what(missing[0], path, origin)} is missing")
    if unknown := sorted(tensors.keys() - wanted.keys()):
        raise CheckpointError(f"{_what(unknown[0], path, origin)} belongs to no part of this policy")
    if isinstance(tensors, dict):
        for name, room in wanted.items():
            _check_shape(tensors[name], room, _what(name, path, origin))


def _check_shape(tensor: Tensor, wanted: Tensor, what: str) -> None:
    if tensor.shape != wanted.shape:
        raise CheckpointError(f"{what} has shape {list(tensor.shape)}, expected {list(wanted.shape)}")


def _what(name: str, path: Path, origin: Mapping[str, str]) -> str:
    return origin.get(name, f"{path}: tensor '{name}'")


def converted(wanted: Tensor, tensor: Tensor, what: str) -> Tensor:
    """The tensor in the type of `wanted`. Raises CheckpointError, which begins with `what`."""
    if tensor.is_floating_point() != wanted.is_floating_point():
        raise CheckpointError(f"{what} has type {tensor.dtype}, expected {wanted.dtype}")
    result = tensor.to(wanted.dtype)
    if result.is_floating_point() and not bool(torch.isfinite(result).all()):
        raise CheckpointError(f"{what} has values beyond the range of {wanted.dtype}")
    return result


def sha256(path: Path) -> str:
    """Digest of a file, hex; read in pieces, because weights may be larger than memory."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
