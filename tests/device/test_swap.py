"""Layers that take turns in a few physical ones: which layer is where, what is put in order, when it costs nothing.

Guards: a layer computed before its weights are all there, or with those of another; weights overwritten while they are
used; a wrong place where K does not divide N, in the second forward or after one that failed; a link too slow for Eq. 8
that nobody noticed; a full disk found out in the middle of a forward; a graph over weights that come and go.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from auras_ros.clock import VirtualClock
from auras_ros.device import DeviceError, swap
from auras_ros.device.cpu import CpuDevice
from auras_ros.device.cuda import CudaDevice
from auras_ros.device.swap import STEADY, LayerSwap, SwapPlan, make_plan, swap_layers
from auras_ros.device.swap_store import weights_of
from tests.device.fake_cuda import Gpu, install
from tests.device.null_device import NullDevice
from tests.device.swapping import WIDTH, Block, Net, inputs

MS = 1_000_000


@pytest.fixture
def fast_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny layers compute faster than a disk reads: as if Eq. 8 held."""
    monkeypatch.setattr(swap, "_bandwidth", lambda *_: 1e15)


def swapped(net: Net, physical: int, folder: Path, device: CpuDevice) -> SwapPlan:
    lane = device.lane("swap", threads=1)
    return swap_layers(net.layers, physical, folder, device, lane, lambda: net(inputs()))


# -- what is computed --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("fast_link")
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("layers", "physical"), [(7, 3), (7, 2), (7, 6), (6, 3), (6, 2)])
def test_every_forward_has_the_resident_layers_bits(layers: int, physical: int, packed: bool, tmp_path: Path) -> None:
    net, expected = Net(layers, packed), [Net(layers, packed)(inputs(seed)) for seed in range(4)]
    with closing(CpuDevice()) as device:
        plan = swapped(net, physical, tmp_path, device)
        assert (len(plan.swapped), plan.physical) == (layers, physical)
        assert not list(net.parameters())
        for seed in range(4):
            assert torch.equal(net(inputs(seed)), expected[seed])


@pytest.mark.usefixtures("fast_link")
def test_resident_layers_keep_their_places_among_swapped_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_of = make_plan
    monkeypatch.setattr(swap, "make_plan", lambda n, k, size, link, s: plan_of(n, k, size, 0.6 * n * size / s, s))
    net, expected = Net(11, packed=True), Net(11, packed=True)(inputs())
    with closing(CpuDevice()) as device:
        plan = swapped(net, 2, tmp_path, device)
        assert 0 < len(plan.resident) < 9
        assert [number for number, layer in enumerate(net.layers) if list(layer.parameters())] == list(plan.resident)
        for _ in range(3):
            assert torch.equal(net(inputs()), expected)


def test_where_all_must_stay_nothing_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap, "_bandwidth", lambda *_: 1.0)
    net, layers = Net(4), [*Net(4).layers]
    layers = [*net.layers]
    with closing(CpuDevice()) as device:
        assert swapped(net, 2, tmp_path, device).swapped == ()
    assert [*net.layers] == layers


@pytest.mark.usefixtures("fast_link")
def test_layers_may_be_called_in_any_order(tmp_path: Path) -> None:
    net, whole, order = Net(7, packed=True), Net(7, packed=True), random.Random(0)
    with closing(CpuDevice()) as device:
        swapped(net, 3, tmp_path, device)
        for _ in range(60):
            number = order.randrange(7)
            assert torch.equal(net.layers[number](inputs(number)), whole.layers[number](inputs(number)))


@pytest.mark.usefixtures("fast_link")
def test_threads_do_not_take_one_anothers_layers_away(tmp_path: Path) -> None:
    net, expected, wrong = Net(7, packed=True), Net(7, packed=True)(inputs()), list[object]()
    start = threading.Barrier(3)

    def work() -> None:
        torch.set_num_threads(1)
        start.wait()
        try:
            wrong.extend(1 for _ in range(10) if not torch.equal(net(inputs()), expected))
        except Exception as error:  # noqa: BLE001
            wrong.append(error)

    with closing(CpuDevice()) as device:
        swapped(net, 2, tmp_path, device)
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


