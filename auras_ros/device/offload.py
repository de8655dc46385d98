"""Weights that a device has no room for stay in host memory, or in a file, and are brought in when their module runs.

accelerate's hooks bring them in and let go of them; which ones is decided here, by use (`weights`). The results are the
same, bit for bit on a CPU. A stage that brings weights in says that it cannot be captured (`uncaptured`): a graph would
go on reading where they were. One module's weights are in at a time: side by side, stages wait for one another here.

The file has no name: it is gone with the process, nothing can be missing from it, and it is written before anything is
moved, so that a full disk is an error and no fault in the middle of a frame.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auras_ros.device.lane import DeviceError
from auras_ros.device.uncaptured import cannot_capture
from auras_ros.device.weights import MB, Unit, Use, split, survey

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

ALIGNED = 64  # bytes: at another alignment a CPU's matrix products may round differently
PREFIX = "auras-offload-"


@dataclass(frozen=True)
class Offload:
    """max_memory_mb: how much of the device's memory the weights may take, in 10^6 bytes. folder: where the rest goes;
    None: it stays in host memory, which is no choice where the device is the host. Raises DeviceError by name."""

    max_memory_mb: float
    folder: Path | None = None

    def __post_init__(self) -> None:
        if not 0 < self.max_memory_mb < float("inf"):
            raise DeviceError(f"max_memory_mb: must be above 0 MB, got {self.max_memory_mb:g}")
        if self.folder is not None and not self.folder.is_dir():
            raise DeviceError(f"offload_folder: {self.folder} is no folder")


@dataclass(frozen=True)
class PlacedWeights:
    """Where the weights are, in bytes. modules: names of those that are offloaded."""

    resident: int
    offloaded: int = 0
    modules: tuple[str, ...] = ()


def place(
    module: nn.Module, device: torch.device, offload: Offload, uses: Callable[[], Sequence[Use]]
) -> PlacedWeights:
    """Move `module` to `device`, but for the weights that there is no room for.

    It must lie in host memory. uses: what is done with it, run here once to see which weights are needed for what; not
    asked for where there is room for all. A module of which an earlier call has offloaded parts keeps them so. Raises
    DeviceError by name, and has moved nothing then.
    """
    placed = placed_before(module)
    if not placed.modules:
        limit = round(offload.max_memory_mb * MB)
        whole = sum(each.numel() * each.element_size() for each in {*module.parameters(), *module.buffers()})
        if whole > limit:
            placed = _part(module, device, offload, limit, uses())
    if placed.modules:
        move(module, device)
        return placed_before(module)
    module.to(device)
    return placed_before(module)


def move(module: nn.Module, device: torch.device) -> None:
    """All of `module` that is not offloaded. What a module has overridden `_apply` for comes along."""
    module._apply(lambda each: each if each.is_meta else each.to(device))


def placed_before(module: nn.Module) -> PlacedWeights:
    """What earlier calls have made of this module and the parts it is made of."""
    parts = [(name, part) for name, part in module.named_modules() if hasattr(part, "_hf_hook")]
    maps = [getattr(part._hf_hook, "weights_map", None) or {} for _, part in parts]
    gone = {id(each): each for kept in maps for each in kept.values()}
    here = {*(each for each in module.parameters() if not each.is_meta), *module.buffers()}
    return PlacedWeights(
        sum(each.numel() * each.element_size() for each in here),
        sum(each.numel() * each.element_size() for each in gone.values()),
        tuple(name for name, _ in parts),
    )


def _part(module: nn.Module, device: torch.device, offload: Offload, limit: int, uses: Sequence[Use]) -> PlacedWeights:
    if any(each.device.type != "cpu" for each in module.parameters()):
        raise DeviceError("max_memory_mb: weights are offloaded from host memory, and must all lie there before")
    if device.type == "cpu" and offload.folder is None:
        raise DeviceError("max_memory_mb: on a CPU the weights lie in host memory: offload_folder must be given")
    hooks = _hooks()
    found = split(module, survey(module, uses), limit)
    kept = _kept(found.offloaded, offload.folder)
    lock = threading.RLock()
    for unit in found.offloaded:
        for name, part in unit.modules.items():
            own = {key: kept[id(each)] for key, each in part.named_parameters(recurse=False)}
            hook = hooks.AlignDevicesHook(execution_device=str(device), offload=True, weights_map=own)
            hooks.add_hook_to_module(part, hook)
            _guard(part, name, lock)
    return placed_before(module)


def _hooks() -> Any:
    """accelerate's. Raises DeviceError where it is not installed."""
    try:
        import accelerate.hooks
    except ModuleNotFoundError as error:
        raise DeviceError(f"max_memory_mb: needs accelerate, the extra 'offload': {error}") from error
    return accelerate.hooks


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
    """The units' weights as they are kept, by the id of each: as they lie in host memory, or in a file."""
    weights = {id(each): each.detach() for unit in units for part in unit.modules.values() for each in _own(part)}
    if folder is None:
        return weights
    try:
        return dict(zip(weights, in_file(list(weights.values()), folder), strict=True))
    except OSError as error:
        raise DeviceError(f"offload_folder: {folder}: {error}") from error


def _own(part: nn.Module) -> list[Tensor]:
    return list(part.parameters(recurse=False))


def in_file(tensors: Sequence[Tensor], folder: Path) -> list[Tensor]:
    """The same values, mapped from a new file in `folder` that has no name any more: pages of it are read when they are
    looked at, and given back when memory is short. Raises OSError."""
    import torch

    places: list[int] = []
    with tempfile.TemporaryFile(dir=folder, prefix=PREFIX) as file:
        for each in tensors:
            file.write(bytes(-file.tell() % ALIGNED))
            places.append(file.tell())
            file.write(each.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        size = file.tell()
        file.flush()
        path = f"/proc/self/fd/{file.fileno()}"  # it has no other name, and leaves nothing behind if we are killed now
        mapped = torch.from_file(path, shared=False, size=size, dtype=torch.uint8)
    return [
        mapped[at : at + each.numel() * each.element_size()].view(each.dtype).view(each.shape)
        for at, each in zip(places, tensors, strict=True)
    ]
