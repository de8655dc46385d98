"""The store of swapped layers: what goes in comes out, past the page cache, and nothing is left behind.

Guards: a piece at a wrong place; a weight that is kept outside of parameters and forgotten; a file in the page cache,
which is memory too; a disk that is full.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from auras_ros.device import DeviceError, swap_store
from auras_ros.device.swap_store import FileStore, PinnedStore, make_store, weights_of
from auras_ros.models.linear import PackedLinear, SmallLinear, repack
from tests.device.test_offload import files_of_a_page as files_of_a_page

SIZES = (1, 4096, 5000, 17, 12288, 3)


def layers(count: int, seed: int = 0) -> list[list[Tensor]]:
    random = torch.Generator().manual_seed(seed)
    return [
        [torch.randint(0, 256, (size,), dtype=torch.uint8, generator=random) for size in SIZES] for _ in range(count)
    ]


def read(store: Any, layer: int) -> list[Tensor]:
    into = [torch.zeros(size, dtype=torch.uint8) for size in SIZES]
    store.reader(0, into)(layer)
    return into


def same(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("piece", [4096, 8192, 1 << 22])
@pytest.mark.parametrize("refused", [False, True])
def test_a_file_gives_each_layer_back_and_stays_out_of_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, refused: bool
) -> None:
    """refused: the file system cannot read past it, so it is emptied."""
    control = fcntl.fcntl

    def refuse(file: int, command: int, flags: int = 0) -> int:
        if flags & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return control(file, command, flags)

    monkeypatch.setattr(swap_store, "PIECE", piece)
    if refused:
        monkeypatch.setattr(swap_store.fcntl, "fcntl", refuse)
    kept = layers(3)
    with closing(FileStore(tmp_path, kept)) as store:
        assert list(tmp_path.iterdir()) == []
        assert ("through the page cache" in store.kind) == refused
        for number in (2, 0, 1, 2):
            assert same(read(store, number), kept[number])
            assert _cached(store.fileno) == 0


def _cached(file: int) -> int:
    """Pages of the file in the page cache."""
    with mmap.mmap(file, 0, flags=mmap.MAP_SHARED) as mapped:
        pages = (ctypes.c_uint8 * -(-len(mapped) // mmap.PAGESIZE))()
        address = torch.frombuffer(mapped, dtype=torch.uint8).data_ptr()
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped)), pages) == 0
        return sum(each & 1 for each in pages)


def test_a_file_that_has_become_shorter_is_an_error(tmp_path: Path) -> None:
    with closing(FileStore(tmp_path, layers(2))) as store:
        os.ftruncate(store.fileno, 4096)
        with pytest.raises(OSError, match="shorter"):
            read(store, 1)


def test_page_locked_memory_gives_each_layer_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap_store, "_aligned", lambda size, pinned: torch.zeros(size, dtype=torch.uint8))
    kept = layers(3)
    store = PinnedStore(kept)
    assert all(same(read(store, number), kept[number]) for number in (1, 2, 0))


@pytest.mark.parametrize(("free", "kind"), [(1 << 40, "PinnedStore"), (1 << 20, "FileStore")])
def test_a_gpus_layers_are_in_host_memory_if_it_has_room(
    free: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OnGpu(list[int]):
        is_cuda = True

    made: list[str] = []
    for name in ("PinnedStore", "FileStore"):
        stand_in = lambda *arguments, name=name: made.append(name) or SimpleNamespace(arguments=arguments)  # noqa: E731
        monkeypatch.setattr(swap_store, name, stand_in)
    monkeypatch.setattr(swap_store, "_free_bytes", lambda: free)
    make_store(tmp_path, [[OnGpu([1, 2])]], 3)  # type: ignore[list-item]
    assert made == [kind]


def test_free_memory_is_what_the_system_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap_store, "MEMINFO", tmp_path / "meminfo")
    assert swap_store._free_bytes() == 0
    (tmp_path / "meminfo").write_text("MemTotal:  9 kB\nMemAvailable:     1234 kB\n")
    assert swap_store._free_bytes() == 1234 << 10


def test_a_cpu_needs_a_folder() -> None:
    with pytest.raises(DeviceError, match="swap_folder: must be given: on a CPU"):
        make_store(None, layers(2), 1)


@pytest.mark.usefixtures("files_of_a_page")
def test_a_disk_that_is_full_is_said_by_name_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=rf"swap_folder: {tmp_path}: .*[Ff]ile too large"):
        make_store(tmp_path, layers(2), 1)
    assert list(tmp_path.iterdir()) == []


# -- a layer's weights --------------------------------------------------------------------------------------


def test_weights_are_all_that_a_layer_holds_each_once() -> None:
    layer = nn.Module()
    layer.weight, layer.tied = nn.Parameter(torch.randn(3, 5)), None
    layer.tied = layer.weight
    layer.register_buffer("scale", torch.randn(2, dtype=torch.bfloat16))
    layer.inner, layer.attribute, layer.empty = nn.LayerNorm(4), torch.tensor(7), torch.empty(0)
    found = weights_of(layer)
    assert sorted(map(len, found)) == sorted([60, 4, 16, 16, 8])
    for each in found:
        each.zero_()
    assert not layer.weight.any()
    assert not layer.attribute
    assert not layer.scale.any()


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(33, 100), (384, 1152), (640, 400)])
def test_packed_weights_are_copied_byte_for_byte(shape: tuple[int, int], dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("no bfloat16 in oneDNN here")
    one, other = (nn.ModuleDict({"a": nn.Linear(*shape, dtype=dtype)}).requires_grad_(False) for _ in range(2))
    repack(one)
    repack(other)
    assert isinstance(one["a"], PackedLinear | SmallLinear)
    x = torch.randn(40, shape[0], dtype=dtype)
    assert not torch.equal(one["a"](x), other["a"](x))
    for into, weight in zip(weights_of(one), weights_of(other), strict=True):
        into.copy_(weight)
    for rows in (1, 40):
        assert torch.equal(one["a"](x[:rows]), other["a"](x[:rows]))


def test_a_weight_in_several_pieces_is_refused() -> None:
    layer = nn.Module()
    layer.weight = nn.Parameter(torch.randn(4, 6).T)
    with pytest.raises(DeviceError, match=r"swap_layers: a weight of shape \[6, 4\] is not one piece of memory"):
        weights_of(layer)
