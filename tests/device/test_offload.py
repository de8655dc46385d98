"""Weights that a device has no room for: which ones go, that results stay the same to the bit, that stages say so.

On the CPU they go to a file; the hooks that bring them in are accelerate's, as on a GPU. Guards: a weight that is read
while it is away; two threads that take one another's weights away; a limit that is not kept; a file that stays behind,
or a full disk that is found out in the middle of a frame; a graph over weights that come and go.
"""

from __future__ import annotations

import copy
import resource
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from auras_ros.device import DeviceError, offload
from auras_ros.device.cpu import CpuDevice
from auras_ros.device.offload import Offload, in_file, place, placed_before
from auras_ros.device.weights import MB, Use, split, survey

CPU = torch.device("cpu")


class Net(nn.Module):
    """One of each: called often, called once, read from outside, tied, around another, never called."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(32, 64)
        self.often = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 64))
        self.outside = nn.Linear(64, 64)
        self.tied = nn.Linear(64, 64, bias=False)
        self.tied_too = nn.Linear(64, 64, bias=False)
        self.tied_too.weight = self.tied.weight
        self.around = Around()
        self.spare = nn.Linear(8, 8)
        self.bound = torch.tensor([2.0], dtype=torch.float64)
        self.register_buffer("scale", torch.tensor([0.5]))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for _ in range(5):
            x = torch.tanh(self.often(x))
        x = self.outside(x) @ self.outside.weight
        x = self.tied_too(self.tied(x)) * self.scale
        return self.around(x) * self.bound

    def _apply(self, fn, recurse=True):  # type: ignore[no-untyped-def]
        super()._apply(fn, recurse)
        self.bound = self.bound.to(fn(torch.empty(0)).device)
        return self


class Around(nn.Module):
    """Its own weight is in use while its child runs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.inner = nn.Parameter(torch.randn(64)), nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x * self.weight)


@pytest.fixture
def net() -> Net:
    return Net().eval().requires_grad_(False)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 32, generator=torch.Generator().manual_seed(1))


def uses(net: Net) -> list[Use]:
    return [Use(lambda: net(torch.zeros(1, 32)))]


def bytes_of(*modules: nn.Module) -> int:
    return sum(each.numel() * each.element_size() for module in modules for each in module.parameters())


def resident(net: nn.Module) -> int:
    """What lies there now, each weight once."""
    here = {each for each in (*net.parameters(), *net.buffers()) if not each.is_meta}
    return sum(each.numel() * each.element_size() for each in here)


def test_units_are_what_uses_show(net: Net) -> None:
    units = {unit.name: unit for unit in survey(net, uses(net))}
    assert list(units) == [
        "first", "often.0", "often.1", "often.2", "outside", "tied", "around", "around.inner", "spare",
    ]  # fmt: skip
    assert units["often.0"].calls == 5
    assert units["first"].calls == 1
    assert list(units["tied"].modules) == ["tied", "tied_too"]
    assert units["tied"].size == bytes_of(net.tied)
    assert [name for name, unit in units.items() if not unit.moves] == ["outside", "spare"]


def test_a_survey_leaves_nothing_behind(net: Net) -> None:
    survey(net, uses(net))
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in net.modules())


def test_uses_count_as_often_as_a_request_does_them(net: Net) -> None:
    once, ten = (survey(net, [Use(lambda: net(torch.zeros(1, 32)), times)])[0] for times in (1, 10))
    assert (once.calls, ten.calls) == (1, 10)


def test_what_is_called_most_often_stays(net: Net) -> None:
    units = survey(net, uses(net))
    fixed = bytes_of(net.outside, net.spare) + 4  # and the buffer
    room = bytes_of(net.tied)  # the largest of the others
    limit = fixed + bytes_of(net.often) + room
    found = split(net, units, limit)
    assert [unit.name for unit in found.offloaded] == ["first", "tied", "around", "around.inner"]
    assert found.resident == limit - room
    assert found.largest == room
    assert split(net, units, 10**9).offloaded == []


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8])
def test_no_split_is_over_the_limit(net: Net, share: float) -> None:
    units = survey(net, uses(net))
    least = bytes_of(net.outside, net.spare) + 4 + bytes_of(net.often[0])
    every = resident(net)
    found = split(net, units, least + round(share * (every - least)))
    assert found.resident + found.largest <= least + round(share * (every - least))
    assert found.offloaded


def test_a_module_in_a_module_needs_room_for_both() -> None:
    around = Around().eval().requires_grad_(False)
    units = survey(around, [Use(lambda: around(torch.zeros(1, 64)))])
    assert split(around, units, bytes_of(around) - 1 + 64 * 4).largest == 0  # all of it stays
    with pytest.raises(DeviceError, match=r"for the largest module that can, 'inner'"):
        split(around, units, bytes_of(around) - 1)