@pytest.mark.usefixtures("fast_link")
def test_a_forward_that_fails_leaves_the_next_one_well(tmp_path: Path) -> None:
    net, expected = Net(7), Net(7)(inputs())
    with closing(CpuDevice()) as device:
        swapped(net, 3, tmp_path, device)
        with pytest.raises(RuntimeError, match="shape"):
            net.layers[0](inputs()[:, :5])
        net.layers[0](inputs())  # and no further: somebody between the layers failed
        for _ in range(2):
            assert torch.equal(net(inputs()), expected)


@pytest.mark.usefixtures("fast_link")
def test_a_layer_that_cannot_be_read_is_its_forwards_error_and_not_the_next_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, expected = Net(7), Net(7)(inputs())
    with closing(CpuDevice()) as device:
        swapped(net, 3, tmp_path, device)
        read, size = os.preadv, -(-sum(map(len, weights_of(Block(0)))) // 4096) * 4096

        def fail(file: int, buffers: Any, at: int) -> int:
            if at // size == 4:
                raise OSError(5, "Input/output error")
            return read(file, buffers, at)

        with monkeypatch.context() as broken:
            broken.setattr("os.preadv", fail)
            for _ in range(2):
                with pytest.raises(DeviceError, match=r"swap_layers: layer 4 could not be read: .*Input/output error"):
                    net(inputs())
        for _ in range(2):
            assert torch.equal(net(inputs()), expected)


@pytest.mark.usefixtures("fast_link")
def test_a_stage_with_swapped_layers_says_so(tmp_path: Path) -> None:
    net, out = Net(4), torch.zeros(5, WIDTH)
    with closing(CpuDevice()) as device:
        swapped(net, 2, tmp_path, device)
        lane = device.lane("lane")
        stage = device.capture("vision", lambda: out.copy_(net(inputs())), lane)
        lane.launch(stage).wait()
        assert not stage.captured
        assert device.uncaptured["vision"] == ("layers are swapped",)
    assert torch.equal(out, Net(4)(inputs()))


# -- what is put in order -----------------------------------------------------------------------------------


class Shelf:
    """A store whose weights are one number: the layer's. put: how an operation is done."""

    kind, reuses = "a shelf", False

    def __init__(self, put: Callable[[Callable[[], object]], object] = lambda run: run()) -> None:
        self.read_into: list[tuple[int, int]] = []
        self._put = put

    def reader(self, slot: int, into: Sequence[Tensor]) -> Callable[[int], None]:
        return lambda layer: self.read(layer, slot, into)

    def read(self, layer: int, slot: int, into: Sequence[Tensor]) -> None:
        self.read_into.append((layer, slot))
        self._put(lambda: into[0].fill_(255))  # half of it
        self._put(lambda: into[0].fill_(layer))

    def close(self) -> None: ...


class Seen(nn.Module):
    """Its weight is the layer that it holds: each call notes it."""

    def __init__(self, put: Callable[[Callable[[], object]], object] = lambda run: run()) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, dtype=torch.uint8), requires_grad=False)
        self._put = put

    def forward(self, seen: list[int]) -> None:
        self._put(lambda: seen.append(int(self.weight)))


def plan_of(layers: int, physical: int, resident: tuple[int, ...] = ()) -> SwapPlan:
    return SwapPlan(layers, physical, resident, 1, 1.0, 1.0)


@given(layers=st.integers(2, 9), physical=st.integers(1, 8), forwards=st.integers(1, 4))
@settings(deadline=None, max_examples=40)
def test_a_physical_layer_goes_from_l_to_l_plus_k_through_forwards(layers: int, physical: int, forwards: int) -> None:
    """Eq. 7."""
    physical = min(physical, layers - 1)
    shelf, device = Shelf(), CpuDevice()
    moved = LayerSwap(plan_of(layers, physical), [Seen() for _ in range(physical)], shelf, device, device.lane("swap"))
    seen: list[int] = []
    for place in list(range(layers)) * forwards:
        moved.run(place, seen)
    assert seen == list(range(layers)) * forwards
    for slot in range(physical):
        held = [layer for layer, into in shelf.read_into if into == slot]
        assert held[0] == slot
        assert all(after == (before + physical) % layers for before, after in pairwise(held))
    assert len(shelf.read_into) == layers * forwards + physical  # nothing is read twice


