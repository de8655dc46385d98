"""Copies between host and device as stages: what arrives is what was sent, whoever writes meanwhile.

Guards: a staging buffer that is written while it is still being copied; a copy that overtakes who still reads; values
that are the caller's again and arrive changed; a result that changes after it was taken.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from auras_ros.device import Mark
from auras_ros.device.staging import DEPTH, Download, Upload, host_twin
from tests.device.conftest import Rig
from tests.device.test_lanes import everywhere


@everywhere
def test_what_is_sent_arrives_and_comes_back(rig: Rig) -> None:
    buffers = [torch.zeros(shape, device=rig.device.tensors) for shape in ((2, 3), (4,))]
    upload = Upload("in", rig.device, rig.lane("copies"), buffers)
    work = rig.stage(rig.lane("work"), "double", lambda: [each.mul_(2) for each in buffers])
    like = torch.zeros(2, dtype=torch.float64, device=rig.device.tensors)
    download = Download("out", rig.device, rig.lane("out"), lambda: buffers[0].double().sum(1), like)
    for number in range(1, 6):
        mark = upload.send([torch.full((2, 3), float(number)), torch.ones(4)])
        download.launch([work(mark)])
        taken = download.take()
        assert taken.tolist() == [6.0 * number] * 2
        assert taken.dtype == torch.float64
    assert buffers[1].cpu().tolist() == [2.0] * 4


@everywhere
def test_values_are_the_callers_again_and_so_is_a_result(rig: Rig) -> None:
    buffer = torch.zeros(1000, device=rig.device.tensors)
    upload = Upload("in", rig.device, rig.lane("copies"), [buffer])
    download = Download("out", rig.device, rig.lane("out"), lambda: buffer, buffer)
    value, taken = torch.zeros(1000), []
    for number in range(5):
        value.fill_(number)
        mark = upload.send([value])
        value.fill_(-1.0)
        download.launch([mark])
        taken.append(download.take())
    assert [each.unique().tolist() for each in taken] == [[float(number)] for number in range(5)]


class Watched:
    """A mark that says when it is waited for."""

    def __init__(self, mark: Mark) -> None:
        self.done, self._mark = mark.done, mark
        self.waited_for = threading.Event()

    def wait(self) -> None:
        self.waited_for.set()
        self._mark.wait()


@pytest.mark.parametrize("rig", ["thread"], indirect=True)
def test_a_staging_buffer_is_not_written_while_it_is_being_copied(rig: Rig) -> None:
    """The copies stand behind a stage that waits; one more than there are buffers waits for the first of them."""
    buffer, seen, go = torch.zeros(8), list[float](), threading.Event()
    lane = rig.lane("copies")
    upload = Upload("in", rig.device, lane, [buffer])
    rig.stage(lane, "held", go.wait)()
    look = rig.stage(lane, "look", lambda: seen.append(buffer.mean().item()))

    def send(number: int) -> None:
        upload.send([torch.full((8,), float(number))])
        look()

    for number in range(DEPTH):
        send(number + 1)
    first = upload._marks[0]
    assert first is not None
    upload._marks[0] = watched = Watched(first)
    sender = threading.Thread(target=send, args=(DEPTH + 1,))
    sender.start()
    try:
        assert watched.waited_for.wait(20)
        assert not watched.done()
    finally:
        go.set()
        sender.join(60)
    look().wait()
    assert seen == [1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize("rig", ["null"], indirect=True)
def test_a_copy_out_comes_after_who_still_writes(rig: Rig) -> None:
    """In virtual time, in which every stage takes 10 ns and lanes run side by side."""
    buffer = torch.zeros(8)
    upload = Upload("in", rig.device, rig.lane("in"), [buffer])
    download = Download("out", rig.device, rig.lane("out"), lambda: buffer, buffer)
    copied: Any = upload.send([torch.ones(8)])
    assert copied.ends_ns == 10
    left: Any = download.launch([copied])
    assert left.ends_ns == 20
    assert download.take().unique().tolist() == [1.0]
    assert rig.device.clock.now_ns() == 20  # type: ignore[attr-defined]


@everywhere
def test_capturing_leaves_the_buffers_as_they_are(rig: Rig) -> None:
    """A GPU runs the copies to capture them."""
    buffer = torch.arange(6.0, device=rig.device.tensors)
    Upload("in", rig.device, rig.lane("in"), [buffer])
    assert buffer.tolist() == list(range(6))


@pytest.mark.parametrize("rig", ["null"], indirect=True)
def test_values_of_another_shape_are_refused_by_the_stage_s_name(rig: Rig) -> None:
    upload = Upload("in", rig.device, rig.lane("in"), [torch.zeros(3, 2)])
    with pytest.raises(ValueError, match=r"stage 'in': \[1, 2\], expected \[3, 2\]"):
        upload.send([torch.ones(1, 2)])


def test_on_a_host_the_twin_is_ordinary_memory() -> None:
    twin = host_twin(torch.ones(2, 3, dtype=torch.int64))
    assert (twin.shape, twin.dtype, twin.is_pinned(), twin.sum().item()) == ((2, 3), torch.int64, False, 0)


@pytest.mark.parametrize("rig", ["inline"], indirect=True)
def test_what_was_never_launched_cannot_be_taken(rig: Rig) -> None:
    download = Download("out", rig.device, rig.lane("out"), lambda: torch.ones(1), torch.ones(1))
    with pytest.raises(RuntimeError, match="nothing was launched"):
        download.take()


@pytest.mark.gpu
@pytest.mark.parametrize("rig", ["cuda"], indirect=True)
def test_on_a_gpu_copies_are_captured_and_the_host_goes_on_meanwhile(rig: Rig) -> None:
    """The copy out stands behind work that takes a while."""
    size = 1 << 22
    buffer, busy = (torch.zeros(each, device=rig.device.tensors) for each in (size, (4096, 4096)))
    assert host_twin(buffer).is_pinned()
    copies, work = rig.lane("copies"), rig.lane("work")
    upload = Upload("in", rig.device, copies, [buffer])
    download = Download("out", rig.device, copies, lambda: buffer * 2, buffer)
    slow = rig.stage(work, "slow", lambda: [busy.copy_(torch.tanh(busy @ busy)) for _ in range(20)])
    assert rig.device.uncaptured == {}
    for number in (1.0, 2.0):
        left = download.launch([slow(), upload.send([torch.full((size,), number)])])
        assert not left.done()
        assert download.take().unique().tolist() == [2 * number]