def test_too_little_for_the_largest_module_is_refused_by_its_name(net: Net, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"max_memory_mb: 0\.02, but 0\.0\d+ MB are needed: .* 'often\.0'"):
        place(net, CPU, Offload(0.02, tmp_path), lambda: uses(net))
    assert not any(each.is_meta for each in net.parameters())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("limit_mb", [0.045, 0.07])
def test_results_are_the_same_to_the_bit_and_the_limit_holds_in_every_call(
    net: Net, x: Tensor, tmp_path: Path, limit_mb: float
) -> None:
    expected, most = net(x), list[int]()
    placed = place(net, CPU, Offload(limit_mb, tmp_path), lambda: uses(net))
    assert placed.resident == resident(net) < limit_mb * MB
    assert placed.resident + placed.offloaded == resident(Net())
    assert set(placed.modules) == {name for name, part in net.named_modules() if any(
        each.is_meta for each in part.parameters(recurse=False)
    )}  # fmt: skip
    for part in net.modules():
        part.register_forward_hook(lambda *_: most.append(resident(net)))
    for _ in range(2):
        assert torch.equal(net(x), expected)
    assert max(most) <= limit_mb * MB
    assert resident(net) == placed.resident  # all are away again


def test_with_room_for_all_nothing_is_tried_and_nothing_goes(net: Net, tmp_path: Path) -> None:
    def asked() -> list[Use]:
        raise AssertionError("tried")

    placed = place(net, CPU, Offload(1.0, tmp_path), asked)
    assert placed == placed_before(net)
    assert placed.modules == ()
    assert placed.resident == resident(net)


def test_a_module_of_placed_parts_is_placed_without_another_split(net: Net, x: Tensor, tmp_path: Path) -> None:
    """Plans of one checkpoint share their networks."""
    expected = net(x)
    first = place(net, CPU, Offload(0.045, tmp_path), lambda: uses(net))
    beside = nn.ModuleDict({"shared": net, "own": nn.Linear(2, 2)})

    def asked() -> list[Use]:
        raise AssertionError("tried")

    second = place(beside, CPU, Offload(0.001, tmp_path), asked)
    assert second.modules == tuple(f"shared.{name}" for name in first.modules)
    assert torch.equal(net(x), expected)


def test_what_a_module_moves_by_itself_is_moved_too(net: Net, tmp_path: Path) -> None:
    moved: list[bool] = []
    apply = net._apply
    net._apply = lambda fn, recurse=True: moved.append(True) or apply(fn, recurse)  # type: ignore
    place(net, CPU, Offload(0.045, tmp_path), lambda: uses(net))
    assert moved == [True]
    assert net.bound.dtype == torch.float64


def test_threads_do_not_take_one_anothers_weights_away(net: Net, x: Tensor, tmp_path: Path) -> None:
    expected, wrong = net(x), list[object]()
    place(net, CPU, Offload(0.045, tmp_path), lambda: uses(net))
    start = threading.Barrier(4)

    def work() -> None:
        torch.set_num_threads(1)
        start.wait()
        try:
            for _ in range(50):
                if not torch.equal(net(x), expected):
                    wrong.append("another result")
        except Exception as error:  # noqa: BLE001
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    before_s, switch_s = sys.getswitchinterval(), 1e-5
    sys.setswitchinterval(switch_s)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before_s)
    assert wrong == []


def test_a_forward_that_fails_leaves_the_next_one_well(net: Net, x: Tensor, tmp_path: Path) -> None:
    expected = net(x)
    place(net, CPU, Offload(0.045, tmp_path), lambda: uses(net))
    with pytest.raises(RuntimeError, match="shape"):
        net(x[:, :5])
    done: list[bool] = []
    other = threading.Thread(target=lambda: done.append(torch.equal(net(x), expected)))
    other.start()
    other.join(60)
    assert done == [True]