@pytest.mark.parametrize("seed", range(12))
def test_on_a_gpu_no_layer_is_read_early_nor_overwritten_late(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in GPU runs whatever may run, in random order; the host never waits for it in between."""
    gpu = install(monkeypatch, seed)
    device = CudaDevice()
    layers, physical = 7, 1 + seed % 4
    modules = [Seen(gpu.kernel) for _ in range(physical)]
    moved = LayerSwap(plan_of(layers, physical), modules, Shelf(gpu.kernel), device, device.lane("swap"))
    seen: list[int] = []
    gpu.synchronised.clear()
    for place in list(range(layers)) * 3:
        moved.run(place, seen)
    assert gpu.synchronised == []
    gpu.current.synchronize()
    assert seen == list(range(layers)) * 3
    device.close()


def test_the_stand_in_gpu_sees_a_missing_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above would fail: without the wait for its mark some layer is computed too early."""
    monkeypatch.setattr("auras_ros.device.cuda_lane.CudaMark.follow", lambda self: None)
    wrong = 0
    for seed in range(12):
        with monkeypatch.context() as patch:
            gpu: Gpu = install(patch, seed)
            device = CudaDevice()
            modules = [Seen(gpu.kernel) for _ in range(2)]
            moved = LayerSwap(plan_of(7, 2), modules, Shelf(gpu.kernel), device, device.lane("swap"))
            seen: list[int] = []
            for place in range(7):
                moved.run(place, seen)
            gpu.current.synchronize()
            wrong += seen != list(range(7))
            device.close()
    assert wrong


def test_a_buffer_that_a_copy_reads_is_not_written_again_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file on a GPU: the host reads into the buffer of the physical layer, whose last copy must be over."""
    gpu = install(monkeypatch, 3)
    device, buffers = CudaDevice(), [0, 0]

    class Staged(Shelf):
        reuses = True

        def read(self, layer: int, slot: int, into: Sequence[Tensor]) -> None:
            buffers[slot] = layer  # by the host, at once
            gpu.kernel(lambda: into[0].fill_(buffers[slot]))

    moved = LayerSwap(plan_of(5, 2), [Seen(gpu.kernel) for _ in range(2)], Staged(), device, device.lane("swap"))
    seen: list[int] = []
    for place in list(range(5)) * 3:
        moved.run(place, seen)
    gpu.current.synchronize()
    assert seen == list(range(5)) * 3
    device.close()


# -- Eq. 8 --------------------------------------------------------------------------------------------------


def forward_ns(plan: SwapPlan, compute_ns: int, copy_ns: int, forwards: int = 3) -> int:
    """The last of some forwards, in virtual time: layers that compute, one copy lane beside."""
    clock = VirtualClock()
    device = NullDevice(clock, {f"swap {number}": copy_ns for number in range(plan.physical)})

    class Timed(Seen):
        def forward(self, seen: list[int]) -> None:
            clock.sleep_until_ns(clock.now_ns() + compute_ns)

    moved = LayerSwap(plan, [Timed() for _ in range(plan.physical)], Shelf(), device, device.lane("swap"))
    began_ns = 0
    for _ in range(forwards):
        began_ns = clock.now_ns()
        for layer in range(plan.layers):
            if layer in plan.resident:
                clock.sleep_until_ns(clock.now_ns() + compute_ns)
            else:
                moved.run(plan.swapped.index(layer), [])
    return clock.now_ns() - began_ns


@pytest.mark.parametrize("physical", [2, 3, 5])
def test_where_the_link_is_fast_enough_two_physical_layers_hide_it(physical: int) -> None:
    assert forward_ns(plan_of(24, physical), 10 * MS, 9 * MS) == 24 * 10 * MS
    assert forward_ns(plan_of(24, physical), 10 * MS, 10 * MS) == 24 * 10 * MS


def test_where_it_is_slower_the_forward_takes_as_long_as_the_link() -> None:
    assert forward_ns(plan_of(24, 2), 10 * MS, 15 * MS) == 24 * 15 * MS


@given(copy_ms=st.integers(4, 60), physical=st.integers(2, 5), layers=st.integers(12, 40))
@settings(deadline=None, max_examples=60)
def test_resident_layers_hide_a_slower_link_and_are_no_more_than_that_needs(
    copy_ms: int, physical: int, layers: int
) -> None:
    plan = make_plan(layers, physical, 1000, 1000 / (STEADY * copy_ms / 1e3), layers * 10 / 1e3)
    assert sorted({*plan.resident, *plan.swapped}) == list(range(layers))
    assert plan.hidden == (copy_ms <= 10) == (not plan.resident)
    count = len(plan.resident)
    assert count * copy_ms >= layers * (copy_ms - 10)  # f >= 1 - B T / M
    if plan.swapped:
        gaps = [after - before for before, after in pairwise(plan.resident)]
        assert not gaps or max(gaps) - min(gaps) <= 1
        assert forward_ns(plan, 10 * MS, copy_ms * MS, forwards=6) == layers * 10 * MS
    if 1 < count < layers and (count - 1) * copy_ms >= layers * (copy_ms - 10):
        fewer = tuple(int((place + 0.5) * layers / (count - 1)) for place in range(count - 1))
        assert forward_ns(plan_of(layers, physical, fewer), 10 * MS, copy_ms * MS, forwards=10) > layers * 10 * MS


def test_a_plan_in_words() -> None:
    assert str(make_plan(24, 2, 5 * MS, 1e9, 0.5)) == (
        "24 layers of 5.0 MB in 2 physical: 1,000 MB/s of 240 needed for all"
    )
    assert str(make_plan(24, 2, 5 * MS, 2e8, 0.5)).startswith("24 layers of 5.0 MB in 2 physical and 8 resident: 200")
    assert str(make_plan(24, 2, 5 * MS, 1e7, 0.5)).startswith("all 24 layers stay resident: the link has 10 MB/s")


# -- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("physical", [0, -1, 1, 4, 9])
def test_physical_layers_that_save_nothing_are_refused(physical: int, tmp_path: Path) -> None:
    with closing(CpuDevice()) as device, pytest.raises(DeviceError, match=rf"swap_layers: {physical} physical"):
        swapped(Net(4), physical, tmp_path, device)


def test_layers_of_two_forms_are_refused(tmp_path: Path) -> None:
    net = Net(4)
    net.layers[2].second = nn.Linear(3 * WIDTH, WIDTH)
    with closing(CpuDevice()) as device, pytest.raises(DeviceError, match="layer 2 has another form than layer 0"):
        swapped(net, 2, tmp_path, device)


def test_layers_that_share_weights_are_refused(tmp_path: Path) -> None:
    net = Net(4)
    net.layers[2].first = net.layers[1].first
    with closing(CpuDevice()) as device, pytest.raises(DeviceError, match="layers share weights"):
        swapped(net, 2, tmp_path, device)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with closing(CpuDevice()) as device, pytest.raises(DeviceError, match=r"swap_folder: .*nowhere is not a folder"):
        swapped(Net(4), 2, tmp_path / "nowhere", device)


def test_a_file_that_cannot_be_read_is_found_when_it_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    net, layers = Net(4), list[Any]()
    layers = [*net.layers]
    monkeypatch.setattr("os.preadv", fail)
    with closing(CpuDevice()) as device, pytest.raises(DeviceError, match="swap_folder: layer 0 could not be read"):
        swapped(net, 2, tmp_path, device)
    assert [*net.layers] == layers
