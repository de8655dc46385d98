"""Weights that do not fit on a device stay in host memory, or in a file, and are copied in when their module runs.

accelerate's hooks copy them in and free them; this module decides which ones, by use (`weights`). The results are the
same, bit for bit on a CPU. A stage that copies weights in calls `cannot_capture` (`uncaptured`): a graph would go on
reading their old addresses. One module's weights are in at a time: stages on other lanes wait for one another here.

The file has no name: it disappears with the process and nobody else can change it. It is written before any weight is
moved, so that a full disk is an error at configure and not a fault in the middle of a frame.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auras_ros.device.lane import DeviceError, FolderError
from auras_ros.device.uncaptured import cannot_capture
from auras_ros.device.weights import MB, Unit, Use, split, survey

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

ALIGNED = 64  # bytes: with another alignment a CPU's matrix products may round differently
PREFIX = "auras-offload-"


@dataclass(frozen=True)
class Offload:
    """max_memory_mb: how much of the device's memory the weights may take, in 10^6 bytes. folder: for the rest; None
    keeps it in host memory, which is not possible if the device is the CPU. Raises DeviceError by name."""

    max_memory_mb: float
    folder: Path | None = None

    def __post_init__(self) -> None:
        if not 0 < self.max_memory_mb < float("inf"):
            raise DeviceError(f"max_memory_mb: must be above 0 MB, got {self.max_memory_mb:g}")
        if self.folder is not None and not self.folder.is_dir():
            raise FolderError(f"offload_folder: {self.folder} is not a folder")


@dataclass(frozen=True)
class PlacedWeights:
    """Where the weights are, in bytes. modules: the names of the offloaded ones."""

    resident: int
    offloaded: int = 0
    modules: tuple[str, ...] = ()


def place(
    module: nn.Module, device: torch.device, offload: Offload, uses: Callable[[], Sequence[Use]]
) -> PlacedWeights:
    """Move `module` to `device`, except for the weights that do not fit.

    It must be in host memory. uses: returns what is done with the module; run once to see which weights are used how
    often, and not called if all weights fit. Parts that an earlier call has offloaded stay offloaded. Raises
    DeviceError by name, with nothing moved.
    """
    if not placed_before(module).modules:
        limit = round(offload.max_memory_mb * MB)
        if sum(each.nbytes for each in {*module.parameters(), *module.buffers()}) > limit:
            _part(module, device, offload, limit, uses())
    move(module, device)
    return placed_before(module)


def move(module: nn.Module, device: torch.device) -> None:
    """Move everything of `module` that is not offloaded, including what a module's own `_apply` moves."""
    module._apply(lambda each: each if each.is_meta else each.to(device))


def placed_before(module: nn.Module) -> PlacedWeights:
    """Where the weights of this module are after earlier calls for it and its parts."""
    parts = [(name, part) for name, part in module.named_modules() if hasattr(part, "_hf_hook")]
    maps = [getattr(part._hf_hook, "weights_map", None) or {} for _, part in parts]
    gone = {id(each): each for kept in maps for each in kept.values()}
    here = {*(each for each in module.parameters() if not each.is_meta), *module.buffers()}
    return PlacedWeights(
        sum(each.nbytes for each in here),
        sum(each.nbytes for each in gone.values()),
        tuple(name for name, _ in parts),
    )


def _part(module: nn.Module, device: torch.device, offload: Offload, limit: int, uses: Sequence[Use]) -> None:
    if any(each.device.type != "cpu" for each in module.parameters()):
        raise DeviceError("max_memory_mb: weights are offloaded from host memory, and must all be there first")
    if device.type == "cpu" and offload.folder is None:
        raise DeviceError("max_memory_mb: on a CPU the weights are in host memory: offload_folder must be given")
    try:
        from accelerate import hooks
    except ModuleNotFoundError as error:
        raise DeviceError(f"max_memory_mb: needs accelerate, the extra 'offload': {error}") from error
    found = split(module, survey(module, uses), limit)
    kept = _kept(found.offloaded, offload.folder)
    lock = threading.RLock()
    for unit in found.offloaded:
        for name, part in unit.modules.items():
            own = {key: kept[id(each)] for key, each in part.named_parameters(recurse=False)}
            hook = hooks.AlignDevicesHook(execution_device=str(device), offload=True, weights_map=own)
            hooks.add_hook_to_module(part, hook)
            _guard(part, name, lock)


def _guard(part: nn.Module, name: str, lock: threading.RLock) -> None:
    """`part`'s forward, hook included, is marked as not capturable and runs under the offload lock."""
    forward, reason = part.forward, f"the weights of '{name}' are offloaded"

    @wraps(forward)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        cannot_capture(reason)
        with lock:
            return forward(*args, **kwargs)

    part.forward = guarded


def _kept(units: Sequence[Unit], folder: Path | None) -> dict[int, Tensor]:
    """The offloaded copies of the units' weights, by the id of each weight: in host memory, or in a file."""
    parts = [part for unit in units for part in unit.modules.values()]
    weights = {id(each): each.detach() for part in parts for each in part.parameters(recurse=False)}
    if folder is None:
        return weights
    try:
        return dict(zip(weights, in_file(list(weights.values()), folder), strict=True))
    except OSError as error:
        raise FolderError(f"offload_folder: {folder}: {error}") from error


def in_file(tensors: Sequence[Tensor], folder: Path) -> list[Tensor]:
    """The same values, mapped from a new file in `folder` that has been unlinked: its pages are read on access, and
    dropped when memory is short. Raises OSError."""
    import torch

    places: list[int] = []
    with tempfile.TemporaryFile(dir=folder, prefix=PREFIX) as file:
        for each in tensors:
            file.write(bytes(-file.tell() % ALIGNED))
            places.append(file.tell())
            file.write(each.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        size = file.tell()
        file.flush()
        path = f"/proc/self/fd/{file.fileno()}"  # its only name, so that nothing is left if this process is killed
        mapped = torch.from_file(path, shared=False, size=size, dtype=torch.uint8)
    return [
        mapped[at : at + each.nbytes].view(each.dtype).view(each.shape)
        for at, each in zip(places, tensors, strict=True)
    ]