def test_a_stage_with_offloaded_weights_says_so_and_one_without_does_not(net: Net, x: Tensor, tmp_path: Path) -> None:
    expected, out, inner = net(x), torch.zeros(3, 4, dtype=torch.float64), torch.zeros(3, 64)
    expected_inner = net.often(torch.ones(3, 64))
    fixed = bytes_of(net.outside, net.spare, net.often, net.tied) + 4
    place(net, CPU, Offload(fixed / MB, tmp_path), lambda: uses(net))

    def run_whole() -> None:
        out.copy_(net(x))

    def run_part() -> None:
        inner.copy_(net.often(torch.ones(3, 64)))

    device = CpuDevice()
    lane = device.lane("lane")
    whole, part = device.capture("whole", run_whole, lane), device.capture("part", run_part, lane)
    for stage in (whole, part):
        lane.launch(stage).wait()
    assert torch.equal(out, expected)
    assert torch.equal(inner, expected_inner)
    assert (whole.captured, part.captured) == (False, True)
    assert device.uncaptured["whole"][0] == "the weights of 'first' are offloaded"
    device.close()


# -- the file --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8])
def test_a_file_gives_back_what_it_was_given(tmp_path: Path, dtype: torch.dtype) -> None:
    given = [torch.randint(-9, 9, shape).to(dtype) for shape in ((3, 5), (), (0,), (7, 1), (64, 2))]
    given.append(torch.arange(12).to(dtype).view(3, 4).T)
    back = in_file(given, tmp_path)
    for one, other in zip(given, back, strict=True):
        assert torch.equal(one, other)
        assert other.dtype == dtype
        assert other.data_ptr() % 64 == 0 or not other.numel()


def test_the_file_has_no_name_any_more(tmp_path: Path) -> None:
    kept = in_file([torch.ones(1000)], tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert kept[0].sum() == 1000


@pytest.fixture
def files_of_a_page() -> Iterator[None]:
    """Writing more is an error, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("files_of_a_page")
def test_a_disk_that_is_full_is_said_before_anything_is_moved(net: Net, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=rf"offload_folder: {tmp_path}: .*[Ff]ile too large"):
        place(net, CPU, Offload(0.045, tmp_path), lambda: uses(net))
    assert not any(each.is_meta for each in net.parameters())
    assert list(tmp_path.iterdir()) == []


# -- refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_refused(limit: float) -> None:
    with pytest.raises(DeviceError, match="max_memory_mb: must be above 0 MB"):
        Offload(limit)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=rf"offload_folder: {tmp_path / 'nowhere'} is not a folder"):
        Offload(1.0, tmp_path / "nowhere")


def test_a_folder_that_cannot_be_written_is_named(net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write anywhere: the refusal is the system's."""

    def refuse(*_: object, **__: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(offload.tempfile, "TemporaryFile", refuse)
    with pytest.raises(DeviceError, match=rf"offload_folder: {tmp_path}: .*Permission denied"):
        place(net, CPU, Offload(0.045, tmp_path), lambda: uses(net))


def test_a_cpu_needs_a_folder(net: Net) -> None:
    with pytest.raises(DeviceError, match=r"max_memory_mb: on a CPU .* offload_folder must be given"):
        place(net, CPU, Offload(0.045), lambda: uses(net))


def test_weights_that_are_not_in_host_memory_are_refused(net: Net, tmp_path: Path) -> None:
    net.first.to("meta")
    with pytest.raises(DeviceError, match="must all be there first"):
        place(net, CPU, Offload(0.045, tmp_path), lambda: uses(net))


def test_without_accelerate_the_extra_is_named(net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "accelerate"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(DeviceError, match="max_memory_mb: needs accelerate, the extra 'offload'"):
        place(net, CPU, Offload(0.045, tmp_path), lambda: uses(net))
    assert not any(each.is_meta for each in net.parameters())
    place(net, CPU, Offload(1.0, tmp_path), lambda: uses(net))  # where all have room it is not needed


# -- on a GPU --------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("in_folder", [False, True])
def test_on_a_gpu_the_limit_holds_and_results_are_those_of_the_whole_module(
    net: Net, x: Tensor, tmp_path: Path, in_folder: bool
) -> None:
    pytest.importorskip("accelerate")
    from auras_ros.device.cuda import CudaDevice

    device = CudaDevice()
    whole = copy.deepcopy(net).to(device.tensors)
    expected, out = net(x), torch.zeros(3, 4, dtype=torch.float64, device=device.tensors)
    placed = place(net, device.tensors, Offload(0.045, tmp_path if in_folder else None), lambda: uses(net))
    assert placed.resident < 0.045 * MB
    assert all(each.device == device.tensors for each in net.parameters() if not each.is_meta)
    assert net.bound.device == device.tensors
    inputs = x.to(device.tensors)
    lane = device.lane("lane")

    def run() -> None:
        out.copy_(net(inputs))

    stage = device.capture("whole", run, lane)
    assert not stage.captured
    for _ in range(3):
        out.zero_()
        lane.launch(stage).wait()
        assert torch.equal(out, whole(inputs))
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-4, atol=1e-5)
    device.close()
