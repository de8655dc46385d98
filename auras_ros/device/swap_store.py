"""Where the weights of swapped layers wait: in page-locked host memory, or in a file that is read past the page cache.

What the page cache holds counts as memory, so a file that is read through it saves none. The file has no name, as that
of `offload`, and is written before any weight goes. On a GPU a layer is read from it into page-locked memory first, one
buffer for each physical layer, as the copy from there may still be under way when the next one is read.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from auras_ros.device.lane import DeviceError, FolderError

if TYPE_CHECKING:
    from torch import Tensor, nn

PIECE = 4 << 20  # bytes read at a time on a CPU: a larger buffer is hardly quicker, and is memory too
PREFIX = "auras-swap-"
MEMINFO = Path("/proc/meminfo")
SPARE = 2 << 30  # bytes of host memory that page-locked layers leave to others


Reader = Callable[[int], None]
"""Copies this layer's weights to where they compute; on a GPU by operations of the current stream. Raises OSError. It
holds the interpreter as little as it can: what computes beside it needs that for every operation."""


class SwapStore(Protocol):
    """All layers' weights, outside the memory that is saved."""

    @property
    def kind(self) -> str:
        """In words, for the log."""
        ...

    @property
    def reuses(self) -> bool:
        """Whether reading into a physical layer overwrites what its last copy on a GPU may still read."""
        ...

    def reader(self, slot: int, into: Sequence[Tensor]) -> Reader:
        """For physical layer number `slot`, whose weights (`weights_of`) are `into`."""
        ...

    def close(self) -> None: ...


class FileStore:
    """See the module's docstring. slots: physical layers, if they are on a GPU; 0: on the CPU."""

    reuses = True

    def __init__(self, folder: Path, layers: Sequence[Sequence[Tensor]], slots: int = 0) -> None:
        """Writes the layers. Raises OSError."""
        self._size = _in_pages(sum(map(len, layers[0])))
        with tempfile.TemporaryFile(dir=folder, prefix=PREFIX) as file:
            for number, weights in enumerate(layers):
                file.seek(number * self._size)
                for each in weights:
                    file.write(each.cpu().numpy().data)
            file.truncate(len(layers) * self._size)
            self.fileno = os.dup(file.fileno())
        self._close = weakref.finalize(self, os.close, self.fileno)
        self._direct = _past_the_cache(self.fileno)
        piece = self._size if slots else min(PIECE, self._size)
        self._staging = [_aligned(piece, pinned=slots > 0) for _ in range(max(slots, 1))]

    @property
    def kind(self) -> str:
        return "a file" if self._direct else "a file through the page cache, which is emptied after each layer"

    def reader(self, slot: int, into: Sequence[Tensor]) -> Reader:
        host = self._staging[slot % len(self._staging)]
        starts = range(0, self._size, len(host))
        pieces = [(start, _joined(host[: self._size - start], start, into)) for start in starts]

        def read(layer: int) -> None:
            for start, copies in pieces:
                self._fill(host[: self._size - start], layer * self._size + start)
                for target, part in copies:
                    target.copy_(part, non_blocking=True)

        return read

    def close(self) -> None:
        self._close()

    def _fill(self, piece: Tensor, at: int) -> None:
        view, done = piece.numpy().data, 0
        while done < len(view):
            count = os.preadv(self.fileno, [view[done:]], at + done)
            if count == 0:
                raise OSError("the file is shorter than it was")
            done += count
        if not self._direct:
            os.posix_fadvise(self.fileno, at, len(view), os.POSIX_FADV_DONTNEED)


class PinnedStore:
    """In page-locked memory, from which a GPU copies while it computes."""

    kind, reuses = "page-locked memory", False

    def __init__(self, layers: Sequence[Sequence[Tensor]]) -> None:
        self._layers = [_aligned(sum(map(len, weights)), True).split([*map(len, weights)]) for weights in layers]
        for number, weights in enumerate(layers):
            self._copy(weights, self._layers[number])

    def reader(self, slot: int, into: Sequence[Tensor]) -> Reader:
        return lambda layer: self._copy(self._layers[layer], into)

    def _copy(self, weights: Sequence[Tensor], into: Sequence[Tensor]) -> None:
        for target, weight in zip(into, weights, strict=True):
            target.copy_(weight, non_blocking=True)

    def close(self) -> None:
        self._layers = []


def make_store(folder: Path | None, layers: Sequence[Sequence[Tensor]], slots: int) -> SwapStore:
    """Page-locked memory for layers on a GPU where the host has room for them, otherwise a file in `folder`. Raises
    DeviceError, naming the option."""
    on_gpu = layers[0][0].is_cuda
    if on_gpu and sum(len(each) for weights in layers for each in weights) + SPARE < _free_bytes():
        return PinnedStore(layers)
    if folder is None:
        where = "the host's memory has no room for the layers" if on_gpu else "on a CPU the weights are in host memory"
        raise DeviceError(f"swap_folder: must be given: {where}")
    try:
        return FileStore(folder, layers, slots if on_gpu else 0)
    except OSError as error:
        raise FolderError(f"swap_folder: {folder}: {error}") from error


def weights_of(module: nn.Module) -> list[Tensor]:
    """Everything that a layer holds, as bytes that can be read and written, in an order that is the same for layers of
    one form. Raises DeviceError for a weight whose bytes are not one piece."""
    from torch import Tensor

    held = [
        each
        for part in module.modules()
        for each in (*part._parameters.values(), *part._buffers.values(), *vars(part).values())
        if isinstance(each, Tensor)
    ]
    found = {piece.data_ptr(): piece for piece in map(_bytes_of, held) if len(piece)}  # each once
    return list(found.values())


def _bytes_of(weight: Tensor) -> Tensor:
    """oneDNN's own layout has no public way to its bytes; torch's compiler uses these operators."""
    import torch

    if weight.layout == torch._mkldnn:  # type: ignore[attr-defined]
        operators = torch.ops.mkldnn
        size, address = operators._nbytes(weight), operators.data_ptr(weight)
        return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)
    if not weight.is_contiguous():
        raise DeviceError(f"swap_layers: a weight of shape {list(weight.shape)} is not one piece of memory")
    return weight.detach().view(-1).view(torch.uint8)


def _joined(piece: Tensor, start: int, into: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Where the layer's bytes from `start` on, which are in `piece`, belong: (target, part of the piece)."""
    at, found = 0, []
    for each in into:
        low, high = max(at, start), min(at + len(each), start + len(piece))
        if low < high:
            found.append((each[low - at : high - at], piece[low - start : high - start]))
        at += len(each)
    return found


def _past_the_cache(file: int) -> bool:
    """Empty the page cache of the file and read past it from now on. False where the file system refuses."""
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, flags | os.O_DIRECT)
        os.preadv(file, [mmap.mmap(-1, mmap.PAGESIZE)], 0)
    except OSError:
        fcntl.fcntl(file, fcntl.F_SETFL, flags)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)  # what is read ahead would stay
        return False
    return True


def _aligned(size: int, pinned: bool) -> Tensor:
    """Bytes that begin with a page."""
    import torch

    if pinned:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    return torch.frombuffer(mmap.mmap(-1, size), dtype=torch.uint8)


def _in_pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _free_bytes() -> int:
    """Memory of the host that can be had without swapping; 0 where that is unknown."""
    if not MEMINFO.exists():
        return 0
    line = next(each for each in MEMINFO.read_text().splitlines() if each.startswith("MemAvailable:"))
    return int(line.split()[1]) << 10
